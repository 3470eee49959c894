"""Exact Pareto sets of (cost, score) points: low cost and high score are good.

Sums are compared as the floating-point numbers they are: nothing is rounded, binned or merged.
Of points that are equal in both, the one with the lowest index stays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from sartor.core.quadratic import Array
from sartor.solvers.base import NotSeparable

Index = NDArray[np.int64]

BINS = 4096
FEW = 512  # below this many points the sort alone is faster than the sieve before it
BLOCK = 1 << 20  # sums held in memory at a time
MOST = 400_000_000  # sums formed for one merge; some ten seconds of work


def pareto(cost: Array, score: Array) -> Index:
    """The indices of the undominated points, in increasing cost and score; points of infinite cost do not exist."""
    if len(cost) <= FEW:
        return _sorted(cost, score, np.arange(len(cost)))
    sieve = _Sieve(cost.min(), cost[cost < np.inf].max(initial=-np.inf))
    return _sorted(cost, score, sieve(cost, score))


def _sorted(cost: Array, score: Array, among: Index) -> Index:
    among = among[cost[among] < np.inf]
    order = among[np.argsort(cost[among], kind="stable")]
    scores = score[order]
    best = np.maximum.accumulate(scores)
    order = order[np.concatenate([scores[:1] > -np.inf, scores[1:] > best[:-1]])]
    # Of several points at one cost each beats the one before it, so that the last is the best.
    costs = cost[order]
    return np.asarray(order[np.concatenate([costs[1:] > costs[:-1], costs[:1] < np.inf])])


class _Sieve:
    """Drops most dominated points in linear time, so that few are left to sort.

    Costs fall into equal bins. A point of a lower bin costs strictly less, because the bin's number
    is a non-decreasing function of the cost even in floating point; where it scores as much, the
    point at hand is dominated for certain. Undominated points always pass.
    """

    def __init__(self, low: float, high: float) -> None:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            scale = (BINS - 1) / (np.float64(high) - low)
        self.low, self.scale = low, float(scale) if 0 < scale < np.inf else 0.0
        self.best = np.full(BINS + 1, -np.inf)  # shifted by one: best[b] knows the bins below b after the scan

    def __call__(self, cost: Array, score: Array) -> Index:
        alive = np.flatnonzero(cost < np.inf) if np.isinf(cost).any() else None
        if alive is not None:
            cost, score = cost[alive], score[alive]
        bins = ((cost - self.low) * self.scale).astype(np.int32)
        np.maximum.at(self.best, bins + 1, score)
        keep = np.flatnonzero(score > np.maximum.accumulate(self.best)[bins])
        return keep if alive is None else alive[keep]


def few_enough(left: int, right: int) -> None:
    """Refuse to form more sums than can be formed in some seconds."""
    if left * right > MOST:
        raise NotSeparable(
            f"the complete frontier is too large: two parts of it have {left} and {right} points. "
            "Use the solver milp, which finds the optimum of one budget."
        )


class Front(ABC):
    """A Pareto set of partial architectures and the way back to their picks."""

    cost: Array
    score: Array

    @abstractmethod
    def write(self, picks: Index, rows: Index, points: Index) -> None:
        """Write this front's own choices of `points` into `rows` of the (n, choices) array `picks`."""

    def __len__(self) -> int:
        return len(self.cost)


@final
class Nothing(Front):
    """The front of no choice at all, the neutral element of `add`; with no points that of what cannot be."""

    def __init__(self, points: int = 1) -> None:
        self.cost = self.score = np.zeros(points)

    def write(self, picks: Index, rows: Index, points: Index) -> None:
        """There is nothing to write."""


@final
class Sum(Front):
    """The Pareto set of all sums of a point of `left` and a point of `right` that do not interact."""

    def __init__(self, left: Front, right: Front) -> None:
        few_enough(len(left), len(right))
        self.left, self.right = left, right
        cost, score, flat = _sums(left, right)
        keep = _sorted(cost, score, np.arange(len(cost)))
        self.cost, self.score = cost[keep], score[keep]
        self.at = flat[keep]

    def write(self, picks: Index, rows: Index, points: Index) -> None:
        """Both parts write their own choices."""
        at_left, at_right = np.divmod(self.at[points], len(self.right))
        self.left.write(picks, rows, at_left)
        self.right.write(picks, rows, at_right)


def _sums(left: Front, right: Front) -> tuple[Array, Array, Index]:
    """Costs, scores and flat positions of a superset of the undominated sums, in blocks to bound the memory."""
    width = max(1, len(right))
    if len(left) * width <= FEW:
        cost = np.add.outer(left.cost, right.cost).ravel()
        return cost, np.add.outer(left.score, right.score).ravel(), np.arange(len(cost))
    sieve = _Sieve(left.cost[0] + right.cost[0], left.cost[-1] + right.cost[-1])
    parts: list[tuple[Any, Any, Any]] = []
    step = max(1, BLOCK // width)
    for start in range(0, len(left), step):
        cost = np.add.outer(left.cost[start : start + step], right.cost).ravel()
        score = np.add.outer(left.score[start : start + step], right.score).ravel()
        keep = sieve(cost, score)
        parts.append((cost[keep], score[keep], keep + start * width))
    cost, score, flat = (np.concatenate(column) for column in zip(*parts, strict=True))
    return cost, score, flat


def add(left: Front, right: Front) -> Front:
    """The front of two parts that do not interact."""
    if isinstance(left, Nothing):
        return right
    return left if isinstance(right, Nothing) else Sum(left, right)


def total(fronts: list[Front]) -> Front:
    """The front of many parts: the two shortest are summed first, so that the products stay small."""
    queue = fronts or [Nothing()]
    while len(queue) > 1:
        queue = sorted(queue, key=len)  # stable, so that the order of the sums is the same every time
        queue = [*queue[2:], add(queue[0], queue[1])]
    return queue[0]
