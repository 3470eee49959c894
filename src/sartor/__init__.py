"""Sartor: networks cut to measure. A folder of images and a budget in, the best network that provably fits out.

>>> import sartor
>>> result = sartor.fit("photos/", latency="5ms", params="4M")      # doctest: +SKIP
>>> result.certificate["budgets"]["params"]["measured"]             # doctest: +SKIP
>>> result.predict(["cat.jpg"])                                     # doctest: +SKIP

Importing the package does not import torch; that happens when something needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sartor.api.result import Result, load
from sartor.api.run import audit, compare, compress, export, fit, solve, verify
from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput, Diverged, Infeasible, MissingDependency, RunError, SartorError, SolverError
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.version import __version__ as __version__

if TYPE_CHECKING:
    from sartor.api.estimator import SartorClassifier as SartorClassifier


def __getattr__(name: str) -> Any:
    """`sartor.SartorClassifier` needs scikit-learn, which is imported when it is asked for."""
    if name == "SartorClassifier":
        from sartor.api.estimator import SartorClassifier

        return SartorClassifier
    raise AttributeError(f"module 'sartor' has no attribute {name!r}")


__all__ = [
    # the main job
    "fit", "solve", "compress", "compare", "audit", "export", "verify", "load", "Result",
    # what methods, costs and solvers speak
    "Arch", "Choice", "Limit", "Quadratic", "Task",
    # errors
    "BadInput", "Diverged", "Infeasible", "MissingDependency", "RunError", "SartorError", "SolverError",
]  # fmt: skip
