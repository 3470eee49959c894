"""The search network's mixture with few large kernels instead of a swarm of small ones.

What depends on the source node alone is computed once for all edges that leave it: the first ReLU, both
poolings, the identity. Nothing stands between a depthwise convolution and the pointwise one after it, so the two are
one dense convolution, and those of all edges that leave the source are one convolution of its few channels: fewer
multiplications than products along a diagonal, no copies of the source, and on tensor cores. All that is mixed goes
through one batch-norm, and all weighted sums that leave the source are one product, whose gradient by the matrix holds
the rewards. Channels stay innermost, and gradients reach every batch-norm in one piece. The weights stay where the
plain form keeps them; wiped operations are simply not in the lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sartor.spaces.cells.genotype import INPUTS, OPERATIONS
from sartor.spaces.cells.ops import FactorizedReduce

# B images, C channels, H W map, P pixels of the batch, E edges that leave the source, G results that are mixed
_SEPARABLE = tuple(OPERATIONS.index(n) for n in ("sep_conv_3x3", "sep_conv_5x5"))
_DILATED = tuple(OPERATIONS.index(n) for n in ("dil_conv_3x3", "dil_conv_5x5"))
_POOLS = tuple(OPERATIONS.index(n) for n in ("max_pool_3x3", "avg_pool_3x3"))
_SKIP = OPERATIONS.index("skip_connect")


Entry = tuple[int, int]  # (edge, option)


@dataclass(frozen=True, eq=False)
class Source:
    """The edges that leave one source, which operations are left on each, and which weights mix them."""

    number: int
    edges: tuple[int, ...]
    separable: list[Entry]
    dilated: list[Entry]
    pools: list[list[Entry]]
    skips: list[Entry]
    stride: int
    places_GE: Tensor  # of every weight in the flattened table of edges and options; one past its end: no weight
    live: tuple[int, ...]  # the edges, of those above, that have any weight left


@dataclass(frozen=True, eq=False)
class _Kernels:
    """The dense kernels of the convolutions that leave a source."""

    separable: Tensor
    dilated: Tensor
    second: tuple[Tensor, Tensor]  # the separable ones' second halves, 3x3 and 5x5


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
        results = [*([entry] for entry in (*separable, *dilated)), *pools, *skips]
        places = torch.full((len(results), len(mine)), len(edges) * len(OPERATIONS))
        for g, result in enumerate(results):
            for e, o in result:
                places[g, mine.index(e)] = e * len(OPERATIONS) + o
        live = tuple(sorted({mine.index(e) for result in results for e, _ in result}))
        made.append(Source(number, mine, separable, dilated, pools, left[_SKIP], stride, places.to(device), live))
    return made


def mixed_cell(cell: Any, plan: Sequence[Source], before: Tensor, last: Tensor, table_EO: Tensor) -> Tensor:
    """The cell's output when edge e mixes its operations with the weights `table_EO[e]`."""
    states = [_input(cell.preprocess[0], before), cell.preprocess[1](last)]
    table, norms = F.pad(table_EO.flatten(), (0, 1)), _Norms()
    arriving: dict[int, list[Tensor]] = {node: [] for node in cell.into}
    for source, kernels in zip(plan, _kernels(cell, plan, states[0].dtype), strict=True):
        if source.number >= INPUTS:
            states.append(_node(cell, arriving[source.number], last))
        if source.live:
            x = states[source.number].contiguous(memory_format=torch.channels_last)
            parts = torch.split(_leaving(cell, source, x, kernels, table, norms), cell.slot.width, 1)
            for e in source.live:
                arriving[cell.into[source.edges[e]]].append(parts[e])
    norms.keep()
    states.append(_node(cell, arriving[max(arriving)], last))
    return torch.cat(states[INPUTS:], 1)


def _input(layer: Any, x: Tensor) -> Tensor:
    """The cell's first input at its width and side."""
    out: Tensor = layer.norm(_reduced([layer], F.relu(x))) if isinstance(layer, FactorizedReduce) else layer(x)
    return out


def _node(cell: Any, parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """The sum of what arrives, one by one, which leaves channels innermost; zeros where all of it was wiped."""
    if not parts:
        return like.new_zeros(len(like), cell.slot.width, cell.slot.out_side, cell.slot.out_side)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _leaving(cell: Any, source: Source, x: Tensor, kernels: _Kernels, table: Tensor, norms: _Norms) -> Tensor:
    """(B, E C, H, W): what every edge that leaves the source gives."""
    positive = F.relu(x)
    results: list[Tensor] = []  # and the batch-norms after them: those in one list see the same map
    after: list[list[Any]] = []
    if source.separable:
        y = F.conv2d(positive, kernels.separable, stride=source.stride, padding=kernels.separable.shape[-1] // 2)
        y = norms([[cell.edges[e][o][3]] for e, o in source.separable], y)
        # Split, not sliced: a slice's gradient is a map of zeros with channels outermost, which all before it inherits.
        for part, kernel in zip(torch.split(y, [len(k) for k in kernels.second], 1), kernels.second, strict=True):
            if len(kernel):
                results.append(_apart(F.relu(part), kernel))
        after += [[cell.edges[e][o][7]] for e, o in source.separable]
    if source.dilated:
        padding = kernels.dilated.shape[-1] // 2
        if source.stride == 2:  # dilated as much as it strides, it sees every other pixel only
            results.append(F.conv2d(F.avg_pool2d(positive, 1, 2), kernels.dilated, padding=padding))
        else:
            results.append(F.conv2d(positive, kernels.dilated, padding=2 * padding, dilation=2))
        after += [[cell.edges[e][o][3]] for e, o in source.dilated]
    for entries in source.pools:
        layers = [cell.edges[e][o] for e, o in entries]
        results.append(layers[0][0](x))
        after.append([layer[1] for layer in layers])
    if source.skips and source.stride == 2:
        layers = [cell.edges[e][o] for e, o in source.skips]
        results.append(_reduced(layers, positive))
        after += [[layer.norm] for layer in layers]
    # Equation 1 for all edges at once: a matrix of weights, the same for every channel, times the results side by side.
    matrix_GE = table.index_select(0, source.places_GE.flatten()).view_as(source.places_GE)
    every = matrix_GE[:, :, None].expand(-1, -1, cell.slot.width)
    mixer = torch.diag_embed(every, dim1=1, dim2=3).flatten(2).flatten(0, 1).to(x.dtype)
    factors = [norms(after, torch.cat(results, 1))] if results else []
    if source.skips and source.stride == 1:
        factors.append(x)
    rows = torch.split(mixer, [factor.shape[1] for factor in factors])
    total = torch.matmul(_pixels(factors[0]), rows[0])
    for factor, more in zip(factors[1:], rows[1:], strict=True):
        total.addmm_(_pixels(factor), more)
    return total.view(len(x), *factors[0].shape[2:], -1).permute(0, 3, 1, 2)


def _pixels(x: Tensor) -> Tensor:
    """(P, C), which a map with its channels innermost is already."""
    return x.permute(0, 2, 3, 1).flatten(0, 2)


def _kernels(cell: Any, plan: Sequence[Source], dtype: torch.dtype) -> list[_Kernels]:
    """The kernels of every source, made together."""

    def layers(entries: Sequence[Entry], at: int) -> list[tuple[Any, Any]]:
        return [(cell.edges[e][o][at], cell.edges[e][o][at + 1]) for e, o in entries]

    first = iter(_dense([layers(entries, 1) for s in plan for entries in (s.separable, s.dilated)], dtype))
    small, large = (
        _dense([layers([entry for entry in s.separable if entry[1] == o], 5) for s in plan], dtype) for o in _SEPARABLE
    )
    return [_Kernels(next(first), next(first), both) for both in zip(small, large, strict=True)]


def _dense(groups: Sequence[Sequence[tuple[Any, Any]]], dtype: torch.dtype) -> Sequence[Tensor]:
    """(n C, C, k, k) for every group of n (depthwise, pointwise): kernels D and P are together P_oi D_i.

    Kernels smaller than the largest get a border of zeros.
    """
    narrow = [depthwise.weight for group in groups for depthwise, _ in group]
    if not narrow:
        return [torch.empty(0)] * len(groups)
    side = max(w.shape[-1] for w in narrow)
    small = [w for w in narrow if w.shape[-1] < side]
    wide = iter(F.pad(torch.stack(small), (1, 1, 1, 1)).unbind() if small else ())
    D = torch.stack([w if w.shape[-1] == side else next(wide) for w in narrow])
    P = torch.stack([pointwise.weight for group in groups for _, pointwise in group])
    kernels = (P * D.transpose(1, 2)).flatten(0, 1).to(dtype, memory_format=torch.channels_last)
    made = torch.split(kernels, [len(group) * P.shape[1] for group in groups])
    return made


def _apart(x: Tensor, kernels: Tensor) -> Tensor:
    """Each of n kernels (n C, C, k, k) on its own slice of the channels.

    On a GPU as one dense convolution with zeros off the diagonal: tensor cores have little use for narrow groups.
    """
    n, padding = len(kernels) // kernels.shape[1], kernels.shape[-1] // 2
    if x.is_cuda:
        return F.conv2d(x, _diagonal(kernels, n), padding=padding)
    return F.conv2d(x, kernels, padding=padding, groups=n)


def _diagonal(kernels: Tensor, n: int) -> Tensor:
    """(n C, n C, k, k), channels innermost."""
    each = torch.unflatten(kernels.permute(0, 2, 3, 1), 0, (n, -1))
    return torch.diag_embed(each.permute(1, 2, 3, 4, 0), dim1=0, dim2=4).flatten(4).flatten(0, 1).permute(0, 3, 1, 2)


def _reduced(layers: Sequence[Any], positive: Tensor) -> Tensor:
    """The identities of a reduction cell before their batch-norms: two strided pointwise convolutions each.

    One of them sees the first, the other the last pixel of every 2x2 square: together one convolution of such squares.
    """
    even, odd = (torch.stack([getattr(layer, name).weight for layer in layers]) for name in ("even", "odd"))
    squares = torch.cat([F.pad(even, (0, 1, 0, 1)), F.pad(odd, (1, 0, 1, 0))], 1).flatten(0, 1)
    beyond = positive.shape[-1] % 2
    return F.conv2d(F.pad(positive, (0, beyond, 0, beyond)) if beyond else positive, squares, stride=2)


class _Norms:
    """Batch-norms without parameters, side by side; their running statistics are moved all at once."""

    def __init__(self) -> None:
        self._layers: list[list[Any]] = []
        self._means: list[Tensor] = []
        self._inverses: list[Tensor] = []  # of the deviations
        self._pixels = 0

    def __call__(self, layers: list[list[Any]], x: Tensor) -> Tensor:
        """Of the n-th slice of the channels, which all of `layers[n]` see: they keep equal numbers."""
        first = layers[0][0]
        if not first.training:
            mean = torch.cat([same[0].running_mean for same in layers])
            return F.batch_norm(x, mean, torch.cat([same[0].running_var for same in layers]), eps=first.eps)
        out, mean, inverse = torch.native_batch_norm(x, None, None, None, None, True, first.momentum, first.eps)
        self._layers += layers
        self._means.append(mean)
        self._inverses.append(inverse)
        self._pixels = x.numel() // x.shape[1]
        return out

    @torch.no_grad()
    def keep(self) -> None:
        """Move the running statistics towards those of the batch."""
        if not self._layers:
            return
        first, each = self._layers[0][0], [len(same) for same in self._layers]
        means = torch.cat(self._means).to(first.running_mean.dtype)
        variances = torch.cat(self._inverses).to(means.dtype).pow(-2).sub_(first.eps)
        variances *= self._pixels / max(1, self._pixels - 1)
        for name, seen in (("running_mean", means), ("running_var", variances)):
            kept = [getattr(layer, name) for same in self._layers for layer in same]
            slices = seen.view(len(each), -1).unbind()
            torch._foreach_lerp_(kept, [s for s, n in zip(slices, each, strict=True) for _ in range(n)], first.momentum)
