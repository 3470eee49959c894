"""The relaxed multiple-choice knapsack (BINAS, definition G.1), solved at a vertex.

``max sum_i p_i . u_i``  subject to  ``sum_i t_i . u_i <= T``  and every ``u_i`` in its simplex.

With one row the greedy method is exact: in every group only the options on the upper concave hull
of (price, gain) matter; the steps along all hulls are taken in order of gain per price until the
room is used up. All groups end one-hot but at most one, which mixes two options (lemmas G.1, G.2).
An interior-point method would not do: options of equal gain and price, such as those of a block
that does not run, form a face of optima, and it returns that face's middle.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from sartor.core.quadratic import Array

TOLERANCE = 1e-9


def greedy(gains: Sequence[Array], prices: Sequence[Array], room: float) -> list[Array] | None:
    """The optimal vertex for one row, a vector per group; None where even the cheapest options exceed `room`."""
    hulls = [_hull(p, t) for p, t in zip(gains, prices, strict=True)]
    answer = [np.zeros(len(p)) for p in gains]
    for vector, hull in zip(answer, hulls, strict=True):
        vector[hull[0]] = 1.0
    spent = sum(float(t[h[0]]) for t, h in zip(prices, hulls, strict=True))
    left = room - spent
    if left < -TOLERANCE * max(1.0, abs(room), abs(spent)):
        return None
    steps = []
    for i, hull in enumerate(hulls):
        for low, high in itertools.pairwise(hull):
            price = float(prices[i][high] - prices[i][low])
            steps.append((-float(gains[i][high] - gains[i][low]) / price, i, price, low, high))
    steps.sort(key=lambda step: step[:2])  # stable: the steps of one hull stay in their order
    for _, i, price, low, high in steps:
        share = min(1.0, left / price) if left > 0 else 0.0
        if share <= 0.0:
            break
        answer[i][high], answer[i][low] = share, 1.0 - share
        left -= price
        if share < 1.0:
            break
    return answer


def _hull(gain: Array, price: Array) -> list[int]:
    """The options on the upper concave hull, from the cheapest to the best; none that another dominates."""
    chain: list[int] = []
    for a in np.lexsort((-gain, price)).tolist():
        if chain and gain[a] <= gain[chain[-1]]:
            continue  # dearer (or equal) and no better: dominated
        while len(chain) > 1:
            o, m = chain[-2], chain[-1]
            if (gain[m] - gain[o]) * (price[a] - price[m]) > (gain[a] - gain[m]) * (price[m] - price[o]):
                break
            chain.pop()  # under the line from its neighbour to the new point: dominated by a mixture
        if len(chain) == 1 and price[a] <= price[chain[0]]:
            chain.pop()  # the same price up to rounding, and better
        chain.append(a)
    return chain


def simplex(
    gains: Sequence[Array], rows: Sequence[Sequence[Array]], low: Sequence[float], high: Sequence[float]
) -> list[Array] | None:
    """An optimal vertex for any number of two-sided rows, by HiGHS's dual simplex; None where there is none.

    A basic solution has at most one positive entry per row of the program beyond those that are
    forced: with m rows besides the simplices, at most m groups are fractional.
    """
    lengths = [len(p) for p in gains]
    width = sum(lengths)
    ones = (np.ones(width), (np.repeat(np.arange(len(lengths)), lengths), np.arange(width)))
    table = np.array([np.concatenate(row) for row in rows]).reshape(len(rows), width)
    upper, lower = np.isfinite(high), np.isfinite(low)
    sides = np.concatenate([table[upper], -table[lower]])
    ends = np.concatenate([np.asarray(high, np.float64)[upper], -np.asarray(low, np.float64)[lower]])
    scale = np.maximum(np.abs(sides).max(axis=1, initial=0.0), 1e-300)  # milliseconds and millions alike
    result = linprog(
        -np.concatenate(list(gains)),
        A_ub=sides / scale[:, None] if len(sides) else None,
        b_ub=ends / scale if len(sides) else None,
        A_eq=coo_array(ones, shape=(len(lengths), width)).tocsr(),
        b_eq=np.ones(len(lengths)),
        bounds=(0.0, 1.0),
        method="highs-ds",
    )
    if result.x is None:
        return None
    answer = []
    for part in np.split(result.x, np.cumsum(lengths)[:-1]):
        vector = np.where(part > TOLERANCE, part, 0.0)
        answer.append(vector / vector.sum())
    return answer
