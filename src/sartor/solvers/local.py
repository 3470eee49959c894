"""What the heuristic solvers share: feasible starts, ways back into the limits, and single-change improvement.

All of it works on (n, choices) arrays of picks and ends after a number of steps known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sartor.core.arch import Arch
from sartor.core.errors import Infeasible
from sartor.core.quadratic import Array, Limit, Quadratic
from sartor.solvers.base import Problem, within
from sartor.solvers.infeasible import cannot

Index = NDArray[np.int64]
Score = Callable[[Index], Array]  # (n, choices) picks -> (n,) scores


def allowed(limits: Sequence[Limit], picks: Index) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows meet every limit."""
    good = np.ones(len(picks), bool)
    for limit in limits:
        good &= within(limit, limit.form.batch(picks))
    return good


def feasible_start(sizes: Sequence[int], limits: Sequence[Limit]) -> Index:
    """A network that meets every limit: the cheapest one under the first budget. Raises Infeasible with a reason."""
    from sartor.solvers.milp import Milp, cheapest  # which improves what it knows by the changes below

    if not limits:
        return np.zeros(len(sizes), np.int64)
    budget = next((limit for limit in limits if limit.low == -np.inf), limits[0])
    others = [limit for limit in limits if limit is not budget]
    try:
        least = cheapest(budget.form, others)
    except Infeasible:
        least = None
    if least is not None and all(limit.holds(least.arch) for limit in limits):
        return np.asarray(least.arch.picks, np.int64)
    if least is not None and not others and budget.low == -np.inf and least.bound > budget.high:
        raise cannot(budget, least.value)
    found = Milp().solve(Problem(Quadratic(tuple(sizes)), tuple(limits)))  # finds one, or says what clashes
    return np.asarray(found.arch.picks, np.int64)


def uniform(sizes: Sequence[int], count: int, rng: np.random.Generator) -> Index:
    """`count` networks with a uniformly random option for every choice."""
    return np.stack([rng.integers(n, size=count) for n in sizes], axis=1) if len(sizes) else np.zeros((count, 0), int)


def retreat(picks: Index, anchor: Index, limits: Sequence[Limit], rng: np.random.Generator) -> Index:
    """Rows outside the limits go back to `anchor` (feasible; one row, or a row each), a random choice at a time.

    At the latest when all choices have gone back the row is feasible: no redrawing, no waiting.
    """
    picks, anchor = picks.copy(), np.broadcast_to(anchor, picks.shape)
    todo = np.flatnonzero(~allowed(limits, picks))
    order = rng.permuted(np.tile(np.arange(picks.shape[1]), (len(todo), 1)), axis=1)
    for step in range(picks.shape[1]):
        if not len(todo):
            break
        column = order[:, step]
        changed = picks[todo, column] != anchor[todo, column]
        picks[todo, column] = anchor[todo, column]
        still = np.ones(len(todo), bool)
        still[changed] = ~allowed(limits, picks[todo[changed]])
        todo, order = todo[still], order[still]
    return picks


def neighbours(picks: Index, sizes: Sequence[int]) -> Index:
    """Every network that differs from `picks` in exactly one choice."""
    changes = [(i, a) for i, n in enumerate(sizes) for a in range(n) if a != picks[i]]
    table = np.tile(picks, (len(changes), 1))
    if changes:
        columns, options = np.array(changes).T
        table[np.arange(len(changes)), columns] = options
    return table


def polish(score: Score, sizes: Sequence[int], limits: Sequence[Limit], picks: Index, most: int = 200) -> Index:
    """Take the best single change inside the limits, again and again, until none helps."""
    value = float(score(picks[None])[0])
    for _ in range(most):
        table = neighbours(picks, sizes)
        table = table[allowed(limits, table)]
        if not len(table):
            break
        values = score(table)
        best = int(np.argmax(values))
        if not values[best] > value:
            break
        picks, value = table[best], float(values[best])
    return picks


def arch_of(picks: Index) -> Arch:
    """The row as an architecture."""
    return Arch(tuple(int(p) for p in picks))
