"""Multiply-accumulate operations of one image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from sartor.core.units import COUNT, Kind
from sartor.costs.base import Cost
from sartor.spaces.base import Shape

if TYPE_CHECKING:
    from torch import nn


@final
@dataclass(frozen=True, kw_only=True)
class Macs(Cost):
    """Multiply-accumulates of convolutions (squeeze-excitation's too) and fully connected layers, counted.

    Batch-norm, activations, pooling, residual additions, biases and squeeze-excitation's final
    product are left out: the convention of the papers, which call these numbers FLOPs.
    """

    kind: ClassVar[Kind] = COUNT

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The multiply-accumulates of one forward pass at batch 1; nothing is computed, only shapes pass through."""
        from sartor.costs.layers import count

        return count(module, in_shape).macs


PLUGIN = Macs
