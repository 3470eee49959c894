"""The tree of TreeCell-A (arXiv:1806.02639): which operation every edge has, and the nine paths.

Edges are named by the way from the cell's input: "12" is the second edge that leaves what edge "1" gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sartor.core.arch import Arch
from sartor.spaces.base import Picks

EDGES = {
    "1": "conv3", "11": "conv1", "111": "avg3", "112": "sep7", "12": "max3", "121": "sep3", "122": "sep5",
    "2": "conv3", "21": "sep5", "211": "sep5", "212": "avg3", "213": "avg3", "22": "sep3", "221": "avg3", "222": "sep3",
}  # fmt: skip
ROOTS = ("1", "2")
PATHS = tuple(name for name in EDGES if len(name) == 3)
HALVES = {"111": False, "112": True}  # these see one half of the channels each; whether it is the second


@cache
def children(name: str) -> tuple[str, ...]:
    """The edges that leave what an edge gives."""
    return tuple(e for e in EDGES if len(e) == len(name) + 1 and e.startswith(name))


@cache
def through(name: str) -> tuple[str, ...]:
    """The paths that an edge is on."""
    return tuple(p for p in PATHS if p.startswith(name))


@cache
def way(path: str) -> tuple[str, ...]:
    """The edges of a path."""
    return tuple(path[:n] for n in range(1, len(path) + 1))


# Which branches live; then, of each, which of its paths. The whole cell comes first.
BRANCHES = ("both", "first", "second", "none")
LIVE = ((0, 1), (0, 2))  # the options of BRANCHES in which the first and in which the second lives
SUBSETS = tuple(
    tuple(kept for count in range(len(through(root)), 0, -1) for kept in combinations(through(root), count))
    for root in ROOTS
)
# (options, paths) of each branch: which paths an option has
TABLES = tuple(np.array([[float(p in kept) for p in PATHS] for kept in subsets]) for subsets in SUBSETS)


def paths_of(picks: Picks) -> NDArray[np.bool_]:
    """(rows, blocks, 9): which paths every row's blocks have."""
    rows = picks.reshape(len(picks), -1, 1 + len(ROOTS))
    found = np.zeros((*rows.shape[:2], len(PATHS)), bool)
    for branch, (live, table) in enumerate(zip(LIVE, TABLES, strict=True), start=1):
        found |= np.isin(rows[:, :, 0], live)[:, :, None] & (table[rows[:, :, branch]] > 0)
    return found


def cells_of(arch: Arch) -> list[tuple[str, ...]]:
    """The paths of every block."""
    return [tuple(p for p, on in zip(PATHS, row, strict=True) if on) for row in paths_of(np.array([arch.picks]))[0]]


@dataclass(frozen=True, slots=True)
class Slot:
    """One block's place."""

    inputs: int
    width: int  # inside: what the tree cell sees
    outputs: int
    stride: int
    side: int

    @property
    def out_side(self) -> int:
        """The side of the block's output."""
        return -(-self.side // self.stride)


@dataclass(frozen=True, slots=True)
class Frame:
    """What is not searched."""

    slots: tuple[Slot, ...]
    large: bool  # the stem for large images
    groups: int  # of the 3x3 convolutions
    ends: tuple[int, ...]  # the last block of every stage
