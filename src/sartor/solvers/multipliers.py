"""Which options the optimum can still have, by Lagrange multipliers, where the choices form trees.

With a multiplier for every limit, ``score(a) - sum_k multiplier_k (form_k(a) - high_k)`` is at least the score of any
architecture inside the limits. On a tree its maximum, and its maximum among all architectures with any one option,
follow from two passes of messages. An option whose maximum is below the score of an architecture that is known to be
inside the limits is not in the optimum. Few options are left of a chain of stages, and HiGHS is fast on those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog

from sartor.core.quadratic import Array, Quadratic
from sartor.solvers.base import SLACK, Problem
from sartor.solvers.interactions import Component, components
from sartor.solvers.local import Index, allowed, polish

ROUNDS = 60
LARGEST = 1e3  # multiplier, where score and limits are scaled to a span of one
POLISHED = 4


def ceiling(problem: Problem) -> float:
    """A bound on the score of any architecture inside the limits; infinite where the choices form no trees."""
    dual = _dual(problem)
    return math.inf if dual is None else dual.least


def survivors(problem: Problem, worth: float = -math.inf) -> list[Index] | None:
    """The options of every choice with which an architecture may be the optimum and score `worth` or more.

    None where nothing can be said: the choices form no trees, or no architecture inside the limits was met.
    """
    dual = _dual(problem)
    if dual is None:
        return None
    inside = dual.seen[allowed(problem.limits, dual.seen)]
    if not len(inside) and worth == -math.inf:
        return None
    top = inside[np.argsort(-problem.score.batch(inside), kind="stable")[:POLISHED]]
    known = [polish(problem.score.batch, problem.sizes, problem.limits, picks) for picks in top]
    least = max([worth, *problem.score.batch(np.asarray(known).reshape(-1, len(problem.sizes)))])
    room = 1e-9 * max(1.0, abs(least), dual.unit[0])  # far more than the bounds' rounding
    return [np.flatnonzero(most >= least - room) for most in dual.most]


def restricted(form: Quadratic, options: Sequence[Index]) -> Quadratic:
    """The form with only these options of every choice."""
    return Quadratic(
        tuple(len(kept) for kept in options),
        form.constant,
        {i: vector[options[i]] for i, vector in form.linear.items()},
        {(i, j): table[np.ix_(options[i], options[j])] for (i, j), table in form.pairs.items()},
    )


def _dual(problem: Problem) -> _Dual | None:
    """The lowest bound, where the choices form trees and there is any limit."""
    forms, highs = [problem.score], []
    for limit in problem.limits:
        for form, high in ((limit.form, limit.high), (limit.form * -1.0, -limit.low)):
            if high < math.inf:
                forms.append(form)
                highs.append(high + SLACK * max(1.0, abs(high)))  # whatever `Limit.holds` lets pass
    parts = components(forms, ())
    if not highs or parts is None or not all(part.tree for part in parts):
        return None
    return _Dual(forms, highs, parts)


class _Dual:
    """The upper bound as a function of the multipliers: the least that was met, whole and for every option."""

    def __init__(self, forms: Sequence[Quadratic], highs: Sequence[float], parts: Sequence[Component]) -> None:
        sizes = forms[0].sizes
        self.linear = [np.stack([f.linear.get(i, np.zeros(n)) for f in forms]) for i, n in enumerate(sizes)]
        edges = {edge for part in parts for edge in part.edges}
        self.pairs = {
            (i, j): np.stack([f.pairs.get((i, j), np.zeros((sizes[i], sizes[j]))) for f in forms]) for i, j in edges
        }
        self.forms, self.highs = forms, np.array([0.0, *highs])
        self.rest = np.array([f.constant for f in forms])
        span = np.zeros(len(forms))
        for table in (*self.linear, *self.pairs.values()):  # each from zero upwards, for the sake of its digits
            within = tuple(range(1, table.ndim))
            self.rest += table.min(axis=within)
            table -= table.min(axis=within, keepdims=True)
            span += table.max(axis=within)
        self.rest -= self.highs
        self.unit = np.where(span > 0, span, 1.0)
        self.trees = [part.rooted() for part in parts]
        self.least, self.most = math.inf, [np.full(n, np.inf) for n in sizes]
        self.seen = np.unique(self._descend(), axis=0)  # architectures, some of them inside the limits

    def _descend(self) -> Index:
        """Lower the bound by cutting planes; the architectures that made the planes."""
        limits = len(self.forms) - 1
        seen, planes = [], []
        multipliers = np.zeros(limits)
        for _ in range(ROUNDS):
            picks = self._bound(multipliers)
            seen.append(picks)
            planes.append((np.array([form.batch(picks[None])[0] for form in self.forms]) - self.highs) / self.unit)
            # The least of the largest plane: variables are the height and the multipliers.
            rows = np.array([[-1.0, *-plane[1:]] for plane in planes])
            found = linprog(
                [1.0, *np.zeros(limits)],
                A_ub=rows,
                b_ub=[-plane[0] for plane in planes],
                bounds=[(None, None), *[(0.0, LARGEST)] * limits],
            )
            if found.x is None or self.least / self.unit[0] - found.x[0] <= 1e-6:
                break
            multipliers = found.x[1:]
        return np.array(seen)

    def _bound(self, multipliers: Array) -> Index:
        """An architecture that reaches the bound; lowers what is known of the whole and of every option."""
        weights = np.array([1.0, *-multipliers * self.unit[0] / self.unit[1:]])
        linear = [weights @ table for table in self.linear]
        pairs = {edge: np.tensordot(weights, table, 1) for edge, table in self.pairs.items()}
        picks = np.zeros(len(linear), np.int64)
        full: list[Array] = [np.zeros(0)] * len(linear)
        tops = []
        for order, parent in self.trees:
            belief, message = {c: linear[c] for c in order}, {}
            tables = {c: pairs[p, c] if (p := parent[c]) < c else pairs[c, p].T for c in order[1:]}  # parents as rows
            for c in reversed(order[1:]):
                message[c] = (tables[c] + belief[c]).max(axis=1)
                belief[parent[c]] = belief[parent[c]] + message[c]
            full[order[0]] = belief[order[0]]
            picks[order[0]] = np.argmax(belief[order[0]])
            for c in order[1:]:
                up = parent[c]
                full[c] = belief[c] + (tables[c] + (full[up] - message[c])[:, None]).max(axis=0)
                picks[c] = np.argmax(tables[c][picks[up]] + belief[c])
            tops.append(full[order[0]].max())
        bound = float(weights @ self.rest) + sum(tops)
        for (order, _), top in zip(self.trees, tops, strict=True):
            for c in order:
                self.most[c] = np.minimum(self.most[c], full[c] + (bound - top))
        self.least = min(self.least, bound)
        return picks
