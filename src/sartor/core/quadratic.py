"""Quadratic functions of an architecture: the currency between methods, costs and solvers.

``f(a) = constant + sum_i linear[i][a_i] + sum_{i<j} pairs[i,j][a_i, a_j]``

With one-hot vectors in place of indices this is BINAS's equation 4 for an accuracy and its
equation 5 for a latency.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sartor.core.arch import Arch, Choice, hub
from sartor.core.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """An immutable quadratic function over choices with `sizes` options each.

    `errors`, where known, is the standard error of every coefficient, in the same layout.
    """

    sizes: tuple[int, ...]
    constant: float = 0.0
    linear: Mapping[int, Array] = field(default_factory=dict)
    pairs: Mapping[tuple[int, int], Array] = field(default_factory=dict)
    errors: Quadratic | None = None

    def __post_init__(self) -> None:
        linear = {int(i): np.array(v, np.float64) for i, v in self.linear.items()}
        pairs: dict[tuple[int, int], Array] = {}
        for (i, j), matrix in self.pairs.items():
            table = np.array(matrix, np.float64)
            key, table = ((i, j), table) if i < j else ((j, i), table.T)
            pairs[key] = pairs[key] + table if key in pairs else table
        for i, vector in linear.items():
            if not 0 <= i < len(self.sizes) or vector.shape != (self.sizes[i],):
                raise BadInput(f"linear term {i} does not fit sizes {self.sizes}: its shape is {vector.shape}.")
        for (i, j), table in pairs.items():
            if not 0 <= i < j < len(self.sizes) or table.shape != (self.sizes[i], self.sizes[j]):
                raise BadInput(f"pair term {i, j} does not fit sizes {self.sizes}: its shape is {table.shape}.")
        tables: list[Array] = [np.asarray(self.constant, np.float64), *linear.values(), *pairs.values()]
        if not all(np.isfinite(t).all() for t in tables):
            raise BadInput("every coefficient of a quadratic must be a finite number.")
        for values in (*linear.values(), *pairs.values()):
            values.flags.writeable = False
        object.__setattr__(self, "constant", float(self.constant))
        object.__setattr__(self, "linear", linear)
        object.__setattr__(self, "pairs", pairs)

    def __call__(self, arch: Arch) -> float:
        """The value at one architecture."""
        return float(self.batch(np.asarray(arch.picks)[None])[0])

    def batch(self, picks: ArrayLike) -> Array:
        """The values at many architectures, given as an (n, choices) integer array."""
        index = np.asarray(picks, np.int64)
        value = np.full(len(index), self.constant)
        for i, vector in self.linear.items():
            value += vector[index[:, i]]
        for (i, j), table in self.pairs.items():
            value += table[index[:, i], index[:, j]]
        return value

    def __add__(self, other: Quadratic) -> Quadratic:
        if self.sizes != other.sizes:
            raise BadInput(f"quadratics must have the same sizes to be added, but have {self.sizes} and {other.sizes}.")
        linear, pairs = dict(self.linear), dict(self.pairs)
        for i, v in other.linear.items():
            linear[i] = linear[i] + v if i in linear else v
        for k, t in other.pairs.items():
            pairs[k] = pairs[k] + t if k in pairs else t
        return Quadratic(self.sizes, self.constant + other.constant, linear, pairs)

    def __mul__(self, factor: float) -> Quadratic:
        return Quadratic(
            self.sizes,
            self.constant * factor,
            {i: v * factor for i, v in self.linear.items()},
            {k: t * factor for k, t in self.pairs.items()},
        )

    __rmul__ = __mul__

    def to_json(self) -> dict[str, Any]:
        """Lists and numbers only; `from_json` reads it back bit for bit."""
        data: dict[str, Any] = {
            "sizes": list(self.sizes),
            "constant": self.constant,
            "linear": {str(i): v.tolist() for i, v in sorted(self.linear.items())},
            "pairs": {f"{i},{j}": t.tolist() for (i, j), t in sorted(self.pairs.items())},
        }
        if self.errors is not None:
            data["errors"] = self.errors.to_json()
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Quadratic:
        """Read what `to_json` wrote."""
        try:
            return cls(
                tuple(int(n) for n in data["sizes"]),
                float(data["constant"]),
                {int(i): np.asarray(v, np.float64) for i, v in data["linear"].items()},
                {_key(k): np.asarray(t, np.float64) for k, t in data["pairs"].items()},
                cls.from_json(data["errors"]) if data.get("errors") else None,
            )
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
            raise BadInput(f"this is not a quadratic function as Sartor writes it: {error!r}.") from error


def _key(text: str) -> tuple[int, int]:
    i, j = text.split(",")
    return int(i), int(j)


@dataclass(frozen=True, eq=False)
class Limit:
    """A budget or a structural rule: ``low <= form(arch) <= high``."""

    name: str
    form: Quadratic
    high: float = math.inf
    low: float = -math.inf

    def holds(self, arch: Arch, slack: float = 1e-9) -> bool:
        """Whether `arch` meets the limit, up to rounding."""
        value = self.form(arch)
        room = slack * max(1.0, abs(value))
        return self.low - room <= value <= self.high + room


def while_active(choices: Sequence[Choice], rows: Mapping[int, Array], constant: float = 0.0) -> Quadratic:
    """`constant` and, for every choice in `rows`, what its options add while the choice is active.

    Without a hub that is a linear term; with one a pair term, zero where the hub leaves the choice out.
    """
    linear: dict[int, Array] = {}
    pairs: dict[tuple[int, int], Array] = {}
    for i, row in rows.items():
        found = hub(choices, i)
        if found is None:
            linear[i] = row
        else:
            pairs[found[0], i] = np.zeros((len(choices[found[0]].options), len(row)))
            pairs[found[0], i][list(found[1])] = row
    return Quadratic(tuple(len(c.options) for c in choices), constant, linear, pairs)


def additive(sizes: Sequence[int], terms: Sequence[tuple[tuple[tuple[int, int], ...], float]]) -> Quadratic:
    """Sum of prices, each due when all of its ``(choice, option)`` conditions (at most two) are picked."""
    constant = 0.0
    linear: dict[int, Array] = {}
    pairs: dict[tuple[int, int], Array] = {}
    for when, price in terms:
        if len(when) == 0:
            constant += price
        elif len(when) == 1:
            ((i, a),) = when
            linear.setdefault(i, np.zeros(sizes[i]))[a] += price
        elif len(when) == 2:
            (i, a), (j, b) = sorted(when)
            pairs.setdefault((i, j), np.zeros((sizes[i], sizes[j])))[a, b] += price
        else:
            raise BadInput(f"a price may depend on at most two choices, but got {when}.")
    return Quadratic(tuple(sizes), constant, linear, pairs)
