"""Plug-ins found by their file name: ``costs/params.py`` is the cost ``params``.

A plug-in folder holds `base.py` (the contract), its helpers, and one file or package for each plug-in, which names its
class ``PLUGIN``; that line is what makes it one. Nothing is imported until it is asked for.

Names are a convenience, not a gate. Wherever one is accepted, so is ``package.module:Class``, importable from the
current folder too; in Python also the class or an instance; and the name under which an installed package registered
its own, as an entry point of the group ``sartor`` such as ``spaces.mine = "package.module:Class"``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sartor.core import config
from sartor.core.errors import BadInput, SartorError, nearest

_MARK = re.compile(r"^PLUGIN\b", re.MULTILINE)


@cache
def _modules(package: str) -> dict[str, str]:
    """The dotted module of every plug-in by its name, from the files' text alone."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None
    found = {}
    for folder in map(Path, spec.submodule_search_locations):
        for path in sorted(folder.rglob("*.py")):
            if _MARK.search(path.read_text(encoding="utf-8")):
                parts = path.relative_to(folder).with_suffix("").parts
                parts = parts[:-1] if parts[-1] == "__init__" else parts
                found[parts[-1]] = ".".join((package, *parts))
    return dict(sorted(found.items()))


@cache
def _installed() -> dict[str, EntryPoint]:
    """What installed packages registered, by ``folder.name``."""
    return {entry.name: entry for entry in entry_points(group="sartor")}


def load(reference: str, *, trusted: bool = True) -> Any:
    """The object that ``package.module:name`` names; modules of the current folder are found too.

    Importing runs code, so a reference that was read from a file rather than given by the user is not `trusted`.
    """
    place, _, name = reference.partition(":")
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", place) or not name:
        raise BadInput(f"a reference to code must be package.module:name, but is {reference!r}.")
    if not trusted:
        raise BadInput(
            f"{reference} is code named by a file, and loading it would run it. If you trust where the file comes "
            "from, say so: --trust-code on the command line, trust_code=True in Python."
        )
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = import_module(place)
    except SartorError:
        raise
    except Exception as error:  # the module is the user's code: whatever it raises is about the input
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        here_too = missing is not None and f"{place}.".startswith(f"{missing}.")  # rather than one that it imports
        why = f"there is no module {missing}" if here_too else f"it raised {error!r}"
        raise BadInput(
            f"{reference} must be importable from the current folder or an installed package, but {why}."
        ) from error
    finally:
        sys.path.remove(here)
    for part in name.split("."):
        if not hasattr(found, part):
            raise BadInput(f"{reference}: {place} has no {part}{nearest(part, dir(found))}.")
        found = getattr(found, part)
    return found


def cost_of(name: str) -> str:
    """The cost that a budget is about: ``latency@pi`` is the latency at the target ``pi``."""
    return name.partition("@")[0]


@dataclass(frozen=True)
class Registry:
    """The plug-ins of one package; `contract` is the class in its ``base.py`` that they all implement."""

    package: str
    noun: str
    contract: str = ""

    def names(self) -> tuple[str, ...]:
        """The name of every plug-in, built in or installed, without importing any of them."""
        return tuple(dict.fromkeys((*_modules(self.package), *self._entries())))

    def _entries(self) -> dict[str, EntryPoint]:
        folder = self.package.rpartition(".")[2] + "."
        return {n.removeprefix(folder): e for n, e in _installed().items() if n.startswith(folder)}

    def resolve(self, given: Any, *, trusted: bool = True) -> Any:
        """What a name, a ``package.module:Class`` (refused if not `trusted`) or a class stands for; instances stay."""
        if not isinstance(given, str):
            return self._checked(given, repr(given))
        if ":" in given:
            return self._checked(load(given, trusted=trusted), given)
        if given in _modules(self.package):
            return import_module(_modules(self.package)[given]).PLUGIN
        if given in self._entries():
            return self._checked(load(self._entries()[given].value), given)
        raise BadInput(
            f"there is no {self.noun} named {given!r}{nearest(given, self.names())}; available: "
            f"{', '.join(self.names())}, or your own as package.module:Class."
        )

    def __getitem__(self, given: Any) -> Any:
        return self.resolve(given)

    def make(self, given: Any, options: Mapping[str, Any] | None = None, *, trusted: bool = True) -> Any:
        """An instance of what `given` stands for; `options` are its fields, or replace those of an instance."""
        found = self.resolve(given, trusted=trusted)
        if isinstance(found, type):
            return config.build(found, options or {}, self.noun)
        return config.build(type(found), {**config.fields_of(found), **options}, self.noun) if options else found

    def reference(self, thing: Any) -> str:
        """The string under which a class, or that of an instance, is found again; a string is one already."""
        if isinstance(thing, str):
            return thing
        cls = thing if isinstance(thing, type) else type(thing)
        for name, module in _modules(self.package).items():
            if f"{cls.__module__}.".startswith(f"{module}.") and import_module(module).PLUGIN is cls:
                return name
        found = f"{cls.__module__}:{cls.__qualname__}"
        return next((n for n, e in self._entries().items() if e.value == found), found)

    def summary(self, name: str) -> str:
        """The first line of the plug-in's docstring; of an installed one that is broken, how it is."""
        try:
            return (self[name].__doc__ or "").strip().split("\n")[0]
        except BadInput as error:
            return str(error)

    def _checked(self, found: Any, given: str) -> Any:
        """What was found outside the package, if it is what the contract asks for."""
        if not self.contract:
            return found
        base = getattr(import_module(f"{self.package}.base"), self.contract)
        if isinstance(found, base) or (isinstance(found, type) and issubclass(found, base)):
            missing = sorted(getattr(found, "__abstractmethods__", ()))
            if missing:
                raise BadInput(f"{given} is a {self.noun} that does not say all it must: {', '.join(missing)}.")
            return found
        what = f"the class {found.__qualname__}" if isinstance(found, type) else f"of type {type(found).__qualname__}"
        raise BadInput(
            f"{given} must be a {self.noun}, a subclass of {base.__module__}.{base.__name__} or an instance of one, "
            f"but is {what}."
        )


SPACES = Registry("sartor.spaces", "space", "Space")
SOLVERS = Registry("sartor.solvers", "solver", "Solver")
COSTS = Registry("sartor.costs", "cost", "Cost")
METHODS = Registry("sartor.methods", "method", "Method")
SOURCES = Registry("sartor.data.sources", "data source", "Source")
PROXIES = Registry("sartor.proxies", "proxy", "Proxy")
PREDICTORS = Registry("sartor.predictors", "predictor", "Predictor")
RUNTIMES = Registry("sartor.deploy.runtimes", "runtime", "Runtime")
TARGETS = Registry("sartor.deploy.targets", "target", "Target")
