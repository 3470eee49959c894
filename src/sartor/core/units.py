"""Quantities with explicit units: ``20ms``, ``4M``, ``1.2GB``.

Inside Sartor every number of a kind has one unit: latency in milliseconds, counts (parameters,
multiply-accumulates) in ones, memory in bytes. Text is read and written here and nowhere else.
"""

from __future__ import annotations

import math
import re

from sartor.core.errors import BadInput

_NUMBER = re.compile(r"^\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([A-Za-zµμ%]*)\s*$")

TIME = {"us": 1e-3, "µs": 1e-3, "μs": 1e-3, "ms": 1.0, "s": 1e3}
COUNT = {"": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "m": 1e6, "G": 1e9, "g": 1e9, "B": 1e9}
BYTES = {
    "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3,
}  # fmt: skip
UNIT = {"time": "ms", "count": "", "bytes": "B"}  # Sartor's own unit of every kind
_TABLES = {"time": TIME, "count": COUNT, "bytes": BYTES}
_HUGE = 1e300
_EXAMPLES = {"time": "20ms or 0.5s", "count": "4M or 250000", "bytes": "500KB or 1.2GB"}


def parse(text: str | float, kind: str, name: str = "the budget") -> float:
    """Read a positive quantity of `kind` (``time``, ``count`` or ``bytes``) in Sartor's own unit.

    A time or a size without a unit is refused rather than guessed: 20 what? A plain number given
    from Python (not as text) is taken to be in Sartor's own unit already.
    """
    table = _TABLES[kind]
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        value = float(text) if abs(text) < _HUGE else math.inf
    else:
        match = _NUMBER.match(str(text))
        if match is None:
            raise BadInput(f"{name} must be a number with a unit, such as {_EXAMPLES[kind]}, but got {text!r}.")
        number, unit = match.groups()
        if unit not in table:
            known = ", ".join(u for u in table if u)
            problem = "has no unit" if unit == "" else f"has the unknown unit {unit!r}"
            raise BadInput(f"{name} {text!r} {problem}; use one of {known}, for example {_EXAMPLES[kind]}.")
        value = float(number) * table[unit]
    if not 0 < value < _HUGE:
        raise BadInput(f"{name} must be a finite number greater than zero, but got {str(text)[:40]!r}.")
    return value


def show(value: float, kind: str, like: float | None = None) -> str:
    """Write a quantity for people, with four significant digits and a fitting unit: its own, or that of `like`."""
    size = abs(value if like is None else like)
    if kind == "time":
        scale, unit = (1.0, "ms") if 0.1 <= size < 1e4 or size == 0 else (1e-3, "s") if size >= 1e4 else (1e3, "us")
        return f"{value * scale:.4g} {unit}"
    steps = ((1e9, "G"), (1e6, "M"), (1e3, "K"))
    suffix = "B" if kind == "bytes" else ""
    for scale, prefix in steps:
        if size >= scale * 0.99995:  # what rounds to 1000 of a unit is 1 of the next
            return f"{value / scale:.4g} {prefix}{suffix}"
    return f"{value:.4g}{' B' if suffix else ''}"
