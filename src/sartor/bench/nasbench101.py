"""NAS-Bench-101 as a table of the spaces whose networks are its graphs (NAS-Bench-1Shot1).

Isomorphic graphs are one network. Every graph of the file, and every encoding of the space pruned to the vertices
between input and output, gets a fingerprint that does not depend on the order of its vertices; equal fingerprints are
looked up. They are computed for many graphs at once: spaces have up to 1.3 million encodings.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput
from sartor.spaces.base import Space

Matrix = NDArray[np.int64]
Columns = dict[str, NDArray[np.float64]]
_MOST = 7  # vertices of the benchmark's graphs
_INPUT, _OUTPUT, _ABSENT = 3, 4, 5  # labels beside the three operations


@runtime_checkable
class Graphs(Protocol):
    """A space of NAS-Bench-101 graphs: its choices are the nodes' operations, then everybody's inputs."""

    nodes: int
    labels: tuple[int, ...]  # NAS-Bench-101's number of every operation, in the order of the options

    def wiring(self, inputs: Sequence[int]) -> Matrix:
        """Adjacency of input, nodes and output, for picks of the inputs."""


def live_vertices(matrix: Matrix) -> list[int]:
    """The vertices that the input reaches and that reach the output; none at all where the input does not."""
    count = len(matrix)
    forward, backward = {0}, {count - 1}
    for v in range(1, count):
        if any(matrix[w, v] for w in forward):
            forward.add(v)
    for v in range(count - 2, -1, -1):
        if any(matrix[v, w] for w in backward):
            backward.add(v)
    both = sorted(forward & backward)
    return both if both and both[-1] == count - 1 else []


def fingerprints(matrix: Matrix, labels: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A number per graph, from one adjacency for all or one each, and labels (graphs, vertices).

    As NAS-Bench-101's own hash: labels and degrees, mixed along edges in both directions as often as there are
    vertices; here with 64-bit multiplications in place of MD5, and sums, which know no order, in place of sorting.
    """
    edges = matrix.astype(np.uint64)
    degrees = 64 * edges.sum(-1) + 8 * edges.sum(-2)
    h = _mix(labels.astype(np.uint64) + np.uint64(1024) + degrees)
    for _ in range(labels.shape[1]):
        before = np.matmul(_mix(h + np.uint64(1))[:, None, :], edges)[:, 0]
        after = np.matmul(_mix(h + np.uint64(2))[:, None, :], edges.swapaxes(-1, -2))[:, 0]
        h = _mix(h + _mix(before + np.uint64(3)) + np.uint64(5) * _mix(after + np.uint64(4)))
    return _mix(h.sum(1))


def _mix(h: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Scatter 64-bit numbers (the finaliser of SplitMix64); overflow is meant."""
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


def read_nasbench101(path: Path, space: Space) -> tuple[Matrix, Columns]:
    """Picks and columns (mean accuracies in percent, parameters, seconds) of the encodings that the file knows."""
    if not isinstance(space, Graphs):
        raise BadInput(f"{path} lists NAS-Bench-101 graphs, which need a space of such graphs: nasbench1shot1.")
    with np.load(path, allow_pickle=False) as data:
        arrays: dict[str, Any] = {name: data[name] for name in data.files}
    known = fingerprints(*_stored(arrays))
    order = np.argsort(known)
    picks, rows = [], []
    for each, found in _encodings(space, space.sizes):
        place = np.minimum(np.searchsorted(known, found, sorter=order), len(order) - 1)
        row = order[place]
        listed = known[row] == found
        picks.append(each[listed])
        rows.append(row[listed])
    index = np.concatenate(rows)
    columns = {n: 100.0 * arrays[f"{n}_9984"][index].mean(1) / 9984 for n in ("val", "test", "train")}
    columns["params"] = arrays["params"][index].astype(np.float64)
    columns["train_seconds"] = arrays["train_seconds"][index].astype(np.float64).mean(1)
    columns["index"] = index.astype(np.float64)
    return np.concatenate(picks), columns


def _stored(arrays: dict[str, Any]) -> tuple[Matrix, NDArray[np.int64]]:
    """Adjacencies and labels of the file's graphs; vertices that a graph does not have are isolated."""
    counts = arrays["n_vertices"].astype(np.int64)
    matrix = np.zeros((len(counts), _MOST, _MOST), np.int64)
    for bit, (i, j) in enumerate(itertools.combinations(range(_MOST), 2)):
        matrix[:, i, j] = (arrays["adjacency_bits"] >> bit) & 1
    labels = np.full((len(counts), _MOST), _ABSENT, np.int64)
    labels[:, 0] = _INPUT
    inside = np.arange(_MOST - 2) < counts[:, None] - 2
    labels[:, 1 : _MOST - 1][inside] = arrays["ops"][inside]
    labels[np.arange(len(counts)), counts - 1] = _OUTPUT
    return matrix, labels


def _encodings(space: Graphs, sizes: Sequence[int]) -> Any:
    """For every wiring: the picks of all operations with it, and their fingerprints."""
    ops = np.array(list(itertools.product(range(len(space.labels)), repeat=space.nodes)), np.int64)
    seen: dict[bytes, NDArray[np.uint64]] = {}  # of pruned wirings: a fingerprint for all labels of its nodes
    for inputs in itertools.product(*(range(n) for n in sizes[space.nodes :])):
        matrix = space.wiring(inputs)
        keep = live_vertices(matrix)
        if not keep:
            continue
        small, inner = matrix[np.ix_(keep, keep)], np.array(keep[1:-1], np.int64) - 1
        key = small.tobytes()
        if key not in seen:
            seen[key] = fingerprints(*_padded(small, space.labels))
        code = ops[:, inner] @ len(space.labels) ** np.arange(len(inner))[::-1]
        yield np.concatenate((ops, np.broadcast_to(np.array(inputs), (len(ops), len(inputs)))), 1), seen[key][code]


def _padded(small: Matrix, options: Sequence[int]) -> tuple[Matrix, NDArray[np.int64]]:
    """A pruned adjacency as large as the file's, with all labels of its nodes."""
    count = len(small)
    matrix = np.zeros((_MOST, _MOST), np.int64)
    matrix[:count, :count] = small
    inner = np.array(list(itertools.product(options, repeat=count - 2)), np.int64).reshape(-1, count - 2)
    labels = np.full((len(inner), _MOST), _ABSENT, np.int64)
    labels[:, 0], labels[:, count - 1] = _INPUT, _OUTPUT
    labels[:, 1 : count - 1] = inner
    return matrix, labels
