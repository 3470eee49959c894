"""The errors a user can meet, and what each means for the command line's exit code.

SartorError                 anything Sartor refuses to do, with a message a person can act on
├── BadInput                an option, a file or a folder is not what it must be
│   └── RunError            a run directory that cannot be used as it is
├── Infeasible              no network of the space meets the budgets
├── Diverged                training produced a loss that is not a number
├── SolverError             a solver's answer failed its re-evaluation
└── MissingDependency       an optional package is needed here
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType


class SartorError(Exception):
    """Base of all expected errors; the CLI prints the message alone and exits with `exit_code`."""

    exit_code = 2


class BadInput(SartorError, ValueError):
    """What was given is not what must hold; the message says both and what to do."""


class RunError(BadInput):
    """A run directory is locked, incomplete, damaged or belongs to another configuration."""


class Infeasible(SartorError):
    """No architecture of the space meets the budgets; the message names the least achievable.

    Where one limit is at fault, `limit` is its name, `asked` its value and `least` the nearest
    value that some network of the space reaches.
    """

    def __init__(
        self, message: str = "", *, limit: str | None = None, asked: float | None = None, least: float | None = None
    ) -> None:
        super().__init__(message)
        self.limit, self.asked, self.least = limit, asked, least


class Diverged(SartorError):
    """The training loss stopped being finite."""


class SolverError(SartorError):
    """A solver returned something that its own re-evaluation contradicts."""


class MissingDependency(SartorError, ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean this or that`` for a name that is none of the `known`; nothing where none is like it."""
    close = get_close_matches(name, list(known), n=3)
    return f"; did you mean {' or '.join(close)}?"[:-1] if close else ""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional package, or say which extra installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingDependency(f"{module} is needed here: pip install 'sartor[{extra}]'.") from error
    except Exception as error:  # a package may raise anything while it is imported
        raise MissingDependency(
            f"{module} is needed here and installed, but cannot be imported: {str(error).strip() or repr(error)}. "
            f"Install versions that belong together: pip install --upgrade 'sartor[{extra}]'."
        ) from error
