"""Quantities with explicit units: ``20ms``, ``4M``, ``1.2GB``.

Inside Sartor every number of a kind has one unit: latency in milliseconds, counts (parameters,
multiply-accumulates) in ones, memory in bytes. Text is read and written here and nowhere else. A cost of one's own
may bring a kind of its own: ``Kind("energy", {"uJ": 1e-3, "mJ": 1.0, "J": 1e3})``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sartor.core.errors import BadInput

_NUMBER = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµμ%]*)\s*$")
_HUGE = 1e300
_ROUNDED = 0.99995  # what rounds to 1000 of a unit is 1 of the next


@dataclass(frozen=True)
class Kind:
    """A kind of quantity: the units it is written in, each in multiples of Sartor's own, whose size is 1."""

    name: str
    scales: Mapping[str, float]
    shown: Mapping[str, float] = field(default_factory=dict)  # units for people, each with the least amount it is for
    examples: str = ""

    def __post_init__(self) -> None:
        if 1.0 not in self.scales.values():
            raise BadInput(f"one unit of {self.name} must have the size 1, but they are {dict(self.scales)}.")
        if not self.shown:
            steps = sorted({size: unit for unit, size in reversed(list(self.scales.items()))}.items(), reverse=True)
            object.__setattr__(self, "shown", {unit: size * _ROUNDED for size, unit in steps})
        if not self.examples:
            object.__setattr__(self, "examples", f"20{self.unit}")

    @property
    def unit(self) -> str:
        """Sartor's own."""
        return next(unit for unit, size in self.scales.items() if size == 1.0)

    def parse(self, text: str | float, name: str = "the budget") -> float:
        """Read a positive quantity in Sartor's own unit.

        A quantity without a unit is refused rather than guessed: 20 what? A plain number given
        from Python (not as text) is taken to be in Sartor's own unit already.
        """
        if isinstance(text, (int, float)) and not isinstance(text, bool):
            value = float(text) if abs(text) < _HUGE else math.inf
        else:
            match = _NUMBER.match(str(text))
            if match is None:
                raise BadInput(f"{name} must be a number with a unit, such as {self.examples}, but got {text!r}.")
            number, unit = match.groups()
            if unit not in self.scales:
                known = ", ".join(u for u in self.scales if u)
                problem = "has no unit" if unit == "" else f"has the unknown unit {unit!r}"
                raise BadInput(f"{name} {text!r} {problem}; use one of {known}, for example {self.examples}.")
            value = float(number) * self.scales[unit]
        if not 0 < value < _HUGE:
            raise BadInput(f"{name} must be a finite number greater than zero, but got {str(text)[:40]!r}.")
        return value

    def show(self, value: float, like: float | None = None) -> str:
        """Write a quantity for people, with four significant digits and a fitting unit: its own, or that of `like`."""
        size = abs(value if like is None else like)
        fitting = (unit for unit, least in self.shown.items() if size >= least)
        unit = next(fitting, list(self.shown)[-1]) if size else self.unit
        return f"{value / self.scales[unit]:.4g} {unit}".rstrip()

    def exactly(self, value: float) -> str:
        """The quantity for people where that says all of it, else every digit; without a space."""
        shown = self.show(value).replace(" ", "")
        return shown if self.parse(shown) == value else f"{value!r}{self.unit}"

    def to_json(self) -> str | dict[str, Any]:
        """Its name where Sartor knows it, else all that is needed to read and write amounts."""
        return self.name if KINDS.get(self.name) == self else {"name": self.name, "units": dict(self.scales)}

    @classmethod
    def from_json(cls, data: Any) -> Kind:
        """Read what `to_json` wrote."""
        if isinstance(data, str) and data in KINDS:
            return KINDS[data]
        try:
            return cls(str(data["name"]), {str(k): float(v) for k, v in data["units"].items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"this is not a kind of quantity as Sartor writes it: {data!r}.") from error


TIME = Kind(
    "time", {"us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3}, {"s": 1e4, "ms": 0.1, "us": 0.0}, "20ms or 0.5s"
)
COUNT = Kind(
    "count",
    {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "m": 1e6, "G": 1e9, "g": 1e9, "B": 1e9},
    {"G": _ROUNDED * 1e9, "M": _ROUNDED * 1e6, "K": _ROUNDED * 1e3, "": 0.0},
    "4M or 250000",
)
BYTES = Kind(
    "bytes",
    {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3},
    {"GB": _ROUNDED * 1e9, "MB": _ROUNDED * 1e6, "KB": _ROUNDED * 1e3, "B": 0.0},
    "500KB or 1.2GB",
)
DURATION = Kind("duration", {"s": 1.0, "min": 60.0, "h": 3600.0}, {"h": 7200.0, "min": 120.0, "s": 0.0}, "10min or 90s")
KINDS = {kind.name: kind for kind in (TIME, COUNT, BYTES)}


def parse(text: str | float, kind: Kind | str | Mapping[str, Any], name: str = "the budget") -> float:
    """`Kind.parse`, of a kind as a run's files write it."""
    return (kind if isinstance(kind, Kind) else Kind.from_json(kind)).parse(text, name)


def show(value: float, kind: Kind | str | Mapping[str, Any], like: float | None = None) -> str:
    """`Kind.show`, of a kind as a run's files write it."""
    return (kind if isinstance(kind, Kind) else Kind.from_json(kind)).show(value, like)
