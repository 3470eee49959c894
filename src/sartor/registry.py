"""Plug-ins found by their file name: ``methods/binas.py`` is the method ``binas``.

A plug-in folder holds `base.py` (the contract), private helpers (``_*.py``) and one public file a
plug-in, which names its class ``PLUGIN``. Nothing is imported until it is asked for.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sartor.errors import BadInput


@dataclass(frozen=True)
class Registry:
    """The plug-ins of one package."""

    package: str
    noun: str

    def names(self) -> tuple[str, ...]:
        """Every plug-in's name, without importing any of them."""
        spec = find_spec(self.package)
        assert spec is not None and spec.submodule_search_locations is not None
        found = pkgutil.iter_modules(spec.submodule_search_locations)
        return tuple(sorted(m.name for m in found if not m.name.startswith("_") and m.name != "base"))

    def __getitem__(self, name: str) -> Any:
        if name not in self.names():
            raise BadInput(f"there is no {self.noun} named {name!r}; available: {', '.join(self.names())}.")
        return import_module(f"{self.package}.{name}").PLUGIN

    def summary(self, name: str) -> str:
        """The first line of the plug-in's docstring."""
        return (self[name].__doc__ or "").strip().split("\n")[0]


SPACES = Registry("sartor.spaces", "space")
SOLVERS = Registry("sartor.solvers", "solver")
COSTS = Registry("sartor.costs", "cost")
METHODS = Registry("sartor.methods", "method")
PROXIES = Registry("sartor.proxies", "proxy")
