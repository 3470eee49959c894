"""The continuous relaxation: a probability vector per choice, written one after the other as ``zeta``.

On one-hot vectors a relaxed quadratic equals `Quadratic`; in between it is the expected value of
the quadratic when every choice is drawn independently from its vector (BINAS, section 3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from sartor.core.quadratic import Array, Quadratic
from sartor.solvers.local import Index


class Groups:
    """Where each choice's vector lies in zeta."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.first = np.concatenate([[0], np.cumsum(self.sizes)]).astype(np.int64)
        self.width = int(self.first[-1])

    def of(self, i: int) -> slice:
        """The entries of choice `i`."""
        return slice(int(self.first[i]), int(self.first[i + 1]))

    def one_hot(self, picks: Index) -> Array:
        """The vertex of one architecture."""
        zeta = np.zeros(self.width)
        zeta[self.first[:-1] + np.asarray(picks)] = 1.0
        return zeta

    def argmax(self, zeta: Array) -> Index:
        """The most probable option of every choice."""
        return np.array([int(np.argmax(zeta[self.of(i)])) for i in range(len(self.sizes))], np.int64)

    def support(self, zeta: Array) -> list[Index]:
        """The options of positive probability, choice by choice."""
        return [np.flatnonzero(zeta[self.of(i)] > 0) for i in range(len(self.sizes))]


class Relaxed:
    """``f(zeta) = constant + q . zeta + zeta' Q zeta / 2``, with no entry of Q inside one choice."""

    def __init__(self, form: Quadratic, groups: Groups) -> None:
        self.constant = form.constant
        self.linear = np.zeros(groups.width)
        self.matrix = np.zeros((groups.width, groups.width))
        for i, vector in form.linear.items():
            self.linear[groups.of(i)] += vector
        for (i, j), table in form.pairs.items():
            self.matrix[groups.of(i), groups.of(j)] += table
            self.matrix[groups.of(j), groups.of(i)] += table.T

    def __call__(self, zeta: Array) -> tuple[float, Array]:
        """Value and gradient."""
        product = self.matrix @ zeta
        return self.constant + float(zeta @ (self.linear + 0.5 * product)), self.linear + product


def colours(count: int, forms: Iterable[Quadratic]) -> list[list[int]]:
    """Choices sorted into blocks none of which holds two that interact: every form is linear in each block.

    Two blocks where the interaction graph is bipartite, as BINAS's is: the first is alpha (the
    leaves, and whatever does not interact), the second beta (the hubs). More where it is not.
    """
    near: dict[int, set[int]] = {i: set() for i in range(count)}
    for form in forms:
        for (i, j), table in form.pairs.items():
            if table.any():
                near[i].add(j)
                near[j].add(i)
    two = _bipartition(near)
    if two is not None:
        return [block for block in two if block]
    colour: dict[int, int] = {}
    for i in sorted(near, key=lambda i: (-len(near[i]), i)):
        taken = {colour[j] for j in near[i] if j in colour}
        colour[i] = next(c for c in range(count) if c not in taken)
    return [[i for i in range(count) if colour[i] == c] for c in range(max(colour.values()) + 1)]


def _bipartition(near: dict[int, set[int]]) -> list[list[int]] | None:
    side: dict[int, int] = {}
    blocks: list[list[int]] = [[], []]
    for root in near:
        if root in side:
            continue
        side[root], part = 0, [root]
        for i in part:  # grows while it is walked
            for j in sorted(near[i]):
                if j not in side:
                    side[j] = 1 - side[i]
                    part.append(j)
                elif side[j] == side[i]:
                    return None
        halves = [[i for i in part if side[i] == s] for s in (0, 1)]
        few, many = sorted(halves, key=len)  # a hub has several leaves: the smaller half is beta
        blocks[0] += many
        blocks[1] += few
    return [sorted(block) for block in blocks]
