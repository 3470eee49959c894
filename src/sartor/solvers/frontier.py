"""The complete exact frontier of one cost and the score, by dynamic programming over what interacts.

In BINAS's score (equation 4) and in additive costs (equation 5) the stages do not interact, and
inside a stage the depth is a hub whose leaves are the blocks. The Pareto set of such a forest is
found from its leaves: with ``S_c(p)`` the front of the subtree of choice c while its parent is at
option p, and ``+`` the Pareto set of all sums,

``S_c(p) = pareto(union over options a of  linear[c][a] + pairs[parent, c][p, a] + sum over children d of S_d(a))``

and the whole frontier is the sum of the roots' fronts. Pruning inside a sum is exact: a dominated
part stays dominated whatever is added to it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from sartor.core.errors import Infeasible
from sartor.core.quadratic import Array, Limit, Quadratic
from sartor.solvers.base import Frontier, NotSeparable, Problem, Solution, Solver, certify, within
from sartor.solvers.frames import framed, frames
from sartor.solvers.infeasible import cannot, contradiction
from sartor.solvers.interactions import Component, components, grid, support
from sartor.solvers.pareto import Front, Index, Nothing, few_enough, pareto, total

ENUMERABLE = 2_000_000


def frontier(score: Quadratic, cost: Quadratic, rules: Sequence[Limit] = ()) -> Frontier:
    """Every optimal trade-off between `cost` and `score` among the architectures that meet `rules`.

    Empty where none meets them. Ties: of architectures equal in cost and score one is kept; options
    that make no difference, such as those of an inactive block, are at their lowest index. Sums that
    are equal in exact arithmetic but not in floating point count as different.

    Solved frame by frame where a form has cases, and where the choices form trees only then. Raises NotSeparable where
    interacting choices neither form a tree nor are few enough to enumerate.
    """
    problem = Problem(score, (Limit("cost", cost), *rules))  # checks that all are over the same choices
    front = _front(problem)
    picks = np.zeros((len(front), len(problem.sizes)), np.int64)
    everything = np.arange(len(front))
    front.write(picks, everything, everything)
    # The sums of the front were added in another order than everyone else adds them: value the picks afresh.
    costs, scores = cost.batch(picks), score.batch(picks)
    keep = pareto(costs, scores)
    return Frontier(costs[keep], scores[keep], picks[keep])


def _front(problem: Problem) -> Front:
    """The front of all choices, without the constants of score and cost unless these depend on the frame."""
    if framed(problem):
        return _by_frame(problem)
    try:
        return _plain(problem)
    except NotSeparable as refusal:
        try:
            return _by_frame(problem)
        except NotSeparable:
            raise refusal from None


def _by_frame(problem: Problem) -> Front:
    """Frames are the options of choice 0, with the front of a whole plain problem below each."""
    parts = list(frames(problem))
    cost, score = (
        [form.constant for form in column] for column in zip(*((p.limits[0].form, p.score) for p in parts), strict=True)
    )
    return _Subtree(_Fan(0, [_plain(part) for part in parts], cost, score))


def _plain(problem: Problem) -> Front:
    """The front of forms without cases: the sum of the fronts of all connected parts."""
    score, cost = problem.score, problem.limits[0].form
    parts = components((score, cost), problem.limits[1:])
    if parts is None:
        return Nothing(0)
    for part in parts:
        _check(part, problem.sizes)
    fronts: list[Front] = []
    for part in parts:
        front = _tree(part, score, cost) if part.tree else _Enumerated(part, score, cost)
        if not len(front):
            return Nothing(0)
        fronts.append(front)
    return total(fronts)


def _check(part: Component, sizes: tuple[int, ...]) -> None:
    combinations = math.prod(sizes[i] for i in part.choices)
    if part.tree or combinations <= ENUMERABLE:
        return
    joint = [rule.name for rule in part.rules if len(support(rule.form)) > 2]
    reason = f"joined by {', '.join(joint)}" if joint else "that interact in a cycle"
    raise NotSeparable(
        f"the exact frontier needs choices that form a tree, or at most {ENUMERABLE} combinations of those that do "
        f"not, but here are {len(part.choices)} choices with {combinations:.3g} combinations {reason}. "
        "Use the solver milp, which handles any number of limits."
    )


@final
class _Enumerated(Front):
    """All combinations of a few choices that interact in any way."""

    def __init__(self, part: Component, score: Quadratic, cost: Quadratic) -> None:
        self.choices = part.choices
        self.shape = tuple(score.sizes[i] for i in part.choices)
        costs = np.array(np.broadcast_to(grid(cost, part.choices, 0.0), self.shape))
        scores = np.broadcast_to(grid(score, part.choices, 0.0), self.shape).ravel()
        for rule in part.rules:
            allowed = within(rule, grid(rule.form, part.choices, rule.form.constant))
            costs[np.broadcast_to(~allowed, self.shape)] = np.inf
        costs = costs.ravel()
        self.at = pareto(costs, scores)
        self.cost, self.score = costs[self.at], scores[self.at]

    def write(self, picks: Index, rows: Index, points: Index) -> None:
        """The position in the grid says every pick."""
        for choice, options in zip(self.choices, np.unravel_index(self.at[points], self.shape), strict=True):
            picks[rows, choice] = options


class _Fan:
    """The points below one choice, for all its options at once, before the parent's influence is added."""

    def __init__(self, choice: int, below: list[Front], cost: Iterable[float], score: Iterable[float]) -> None:
        self.choice, self.below = choice, below
        lengths = [len(front) for front in below]
        self.option = np.repeat(np.arange(len(below)), lengths)
        self.point = np.concatenate([np.arange(n) for n in lengths])
        self.cost = np.concatenate([f.cost + c for f, c in zip(below, cost, strict=True)])
        self.score = np.concatenate([f.score + s for f, s in zip(below, score, strict=True)])
        self.leaf = all(isinstance(front, Nothing) for front in below)


@final
class _Subtree(Front):
    """The front of one choice and all that hangs below it, while its parent is at one option."""

    def __init__(self, fan: _Fan, cost: Array | None = None, score: Array | None = None) -> None:
        costs = fan.cost if cost is None else fan.cost + cost[fan.option]
        scores = fan.score if score is None else fan.score + score[fan.option]
        self.fan = fan
        self.at = pareto(costs, scores)
        self.cost, self.score = costs[self.at], scores[self.at]

    def write(self, picks: Index, rows: Index, points: Index) -> None:
        """The option of the choice says which fronts its children's points are in."""
        at = self.at[points]
        options = self.fan.option[at]
        for option in np.unique(options) if not self.fan.leaf else ():
            here = np.flatnonzero(options == option)
            self.fan.below[option].write(picks, rows[here], self.fan.point[at[here]])
        picks[rows, self.fan.choice] = options


def _tree(part: Component, score: Quadratic, cost: Quadratic) -> Front:
    """The front of a tree of choices, from the leaves up."""
    linear, pairs = _priced(part, cost)
    order, parent = part.rooted()
    fronts: dict[int, list[Front]] = {}  # choice -> its front for every option of its parent
    for choice in reversed(order):
        size, up = score.sizes[choice], parent[choice]
        children = [fronts.pop(d) for d in part.neighbours(choice) if d != up]
        below = [total([front[a] for front in children]) for a in range(size)]
        few_enough(sum(len(front) for front in below), score.sizes[up] if up >= 0 else 1)
        fan = _Fan(choice, below, linear[choice], score.linear.get(choice, np.zeros(size)))
        if up < 0:
            return _Subtree(fan)
        alike: dict[bytes, Front] = {}  # options of the parent that add the same share one front
        fronts[choice] = []
        for p in range(score.sizes[up]):
            rows = [None if t is None else t[p] for t in (_facing(pairs, up, choice), _facing(score.pairs, up, choice))]
            key = b"".join(row.tobytes() for row in rows if row is not None)
            if key not in alike:
                alike[key] = _Subtree(fan, *rows)
            fronts[choice].append(alike[key])
    raise AssertionError("a tree has a root")


def _priced(part: Component, cost: Quadratic) -> tuple[dict[int, Array], dict[tuple[int, int], Array]]:
    """The cost's terms inside a tree; what a rule forbids costs infinitely much."""
    linear = {i: cost.linear.get(i, np.zeros(cost.sizes[i])) for i in part.choices}
    pairs = {k: cost.pairs[k] for k in part.edges if k in cost.pairs}
    for rule in part.rules:
        chosen = support(rule.form)
        ban = np.where(within(rule, grid(rule.form, chosen, rule.form.constant)), 0.0, np.inf)
        if len(chosen) == 1:
            linear[chosen[0]] = linear[chosen[0]] + ban
        else:
            key = (chosen[0], chosen[1])
            pairs[key] = pairs[key] + ban if key in pairs else ban
    return linear, pairs


def _facing(pairs: Mapping[tuple[int, int], Array], up: int, choice: int) -> Array | None:
    """The pair table with the parent's options as rows."""
    table = pairs.get((min(up, choice), max(up, choice)))
    return table if table is None or up < choice else table.T


@final
@dataclass(frozen=True, kw_only=True)
class ExactFrontier(Solver):
    """Exact optimum for one budget, from the complete frontier; milliseconds where the choices form a forest.

    One upper limit, the one that depends on most choices, is the budget. All others are treated as
    rules: the choices that a rule joins must be few enough to enumerate, or two.
    """

    def solve(self, problem: Problem) -> Solution:
        """The best architecture inside the budget; its bound is its own score."""
        start = time.perf_counter()
        budget, rules = split(problem)
        cost = budget.form if budget else Quadratic(problem.sizes)
        front = frontier(problem.score, cost, rules)
        if not len(front):
            raise contradiction(rules, _least)
        best = front.best(budget.high if budget else math.inf)
        if best is None:
            assert budget is not None
            raise cannot(budget, float(front.cost[0]))
        bound = float(front.score[best])
        return certify(problem, front.arch(best), bound, "frontier", time.perf_counter() - start)


def split(problem: Problem) -> tuple[Limit | None, tuple[Limit, ...]]:
    """The limit to build the frontier for (none: all are rules) and the other limits."""
    limits = [limit for limit in problem.limits if limit.high < math.inf or limit.low > -math.inf]
    uppers = [limit for limit in limits if limit.low == -math.inf]
    if not uppers:
        return None, tuple(limits)
    budget = max(uppers, key=lambda limit: len(support(limit.form)))
    return budget, tuple(limit for limit in limits if limit is not budget)


def _least(form: Quadratic, limits: Sequence[Limit]) -> float | None:
    try:
        front = frontier(Quadratic(form.sizes), form, limits)
    except (NotSeparable, Infeasible):
        return None
    return float(front.cost[0]) if len(front) else None


PLUGIN = ExactFrontier
