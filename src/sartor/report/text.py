"""Escaped HTML and numbers written for people: what every other part of the report is made of."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sartor.core import units

# Name, size in Sartor's own unit, and the least value for which it is used.
_UNITS = {
    "time": (("s", 1e3, 1e4), ("ms", 1.0, 0.1), ("µs", 1e-3, 0.0)),
    "bytes": (("GB", 1e9, 1e9), ("MB", 1e6, 1e6), ("KB", 1e3, 1e3), ("B", 1.0, 0.0)),
    "count": (("G", 1e9, 1e9), ("M", 1e6, 1e6), ("K", 1e3, 1e3), ("", 1.0, 0.0)),
}


class Html(str):
    """Text that is HTML already: jinja2's autoescaping leaves it alone. Whoever makes one has escaped its contents."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def esc(value: Any) -> str:
    """Any value as text that is safe between tags and inside a quoted attribute."""
    return html.escape(str(value), quote=True)


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, without an exponent where that is readable."""
    text = f"{value:.{digits}g}"
    return f"{value:,.0f}".replace(",", " ") if "e" in text and 1 <= abs(value) < 1e7 else text.replace("-", "−")


def signed(value: float, places: int = 2) -> str:
    """A difference with its sign, a true minus, and no sign for what rounds to nothing."""
    text = f"{value:+.{places}f}"
    return text[1:] if float(text) == 0 else text.replace("-", "−")


def amount(value: float, kind: str, digits: int = 4) -> str:
    """A quantity with its unit, as `sartor.core.units` writes it."""
    return units.show(float(f"{value:.{digits}g}"), kind).replace("us", "µs").replace("-", "−")


@dataclass(frozen=True)
class Unit:
    """One unit for a whole axis or column, so that its numbers compare at a glance: 0.05, 0.1 and never 50 µs."""

    name: str
    size: float
    places: int

    @classmethod
    def of(cls, values: Iterable[float], kind: str) -> Unit:
        """The unit in which the largest of the values reads best, with places for three digits of it."""
        most = max((abs(v) for v in values), default=0.0)
        name, size = next((n, s) for n, s, least in _UNITS.get(kind, _UNITS["count"]) if most >= least)
        return cls(name, size, max(0, 2 - math.floor(math.log10(most / size))) if most else 0)

    def plain(self, value: float) -> str:
        """The number alone, for axes whose title names the unit."""
        return number(value / self.size)

    def show(self, value: float) -> str:
        """The number with the unit."""
        return f"{self.plain(value)} {self.name}".rstrip()

    def difference(self, value: float) -> str:
        """A signed number with the unit."""
        return f"{signed(value / self.size, self.places)} {self.name}".rstrip()


def typed(value: float, kind: str) -> str:
    """A quantity as it is typed on the command line: ``0.7ms``, ``4M``; nothing is lost by rounding."""
    for digits in (4, 6, 9, 17):
        text = f"{value:.{digits}g}"
        if float(text) == value:
            break
    if kind == "count":
        for scale, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
            short = f"{value / scale:.6g}"
            if value >= scale and "e" not in short and float(short) * scale == value:
                return short + suffix
    return text + {"time": "ms", "bytes": "B"}.get(kind, "")


def seconds(value: float) -> str:
    """A duration: ``0.3 s``, ``54.7 s``, ``12 min 5 s``, ``3 h 20 min``."""
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def percent_suffix(unit: str) -> str:
    """What follows a value of the score: a percent sign where the unit is one."""
    return " %" if unit.startswith("%") else ""


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` cases (Wilson's, good near 0 and 1 too), both in 0..1."""
    z = 1.959964
    centre = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    whole = 1 + z * z / count
    return max(0.0, (centre - spread) / whole), min(1.0, (centre + spread) / whole)
