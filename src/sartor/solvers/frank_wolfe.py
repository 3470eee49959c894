"""Block-coordinate Frank-Wolfe with line search (BINAS, algorithms 1, 3 and 4).

The choices fall into blocks (alpha: the leaves, beta: the hubs) such that every limit is linear in
each block while the others stand still. A step maximises the score's linear model over one block,

``s = argmax_s  grad_block f(zeta) . s``   subject to the limits at the present other blocks,

a relaxed multiple-choice knapsack solved at a vertex, and moves to ``(1 - gamma) zeta + gamma s``.
Where the score is linear in the block too, the line search gives ``gamma = 1`` (theorem F.2), the
value never falls and each block has at most one fractional choice with two options (theorem 3.3).

What the paper leaves open: the limits couple the blocks, so this finds a partial optimum, not the
global one (its theorem 3.2 assumes a product of domains). Hence the many starts; hence, after the
fractional choices are rounded into the limits, single changes as long as one helps.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from sartor.core.config import check
from sartor.core.quadratic import Array, Limit
from sartor.solvers.base import Problem, Solution, Solver, certify
from sartor.solvers.frames import best_of_frames, framed
from sartor.solvers.knapsack import greedy, simplex
from sartor.solvers.local import Index, Score, allowed, arch_of, feasible_start, polish, retreat, uniform
from sartor.solvers.relaxed import Groups, Relaxed, colours

Objective = Callable[[Array], tuple[float, Array]]  # zeta -> value and gradient
ROUNDINGS = 64
HALVINGS = 8


@dataclass(frozen=True, eq=False)
class Walk:
    """The iterates of one start, those that moved only: points zeta and their values, in order."""

    points: tuple[Array, ...]
    values: tuple[float, ...]
    blocks: tuple[tuple[int, ...], ...]


def frank_wolfe(
    objective: Objective,
    sizes: Sequence[int],
    limits: Sequence[Limit],
    start: Index,
    rng: np.random.Generator,
    *,
    blocks: Sequence[Sequence[int]] | None = None,
    multilinear: bool = False,
    iterations: int = 2000,
    probability: float = 0.5,
) -> Walk:
    """One ascent of the relaxed problem from the feasible architecture `start`.

    `objective` is any differentiable function of zeta, for example an MLP predictor. `multilinear`
    says that it is linear in each block, so that every step goes all the way. The block is alpha
    with `probability`, else beta; of three blocks or more each is as likely. The walk ends after
    `iterations`, or when no block has anything to gain.
    """
    groups = Groups(sizes)
    parts = [tuple(b) for b in (blocks if blocks is not None else colours(len(sizes), [x.form for x in limits]))]
    bounded = [x for x in limits if x.high < math.inf or x.low > -math.inf]
    forms = [Relaxed(limit.form, groups) for limit in bounded]
    zeta = groups.one_hot(start)
    value, gradient = objective(zeta)
    points, values = [zeta], [value]
    idle: set[int] = set()  # blocks tried in vain since the last move
    for _ in range(iterations):
        if len(idle) == len(parts):
            break
        k = int(rng.random() >= probability) if len(parts) == 2 else int(rng.integers(len(parts)))
        if k in idle:
            continue
        target = _vertex(groups, parts[k], zeta, gradient, bounded, forms)
        step = None if target is None else _line_search(objective, zeta, target, value, gradient, multilinear)
        if step is None:
            idle.add(k)
            continue
        zeta, value, gradient = step
        points.append(zeta)
        values.append(value)
        idle = {k} if multilinear else set()
    return Walk(tuple(points), tuple(values), tuple(parts))


def _vertex(
    groups: Groups,
    block: Sequence[int],
    zeta: Array,
    gradient: Array,
    limits: Sequence[Limit],
    forms: Sequence[Relaxed],
) -> Array | None:
    """Equations 10 and 11: the best vertex for one block, everything else as it is."""
    places = [groups.of(i) for i in block]
    gains = [gradient[p] for p in places]
    rows, low, high = [], [], []
    for limit, form in zip(limits, forms, strict=True):
        value, slope = form(zeta)
        rest = value - sum(float(slope[p] @ zeta[p]) for p in places)
        rows.append([slope[p] for p in places])
        low.append(limit.low - rest)
        high.append(limit.high - rest)
    if not rows:
        found = greedy(gains, [np.zeros(len(g)) for g in gains], 0.0)
    elif len(rows) == 1 and low[0] == -math.inf:
        found = greedy(gains, rows[0], high[0])
    else:
        found = simplex(gains, rows, low, high)
    if found is None:
        return None
    target = zeta.copy()
    for p, vector in zip(places, found, strict=True):
        target[p] = vector
    return target


def _line_search(
    objective: Objective, zeta: Array, target: Array, value: float, gradient: Array, multilinear: bool
) -> tuple[Array, float, Array] | None:
    """The best point between zeta and the target, or None where nothing is gained.

    Exact for a quadratic: three numbers fix the parabola along the segment. Other functions fall
    back on halving the step until it climbs.
    """
    least = 1e-12 * max(1.0, abs(value))
    slope = float(gradient @ (target - zeta))
    if slope <= least:
        return None
    end, at_end = objective(target)
    if multilinear:
        return (target, end, at_end) if end > value + least else None
    bend = end - value - slope
    gammas = [min(1.0, -0.5 * slope / bend)] if bend < 0 else []
    best = (target, end, at_end) if end > value + least else None
    for gamma in [*gammas, *(0.5**n for n in range(1, HALVINGS))]:
        point = zeta + gamma * (target - zeta)
        here, at_here = objective(point)
        if here > (value + least if best is None else best[1]):
            best = (point, here, at_here)
        if best is not None:
            break
    return best


def project(
    score: Score, groups: Groups, limits: Sequence[Limit], zeta: Array, anchor: Index, rng: np.random.Generator
) -> Index:
    """The best architecture near zeta inside the limits.

    The few ways to round at most two fractional choices are all tried. From a point with many, the
    most probable architecture and draws from zeta are. What is outside the limits retreats to
    `anchor`, which is inside.
    """
    support = groups.support(zeta)
    if math.prod(len(s) for s in support) <= ROUNDINGS:
        near = np.array(list(itertools.product(*support)), np.int64).reshape(-1, len(support))
    else:
        draws = [rng.choice(n, ROUNDINGS, p=zeta[groups.of(i)]) for i, n in enumerate(groups.sizes)]
        near = np.concatenate([groups.argmax(zeta)[None], np.stack(draws, 1)])
    inside = near[allowed(limits, near)]
    if not len(inside):
        inside = retreat(near, anchor, limits, rng)
    return np.asarray(inside[int(np.argmax(score(inside)))])


def search(
    objective: Objective,
    score: Score,
    sizes: Sequence[int],
    limits: Sequence[Limit],
    rng: np.random.Generator,
    *,
    starts: int = 64,
    climb: bool = True,
    blocks: Sequence[Sequence[int]] | None = None,
    multilinear: bool = False,
    iterations: int = 2000,
    probability: float = 0.5,
) -> tuple[Index, list[Walk]]:
    """Many walks, each rounded into the limits (and, with `climb`, improved by single changes): the best of all.

    `score` values whole architectures, `objective` relaxed ones; at vertices they are the same.
    The first walk starts from the cheapest network, the others from random ones inside the limits.
    """
    groups = Groups(sizes)
    anchor = feasible_start(sizes, limits)
    begin = np.concatenate([anchor[None], retreat(uniform(sizes, starts - 1, rng), anchor, limits, rng)])
    walks, found = [], []
    for start in begin:
        walk = frank_wolfe(
            objective, sizes, limits, start, rng,
            blocks=blocks, multilinear=multilinear, iterations=iterations, probability=probability,
        )  # fmt: skip
        walks.append(walk)
        picks = project(score, groups, limits, walk.points[-1], start, rng)
        found.append(polish(score, sizes, limits, picks) if climb else picks)
    table = np.stack(found)
    return table[int(np.argmax(score(table)))], walks


@final
@dataclass(frozen=True, kw_only=True)
class FrankWolfe(Solver):
    """Block-coordinate Frank-Wolfe from many starts, rounded into the limits (BINAS, algorithm 1); a heuristic.

    One budget is solved by the greedy knapsack; several limits, or two-sided ones, by HiGHS's
    simplex. Scores whose interactions with the limits' are not bipartite take line-search steps.
    """

    exact: ClassVar[bool] = False

    starts: int = 64
    iterations: int = 2000
    probability: float = 0.5
    climb: bool = True  # improve the rounded network by single changes
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, starts=">= 1", iterations=">= 1", probability="> 0 < 1")

    def solve(self, problem: Problem) -> Solution:
        """The best of all starts; its bound is known only where nothing interacts."""
        if framed(problem):
            feasible_start(problem.sizes, problem.limits)  # says what clashes where no frame has any
            best = best_of_frames(problem, lambda part, left, best: self.solve(part))
            assert best is not None
            return best
        begin = time.perf_counter()
        picks, walks = self.search(problem)
        alone = len(walks[0].blocks) == 1 and not any(t.any() for t in problem.score.pairs.values())
        # Nothing interacts: one linear program over all choices, whose value no architecture exceeds.
        bound = max(walk.values[-1] for walk in walks) if alone else math.inf
        return certify(problem, arch_of(picks), bound, "frank_wolfe", time.perf_counter() - begin)

    def search(self, problem: Problem) -> tuple[Index, list[Walk]]:
        """The best picks and the walk of every start."""
        forms = [limit.form for limit in problem.limits]
        together = colours(len(problem.sizes), [problem.score, *forms])
        multilinear = len(together) <= 2
        return search(
            Relaxed(problem.score, Groups(problem.sizes)), problem.score.batch, problem.sizes, problem.limits,
            np.random.default_rng(self.seed), starts=self.starts, climb=self.climb, multilinear=multilinear,
            blocks=together if multilinear else None, iterations=self.iterations, probability=self.probability,
        )  # fmt: skip


PLUGIN = FrankWolfe
