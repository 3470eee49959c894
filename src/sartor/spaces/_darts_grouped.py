"""The search network's mixture with few large kernels instead of a swarm of small ones.

What depends on the source node alone is computed once for all edges that leave it: the first ReLU, both
poolings with their batch-norms (which have no parameters), the identity. The depthwise convolutions of one kind
on all these edges are one convolution, the pointwise ones of all kinds are one grouped convolution followed by one
batch-norm, and all weighted sums that leave the source are one matrix product, whose gradient by the matrix holds the
rewards. The weights stay where the plain form keeps them; wiped operations are simply not in the lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sartor.genotype import INPUTS, OPERATIONS

# B images, C channels, H W map, E edges that leave the source, G results that are mixed
_SEPARABLE = tuple(OPERATIONS.index(n) for n in ("sep_conv_3x3", "sep_conv_5x5"))
_DILATED = tuple(OPERATIONS.index(n) for n in ("dil_conv_3x3", "dil_conv_5x5"))
_POOLS = tuple(OPERATIONS.index(n) for n in ("max_pool_3x3", "avg_pool_3x3"))
_SKIP = OPERATIONS.index("skip_connect")


Entry = tuple[int, int]  # (edge, option)


@dataclass(frozen=True, eq=False)
class Source:
    """The edges that leave one source, which operations are left on each, and where their weights go in the matrix."""

    number: int
    edges: tuple[int, ...]
    separable: list[Entry]
    dilated: list[Entry]
    pools: list[list[Entry]]
    skips: list[Entry]
    stride: int
    at: tuple[Tensor, Tensor]  # row and column in the (E, G) matrix of every weight that is left
    weights: Tensor  # and its place in the flattened (E, options) table
    results: int  # G
    live: tuple[int, ...]  # the rows that have any weight left


def sources(edges: Sequence[Entry], wiped: set[Entry], reduces: bool, device: torch.device) -> list[Source]:
    """One plan a source, from the (node, source) of every edge; `wiped` holds (edge, option)."""
    made = []
    for number in sorted({source for _, source in edges}):
        mine = tuple(e for e, (_, source) in enumerate(edges) if source == number)
        left = {o: [(e, o) for e in mine if (e, o) not in wiped] for o in range(len(OPERATIONS))}
        separable, dilated = ([entry for o in kinds for entry in left[o]] for kinds in (_SEPARABLE, _DILATED))
        pools = [left[o] for o in _POOLS if left[o]]
        stride = 2 if reduces and number < INPUTS else 1
        skips = [[entry] for entry in left[_SKIP]] if stride == 2 else [left[_SKIP]] if left[_SKIP] else []
        columns = [*([entry] for entry in (*separable, *dilated)), *pools, *skips]
        filled = [(mine.index(e), g, o) for g, column in enumerate(columns) for e, o in column]
        table = torch.tensor(filled, dtype=torch.int64, device=device).view(-1, 3)
        rows, places, options = table.unbind(1)
        at, weights = (rows, places), rows * len(OPERATIONS) + options
        live = tuple(sorted({row for row, _, _ in filled}))
        plan = Source(number, mine, separable, dilated, pools, left[_SKIP], stride, at, weights, len(columns), live)
        made.append(plan)
    return made


def mixed_cell(cell: Any, plan: Sequence[Source], before: Tensor, last: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """The cell's output when edge e mixes its operations with `weights[e]`."""
    states = [cell.preprocess[0](before), cell.preprocess[1](last)]
    arriving: dict[int, list[Tensor]] = {node: [] for node in cell.into}

    def node(number: int) -> Tensor:
        side = cell.slot.out_side
        if not arriving[number]:  # all that led here was wiped
            return last.new_zeros(len(last), cell.slot.width, side, side)
        return torch.stack(arriving[number]).sum(0)

    for source in plan:
        if source.number >= INPUTS:
            states.append(node(source.number))
        if source.results:
            out = _leaving(cell, source, states[source.number], weights)
            for e in source.live:
                arriving[cell.into[source.edges[e]]].append(out[:, e])
    states.append(node(max(arriving)))
    return torch.cat(states[INPUTS:], 1)


def _leaving(cell: Any, source: Source, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """(B, E, C, H, W): what every edge that leaves the source gives."""
    x = x.contiguous()
    positive, results = F.relu(x), []
    separable, dilated = source.separable, source.dilated
    if separable or dilated:
        y = _first(cell, [*separable, *dilated], positive)
        cut = len(separable) * cell.slot.width
        if separable:
            results.append(_split(_second(cell, separable, F.relu(y[:, :cut])), len(separable)))
        if dilated:
            results.append(_split(y[:, cut:], len(dilated)))
    for entries in source.pools:
        layers = [cell.edges[e][o] for e, o in entries]
        results.append(_norm([layer[1] for layer in layers], layers[0][0](x), shared=True)[:, None])
    if source.skips and source.stride == 1:
        results.append(x[:, None])
    elif source.skips:
        results.append(_split(_reduced(cell, source.skips, positive), len(source.skips)))
    # Equation 1 for all edges at once: a matrix of weights times the stacked results.
    y_BGCHW = torch.cat(results, 1)
    table = torch.stack([weights[e] for e in source.edges]).flatten()
    matrix_EG = table.new_zeros(len(source.edges), source.results).index_put(source.at, table[source.weights])
    flat = y_BGCHW.flatten(2)
    return torch.matmul(matrix_EG.to(flat.dtype), flat).unflatten(2, y_BGCHW.shape[2:])


def _depthwise(layers: Sequence[Any], x: Tensor) -> Tensor:
    """The depthwise convolutions `layers`, alike but for their weights: one convolution."""
    like, weight = layers[0], torch.cat([layer.weight for layer in layers]).contiguous()
    return F.conv2d(x, weight, None, like.stride, like.padding, like.dilation, groups=len(weight))


def _pointwise(layers: Sequence[Any], x: Tensor) -> Tensor:
    """Each layer on its own slice of the channels: one grouped convolution."""
    weight = torch.cat([layer.weight for layer in layers]).contiguous()
    return F.conv2d(x, weight, groups=len(layers))


def _norm(layers: Sequence[Any], x: Tensor, shared: bool = False) -> Tensor:
    """Batch-norms without parameters side by side; with `shared` they all see the same map and keep equal numbers."""
    first = layers[0]
    kept = [[layer.running_mean for layer in layers], [layer.running_var for layer in layers]]
    running = [buffers[0] if shared else torch.cat(buffers) for buffers in kept]
    mean, variance = running
    out = F.batch_norm(x, mean, variance, None, None, first.training, first.momentum, first.eps)
    if first.training:
        with torch.no_grad():
            for buffers, new in zip(kept, running, strict=True):
                if shared:
                    buffers, pieces = buffers[1:], [new] * (len(buffers) - 1)
                else:
                    pieces = list(new.split([len(b) for b in buffers]))
                if buffers:
                    torch._foreach_copy_(buffers, pieces)
    return out


def _first(cell: Any, entries: list[Entry], positive: Tensor) -> Tensor:
    """ReLU, depthwise, pointwise and batch-norm of all convolutions that leave the source."""
    maps = []
    for o in (*_SEPARABLE, *_DILATED):
        layers = [cell.edges[e][p][1] for e, p in entries if p == o]
        if layers:
            maps.append(_depthwise(layers, positive.repeat(1, len(layers), 1, 1)))
    y = _pointwise([cell.edges[e][o][2] for e, o in entries], torch.cat(maps, 1))
    return _norm([cell.edges[e][o][3] for e, o in entries], y)


def _second(cell: Any, entries: list[Entry], x: Tensor) -> Tensor:
    """The second half of the separable convolutions."""
    maps, start = [], 0
    for o in _SEPARABLE:
        layers = [cell.edges[e][p][5] for e, p in entries if p == o]
        if layers:
            stop = start + len(layers) * cell.slot.width
            maps.append(_depthwise(layers, x[:, start:stop]))
            start = stop
    y = _pointwise([cell.edges[e][o][6] for e, o in entries], torch.cat(maps, 1))
    return _norm([cell.edges[e][o][7] for e, o in entries], y)


def _reduced(cell: Any, entries: list[Entry], positive: Tensor) -> Tensor:
    """The identities of a reduction cell: each is two strided pointwise convolutions and a batch-norm."""
    layers, n = [cell.edges[e][o] for e, o in entries], len(entries)
    shifted = positive[:, :, 1:, 1:]
    if positive.shape[-1] % 2:
        shifted = F.pad(shifted, (0, 1, 0, 1))
    halves = [
        _split(F.conv2d(x, torch.cat([getattr(layer, name).weight for layer in layers]).contiguous(), stride=2), n)
        for x, name in ((positive, "even"), (shifted, "odd"))
    ]
    return _norm([layer.norm for layer in layers], torch.cat(halves, 2).flatten(1, 2))


def _split(x: Tensor, n: int) -> Tensor:
    """(B, n C, H, W) as (B, n, C, H, W)."""
    return x.unflatten(1, (n, -1))
