"""NAS-Bench-101 as a table of the spaces whose networks are its graphs (NAS-Bench-1Shot1).

The benchmark knows a graph by its module hash, which is the same for isomorphic graphs. Every encoding of the space is
pruned to the vertices between input and output, hashed, and looked up.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sartor.arch import Arch
from sartor.errors import BadInput
from sartor.spaces.base import Space

Graph = tuple[NDArray[np.int64], tuple[int, ...]]  # adjacency of all vertices, operation of the interior ones
_MOST = 100_000  # encodings hashed one by one; larger spaces take too long


def pruned(matrix: NDArray[np.int64], ops: Sequence[int]) -> Graph | None:
    """The graph without vertices that the input does not reach or that do not reach the output; None if nothing is."""
    count = len(matrix)
    forward, backward = {0}, {count - 1}
    for v in range(1, count):
        if any(matrix[w, v] for w in forward):
            forward.add(v)
    for v in range(count - 2, -1, -1):
        if any(matrix[v, w] for w in backward):
            backward.add(v)
    keep = sorted(forward & backward)
    if 0 not in keep or count - 1 not in keep:
        return None
    return matrix[np.ix_(keep, keep)], tuple(ops[v - 1] for v in keep[1:-1])


def module_hash(matrix: NDArray[np.int64], ops: Sequence[int]) -> str:
    """NAS-Bench-101's hash: vertices' degrees and labels, mixed along edges as often as there are vertices."""
    labels = [-1, *ops, -2]
    count = len(labels)
    incoming = [[w for w in range(count) if matrix[w, v]] for v in range(count)]
    outgoing = [[w for w in range(count) if matrix[v, w]] for v in range(count)]
    hashes = [_md5(str((len(outgoing[v]), len(incoming[v]), labels[v]))) for v in range(count)]
    for _ in range(count):
        hashes = [
            _md5("".join(sorted(hashes[w] for w in incoming[v])) + "|"
                 + "".join(sorted(hashes[w] for w in outgoing[v])) + "|" + hashes[v])
            for v in range(count)
        ]  # fmt: skip
    return _md5(str(sorted(hashes)))


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def read_nasbench101(path: Path, space: Space) -> tuple[list[tuple[int, ...]], dict[str, NDArray[np.float64]]]:
    """Picks and columns (mean accuracies in percent, parameters, seconds) of the encodings that the file knows."""
    graph: Callable[[Arch], Graph] | None = getattr(space, "graph", None)
    if graph is None or math.prod(space.sizes) > _MOST:
        raise BadInput(
            f"{path} lists NAS-Bench-101 graphs, which need a space of such graphs with at most {_MOST} encodings: "
            "nasbench1shot1 with space.variant S1 or S2."
        )
    with np.load(path, allow_pickle=False) as data:
        known = {bytes(h).hex(): n for n, h in enumerate(data["hash"])}
        arrays: dict[str, Any] = {name: data[name] for name in data.files}
    picks, rows = [], []
    found: dict[tuple[bytes, tuple[int, ...]], int | None] = {}
    for each in itertools.product(*(range(n) for n in space.sizes)):
        small = pruned(*graph(Arch(each)))
        if small is None:
            continue
        key = (small[0].tobytes(), small[1])
        if key not in found:
            found[key] = known.get(module_hash(*small))
        row = found[key]
        if row is not None:
            picks.append(each)
            rows.append(row)
    index = np.asarray(rows, np.int64)
    columns = {n: 100.0 * arrays[f"{n}_9984"][index].mean(1) / 9984 for n in ("val", "test", "train")}
    columns["params"] = arrays["params"][index].astype(np.float64)
    columns["train_seconds"] = arrays["train_seconds"][index].astype(np.float64).mean(1)
    columns["index"] = index.astype(np.float64)
    return picks, columns
