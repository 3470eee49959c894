"""Quadratic functions of an architecture: the currency between methods, costs and solvers.

``f(a) = constant + sum_i linear[i][a_i] + sum_{i<j} pairs[i,j][a_i, a_j]``

With one-hot vectors in place of indices this is BINAS's equation 4 for an accuracy and its
equation 5 for a latency.

Choice 0 may be a *frame* (the side of the images, say): what a pair of other choices adds may then be another in every
frame, ``f(a) + cases[a_0](a)``. In one frame (`Quadratic.at`) all is plain again, so that whoever goes frame by frame
needs no products of three choices.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sartor.core.arch import Arch, Choice, hub
from sartor.core.errors import BadInput

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """An immutable quadratic function over choices with `sizes` options each.

    `errors`, where known, is the standard error of every coefficient, in the same layout. `cases` is empty, or holds
    for every option of choice 0 what is added while it is picked: plain functions of the other choices.
    """

    sums: ClassVar[bool] = True  # else the largest of its coefficients counts, not their sum

    sizes: tuple[int, ...]
    constant: float = 0.0
    linear: Mapping[int, Array] = field(default_factory=dict)
    pairs: Mapping[tuple[int, int], Array] = field(default_factory=dict)
    errors: Quadratic | None = None
    cases: tuple[Quadratic, ...] = ()

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
        if self.errors is not None and self.errors.sizes != self.sizes:
            raise BadInput(f"the errors of a quadratic over {self.sizes} must be of the same sizes.")
        if self.cases and (len(self.cases),) != self.sizes[:1]:
            raise BadInput(f"cases must be one for each option of choice 0 of {self.sizes}, but are {len(self.cases)}.")
        for case in self.cases:
            if (
                case.sizes != self.sizes
                or case.cases
                or case.errors
                or 0 in {*case.linear, *(i for i, _ in case.pairs)}
            ):
                raise BadInput("a case must have the same sizes, terms without choice 0, no errors and no cases.")
        for values in (*linear.values(), *pairs.values()):
            values.flags.writeable = False
        object.__setattr__(self, "constant", float(self.constant))
        object.__setattr__(self, "linear", linear)
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "cases", tuple(self.cases))

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
        for option, case in enumerate(self.cases):
            here = np.flatnonzero(index[:, 0] == option)
            value[here] += case.batch(index[here])
        return value

    def at(self, option: int) -> Quadratic:
        """The same function while choice 0 is at `option`: plain, and without any term of choice 0.

        Its values are those of the whole up to the rounding of another order of sums. Standard errors of coefficients
        that become one add up as those of independent measurements do.
        """
        linear = {i: v for i, v in self.linear.items() if i > 0}
        for (i, j), table in self.pairs.items():
            if i == 0:
                linear[j] = linear[j] + table[option] if j in linear else table[option]
        constant = self.constant + (float(self.linear[0][option]) if 0 in self.linear else 0.0)
        plain = Quadratic(self.sizes, constant, linear, {k: t for k, t in self.pairs.items() if k[0] > 0})
        plain = plain + self.cases[option] if self.cases else plain
        errors = self.errors and self.errors._each(np.square).at(option)._each(np.sqrt)
        return replace(plain, errors=errors)

    def around(self, arch: Arch) -> Quadratic:
        """A plain function that is the same in the frame of `arch`, and at `arch` in every frame: for explanations."""
        if not self.cases:
            return self
        frame, errors = arch.picks[0], self.errors
        case = self.cases[frame]
        jump = Quadratic(self.sizes, 0.0, {0: np.array([other(arch) - case(arch) for other in self.cases])})
        if errors is not None and errors.cases:
            squares = errors._each(np.square)
            errors = (replace(squares, cases=()) + squares.cases[frame])._each(np.sqrt)
        return replace(replace(self, errors=None, cases=()) + case + jump, errors=errors)

    def _each(self, change: Callable[[Array], Array]) -> Quadratic:
        """`change` applied to every coefficient, without the errors."""
        return type(self)(
            self.sizes,
            float(change(np.asarray(self.constant))),
            {i: change(v) for i, v in self.linear.items()},
            {k: change(t) for k, t in self.pairs.items()},
            cases=tuple(case._each(change) for case in self.cases),
        )

    def __add__(self, other: Quadratic) -> Quadratic:
        if self.sizes != other.sizes:
            raise BadInput(f"quadratics must have the same sizes to be added, but have {self.sizes} and {other.sizes}.")
        linear, pairs = dict(self.linear), dict(self.pairs)
        for i, v in other.linear.items():
            linear[i] = linear[i] + v if i in linear else v
        for k, t in other.pairs.items():
            pairs[k] = pairs[k] + t if k in pairs else t
        cases = self.cases or other.cases
        if self.cases and other.cases:
            cases = tuple(a + b for a, b in zip(self.cases, other.cases, strict=True))
        return Quadratic(self.sizes, self.constant + other.constant, linear, pairs, cases=cases)

    def __mul__(self, factor: float) -> Quadratic:
        return self._each(lambda values: values * factor)

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
        if self.cases:
            data["cases"] = [case.to_json() for case in self.cases]
        return data if self.sums else {**data, "largest": True}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Quadratic:
        """Read what `to_json` wrote."""
        try:
            return (Largest if data.get("largest") else Quadratic)(
                tuple(int(n) for n in data["sizes"]),
                float(data["constant"]),
                {int(i): np.asarray(v, np.float64) for i, v in data["linear"].items()},
                {_key(k): np.asarray(t, np.float64) for k, t in data["pairs"].items()},
                cls.from_json(data["errors"]) if data.get("errors") else None,
                tuple(cls.from_json(case) for case in data.get("cases", ())),
            )
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
            raise BadInput(f"this is not a quadratic function as Sartor writes it: {error!r}.") from error


def _key(text: str) -> tuple[int, int]:
    i, j = text.split(",")
    return int(i), int(j)


@final
@dataclass(frozen=True, eq=False)
class Largest(Quadratic):
    """The same coefficients, none below zero, of which the largest that is picked counts: the peak of a chain, say."""

    sums: ClassVar[bool] = False

    def batch(self, picks: ArrayLike) -> Array:
        """The values at many architectures."""
        index = np.asarray(picks, np.int64)
        value = np.full(len(index), self.constant)
        for i, vector in self.linear.items():
            np.maximum(value, vector[index[:, i]], out=value)
        for (i, j), table in self.pairs.items():
            np.maximum(value, table[index[:, i], index[:, j]], out=value)
        for option, case in enumerate(self.cases):
            here = np.flatnonzero(index[:, 0] == option)
            value[here] = np.maximum(value[here], case.batch(index[here]))
        return value

    def over(self, high: float) -> Quadratic:
        """A sum that is at most `high` exactly where the largest is: of the coefficients above it."""
        kept = self._each(lambda values: np.where(values > high, values, 0.0))
        cases = tuple(Quadratic(c.sizes, c.constant, c.linear, c.pairs) for c in kept.cases)
        return Quadratic(self.sizes, kept.constant, kept.linear, kept.pairs, cases=cases)

    @property
    def steps(self) -> list[float]:
        """All the values that it can have, in order."""
        terms = [np.ravel(self.constant), *(t.ravel() for t in (*self.linear.values(), *self.pairs.values()))]
        cases = (case.steps for case in self.cases if isinstance(case, Largest))
        return sorted({*np.concatenate(terms).tolist(), *(v for steps in cases for v in steps)})


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


def inside(limits: Sequence[Limit], arch: Arch, amounts: Mapping[str, float]) -> bool:
    """Whether a network meets limits: of some costs by these amounts, of the others by its forms."""
    return all(amounts[x.name] <= x.high if x.name in amounts else x.holds(arch) for x in limits)


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


def counted_once(score: Quadratic, choices: Sequence[Choice]) -> Quadratic:
    """A score of equation 3's contributions (BINAS) with those of the depths taken out of their blocks'.

    A block is measured at a depth that runs it, and compared with E[Acc]: what that depth adds is in the block's
    number, too. Between networks of one depth nothing changes; between depths it then counts once, as it was measured.
    Errors stay: a number that all of a block's options have in common cancels between them. A step of depth, from which
    the deeper depth's own number cancels as well, has an error on the safe side: up to 1.5 times its spread.
    """
    linear, pairs = dict(score.linear), dict(score.pairs)
    for i, choice in enumerate(choices):
        for other, allowed in choice.needs:
            own, key = score.linear[other][allowed[0]], (min(i, other), max(i, other))
            if i in linear:
                linear[i] = linear[i] - own
            else:
                table = pairs[key].copy()
                (table if other < i else table.T)[list(allowed)] -= own
                pairs[key] = table
    return Quadratic(score.sizes, score.constant, linear, pairs, errors=score.errors)


Term = tuple[tuple[tuple[int, int], ...], float]


def additive(
    sizes: Sequence[int], terms: Sequence[Term], join: Callable[[float, float], float] = operator.add
) -> Quadratic:
    """Sum of prices, each due when all of its ``(choice, option)`` conditions are picked; their `Largest` by `max`.

    A price has at most two conditions, or three where one of them is on choice 0, the frame: it then belongs to a case.
    """
    constant = 0.0
    framed: dict[int, list[Term]] = {}
    linear: dict[int, Array] = {}
    pairs: dict[tuple[int, int], Array] = {}
    for when, price in terms:
        if len(when) == 0:
            constant = join(constant, price)
        elif len(when) == 1:
            ((i, a),) = when
            vector = linear.setdefault(i, np.zeros(sizes[i]))
            vector[a] = join(vector[a], price)
        elif len(when) == 2:
            (i, a), (j, b) = sorted(when)
            table = pairs.setdefault((i, j), np.zeros((sizes[i], sizes[j])))
            table[a, b] = join(table[a, b], price)
        elif len(when) == 3 and min(when)[0] == 0:
            (_, frame), *others = sorted(when)
            framed.setdefault(frame, []).append((tuple(others), price))
        else:
            raise BadInput(f"a price may depend on at most two choices, or on choice 0 and two others, but got {when}.")
    cases = tuple(additive(sizes, framed.get(a, ()), join) for a in range(sizes[0])) if framed else ()
    made = Quadratic if join is operator.add else Largest
    return made(tuple(sizes), constant, linear, pairs, cases=cases)
