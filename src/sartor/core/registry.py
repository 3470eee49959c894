"""Plug-ins found by their file name: ``costs/params.py`` is the cost ``params``.

A plug-in folder holds `base.py` (the contract), its helpers, and one file or package for each plug-in, which names its
class ``PLUGIN``; that line is what makes it one. Nothing is imported until it is asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sartor.core.errors import BadInput

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


@dataclass(frozen=True)
class Registry:
    """The plug-ins of one package."""

    package: str
    noun: str

    def names(self) -> tuple[str, ...]:
        """Every plug-in's name, without importing any of them."""
        return tuple(_modules(self.package))

    def __getitem__(self, name: str) -> Any:
        if name not in self.names():
            raise BadInput(f"there is no {self.noun} named {name!r}; available: {', '.join(self.names())}.")
        return import_module(_modules(self.package)[name]).PLUGIN

    def summary(self, name: str) -> str:
        """The first line of the plug-in's docstring."""
        return (self[name].__doc__ or "").strip().split("\n")[0]


SPACES = Registry("sartor.spaces", "space")
SOLVERS = Registry("sartor.solvers", "solver")
COSTS = Registry("sartor.costs", "cost")
METHODS = Registry("sartor.methods", "method")
PROXIES = Registry("sartor.proxies", "proxy")
