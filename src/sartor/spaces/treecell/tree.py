"""The tree of TreeCell-A (arXiv:1806.02639): which operation every edge has, and the nine paths.

Edges are named by the way from the cell's input: "12" is the second edge that leaves what edge "1" gives.
"""

from __future__ import annotations

from functools import cache

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
