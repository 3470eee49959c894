"""The ten sparse structures of BayesNAS's table S3: which weights of a layer live and die together.

A weight is seen as W[N, C, m, k] (filters, input channels, kernel rows, kernel columns); a fully connected layer's
matrix [out, in] as W[out, in, 1, 1], where rows and columns are those of the matrix; a depthwise kernel as
W[1, N, m, k], for each of its filters reads one channel. Groups are kept as tensors that broadcast against W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sartor.core.errors import BadInput

_N, _C, _M, _K = range(4)


@dataclass(frozen=True)
class Structure:
    """Groups indexed by the axes `index`; with `cross`, group (.., a, b) is the union of slice a and slice b."""

    name: str
    letter: str  # of figure S5
    index: tuple[int, ...]
    cross: bool = False

    def norms(self, weight: Tensor) -> Tensor:
        """The Euclidean norm of every group; the crossing of a row and a column counts twice, as W-bar has it twice."""
        return self.sums(weight * weight).sqrt()

    def sums(self, values: Tensor) -> Tensor:
        """The sum of `values`, one a weight, over every group."""
        if not self.cross:
            return _over(values, self.index)
        *shared, a, b = self.index
        return _over(values, (*shared, a)) + _over(values, (*shared, b))

    def spread(self, groups: Tensor) -> Tensor:
        """For every weight the sum over the groups it is in; broadcasts against W."""
        if not self.cross:
            return groups
        *_, a, b = self.index
        return groups.sum(b, keepdim=True) + groups.sum(a, keepdim=True)


def _over(values: Tensor, kept: Sequence[int]) -> Tensor:
    axes = [axis for axis in range(4) if axis not in kept]
    return values.sum(axes, keepdim=True)


_TABLE = (
    Structure("shape", "a", (_C, _M, _K)),
    Structure("row", "b", (_C, _M)),
    Structure("column", "c", (_C, _K)),
    Structure("row-column", "d", (_C, _M, _K), cross=True),
    Structure("channel", "e", (_C,)),
    Structure("group-shape", "f", (_M, _K)),
    Structure("group-row", "g", (_M,)),
    Structure("group-column", "h", (_K,)),
    Structure("group-row-column", "i", (_M, _K), cross=True),
    Structure("filter", "j", (_N,)),
)
STRUCTURES = {s.name: s for s in _TABLE}
# Rows and columns of a matrix are its outputs and inputs; the rest of the table with m = k = 1.
_MATRIX: dict[str, Structure] = STRUCTURES | {
    "row": Structure("row", "b", (_N,)),
    "column": Structure("column", "c", (_C,)),
    "row-column": Structure("row-column", "d", (_N, _C), cross=True),
}
_DEPTHWISE: dict[str, Structure] = STRUCTURES | {"filter": Structure("filter", "j", (_C,))}


def parse(text: str | Sequence[str]) -> tuple[str, ...]:
    """``filter,shape`` as names of the table; letters of figure S5 do as well."""
    letters = {s.letter: s.name for s in STRUCTURES.values()}
    given = [part.strip() for part in text.split(",")] if isinstance(text, str) else list(text)
    names = tuple(dict.fromkeys(letters.get(part, part) for part in given))
    unknown = [n for n in names if n not in STRUCTURES]
    if unknown or not names:
        listed = ", ".join(f"{s.name} ({s.letter})" for s in STRUCTURES.values())
        raise BadInput(f"a structure must be one of {listed}, but got {', '.join(map(repr, unknown)) or 'none'}.")
    return names


Layer = nn.Conv2d | nn.Linear


def is_depthwise(layer: nn.Module) -> bool:
    """Whether each filter reads one channel of its own."""
    return isinstance(layer, nn.Conv2d) and layer.groups == layer.in_channels and layer.groups > 1


def of_layer(layer: Layer, names: Sequence[str]) -> tuple[Structure, ...]:
    """The structures as they apply to this kind of layer, each set of groups once."""
    table = _MATRIX if isinstance(layer, nn.Linear) else _DEPTHWISE if is_depthwise(layer) else STRUCTURES
    chosen: dict[tuple[tuple[int, ...], bool], Structure] = {}
    for name in names:
        structure = table[name]
        sizes = view(layer, layer.weight).shape
        axes = tuple(a for a in structure.index if sizes[a] > 1) if not structure.cross else structure.index
        chosen.setdefault((axes, structure.cross), structure)
    return tuple(chosen.values())


def view(layer: Layer, weight: Tensor) -> Tensor:
    """The layer's weight (or anything of its shape) as W[N, C, m, k], sharing memory."""
    if isinstance(layer, nn.Linear):
        return weight[:, :, None, None]
    return weight.transpose(0, 1) if is_depthwise(layer) else weight


def layers(net: nn.Module) -> dict[str, Layer]:
    """The convolutions and fully connected layers by name."""
    return {n: m for n, m in net.named_modules() if isinstance(m, nn.Conv2d | nn.Linear)}


@torch.no_grad()
def shrink(weight: Tensor, structure: Structure, steps: Tensor) -> None:
    """The proximal step of ``sum_g steps_g ||W_g||`` in place: each group's norm shrinks by its step, to zero at most.

    A weight in several groups of a crossing structure shrinks by the sum of their shares.
    """
    share = steps / structure.norms(weight).clamp_min(1e-30)
    weight.mul_((1 - structure.spread(share)).clamp_min_(0.0))
