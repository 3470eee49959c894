"""The search network's mixture with few large kernels instead of a swarm of small ones.

What depends on the source node alone is computed once for all edges that leave it: the first ReLU, both
poolings with their batch-norms (which have no parameters), the identity. The depthwise convolutions of one size
on all these edges are one convolution, the pointwise ones of all kinds are one product followed by one batch-norm, and
all weighted sums that leave the source are one product, whose gradient by the matrix holds the rewards. Channels stay
innermost. The weights stay where the plain form keeps them; wiped operations are simply not in the lists.
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
# Depthwise kernels of one size: a dilated 3x3 kernel is a 5x5 one with zeros. In the order of the entries.
_ALIKE = (_SEPARABLE[:1], (_SEPARABLE[1], _DILATED[0]), _DILATED[1:])
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
    for source in plan:
        if source.number >= INPUTS:
            states.append(_node(cell, arriving[source.number], last))
        if source.results:
            parts = _leaving(cell, source, states[source.number], weights).split(cell.slot.width, 1)
            for e in source.live:
                arriving[cell.into[source.edges[e]]].append(parts[e])
    states.append(_node(cell, arriving[max(arriving)], last))
    return torch.cat(states[INPUTS:], 1)


def _node(cell: Any, parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """The sum of what arrives, one by one, which leaves channels innermost; zeros where all of it was wiped."""
    if not parts:
        return like.new_zeros(len(like), cell.slot.width, cell.slot.out_side, cell.slot.out_side)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _leaving(cell: Any, source: Source, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """(B, E C, H, W): what every edge that leaves the source gives."""
    x = x.contiguous(memory_format=torch.channels_last)
    positive, results = F.relu(x), []
    separable, dilated = source.separable, source.dilated
    if separable or dilated:
        y = _first(cell, [*separable, *dilated], positive)
        # Split, not sliced: a slice's gradient is a map of zeros with channels outermost, which all before it inherits.
        once, last = y.split([len(separable) * cell.slot.width, len(dilated) * cell.slot.width], 1)
        if separable:
            results.append(_second(cell, separable, F.relu(once)))
        if dilated:
            results.append(last)
    for entries in source.pools:
        layers = [cell.edges[e][o] for e, o in entries]
        results.append(_norm([layer[1] for layer in layers], layers[0][0](x), shared=True))
    if source.skips and source.stride == 1:
        results.append(x)
    elif source.skips:
        results.append(_reduced(cell, source.skips, positive))
    # Equation 1 for all edges at once: a matrix of weights, the same for every channel, times the results side by side.
    table = torch.stack([weights[e] for e in source.edges]).flatten()
    matrix_EG = table.new_zeros(len(source.edges), source.results).index_put(source.at, table[source.weights])
    y = torch.cat(results, 1)
    mixer = torch.kron(matrix_EG, torch.eye(cell.slot.width, device=y.device, dtype=matrix_EG.dtype))
    return F.conv2d(y, mixer.to(y.dtype)[:, :, None, None])


def _depthwise(layers: Sequence[Any], x: Tensor) -> Tensor:
    """The depthwise convolutions `layers`, of one size, as one convolution."""
    weights, like = [_undilated(layer) for layer in layers], layers[0]
    weight, sparse = torch.cat(weights), weights[0] is like.weight and like.dilation[0] > 1
    padding, dilation = (like.padding, like.dilation) if sparse else (weight.shape[-1] // 2, 1)
    return F.conv2d(x, weight, None, like.stride, padding, dilation, groups=len(weight))


def _undilated(layer: Any) -> Tensor:
    """The kernel; a dilated 3x3 one as the 5x5 one it is: GPUs have fast kernels for those, none for dilated ones."""
    weight: Tensor = layer.weight
    if layer.dilation[0] == 1 or weight.shape[-1] != 3:
        return weight
    wide = weight.new_zeros(len(weight), 1, 5, 5)
    wide[:, :, ::2, ::2] = weight
    return wide


def _pointwise(layers: Sequence[Any], x: Tensor) -> Tensor:
    """Each layer on its own slice of the channels.

    One dense product with the layers' matrices along the diagonal: on a GPU cheaper than a grouped convolution or a
    batch of small products.
    """
    n, c = len(layers), len(layers[0].weight)
    each = torch.stack([layer.weight.view(c, c) for layer in layers])
    diagonal = torch.diag_embed(each.permute(1, 2, 0), dim1=0, dim2=2).reshape(n * c, n * c)
    return F.conv2d(x, diagonal[:, :, None, None])


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
    for kinds in _ALIKE:
        layers = [cell.edges[e][o][1] for e, o in entries if o in kinds]
        if layers:
            maps.append(_depthwise(layers, torch.cat([positive] * len(layers), 1)))
    y = _pointwise([cell.edges[e][o][2] for e, o in entries], torch.cat(maps, 1))
    return _norm([cell.edges[e][o][3] for e, o in entries], y)


def _second(cell: Any, entries: list[Entry], x: Tensor) -> Tensor:
    """The second half of the separable convolutions."""
    kinds = [[cell.edges[e][p][5] for e, p in entries if p == o] for o in _SEPARABLE]
    parts = x.split([len(layers) * cell.slot.width for layers in kinds], 1)
    maps = [_depthwise(layers, part) for layers, part in zip(kinds, parts, strict=True) if layers]
    y = _pointwise([cell.edges[e][o][6] for e, o in entries], torch.cat(maps, 1))
    return _norm([cell.edges[e][o][7] for e, o in entries], y)


def _reduced(cell: Any, entries: list[Entry], positive: Tensor) -> Tensor:
    """The identities of a reduction cell: each is two strided pointwise convolutions and a batch-norm."""
    layers = [cell.edges[e][o] for e, o in entries]
    shifted = positive[:, :, 1:, 1:]
    if positive.shape[-1] % 2:
        shifted = F.pad(shifted, (0, 1, 0, 1))
    even, odd = (
        F.conv2d(x, torch.cat([getattr(layer, name).weight for layer in layers]), stride=2).chunk(len(layers), 1)
        for x, name in ((positive, "even"), (shifted, "odd"))
    )
    halves = [half for pair in zip(even, odd, strict=True) for half in pair]
    return _norm([layer.norm for layer in layers], torch.cat(halves, 1))
