"""Escaped HTML and numbers written for people: what every other part of the report is made of."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sartor.core.units import Kind

_FLAGS = ("latency", "params", "macs", "memory")  # budgets with an option of their own


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


def amount(value: float, kind: Kind, digits: int = 4) -> str:
    """A quantity with its unit, as `sartor.core.units` writes it."""
    return kind.show(float(f"{value:.{digits}g}")).replace(" us", " µs").replace("-", "−")


@dataclass(frozen=True)
class Unit:
    """One unit for a whole axis or column, so that its numbers compare at a glance: 0.05, 0.1 and never 50 µs."""

    name: str
    size: float
    places: int

    @classmethod
    def of(cls, values: Iterable[float], kind: Kind) -> Unit:
        """The unit in which the largest of the values reads best, with places for three digits of it."""
        most = max((abs(v) for v in values), default=0.0)
        name = next((unit for unit, least in kind.shown.items() if most >= least), list(kind.shown)[-1])
        size = kind.scales[name]
        return cls(name.replace("us", "µs"), size, max(0, 2 - math.floor(math.log10(most / size))) if most else 0)

    def plain(self, value: float) -> str:
        """The number alone, for axes whose title names the unit."""
        return number(value / self.size)

    def show(self, value: float) -> str:
        """The number with the unit."""
        return f"{self.plain(value)} {self.name}".rstrip()

    def difference(self, value: float) -> str:
        """A signed number with the unit."""
        return f"{signed(value / self.size, self.places)} {self.name}".rstrip()


def option(name: str, value: float, kind: Kind) -> str:
    """A budget as it is typed on the command line: ``--latency 0.7ms``, ``--budget energy=3mJ``; nothing is lost."""
    return f"{flag(name)}{kind.exactly(value)}"


def flag(name: str) -> str:
    """What stands before a budget's amount on the command line: an option of its own, or that of all others."""
    cost, at, target = name.partition("@")
    if cost not in _FLAGS:
        return f"--budget {name}="
    return f"--{cost} {target}=" if at else f"--{cost} "


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
