"""What a training step on a CPU takes, up to the machine's speed: what layers compute, and what they write.

Batch-norms, activations and all their gradients pass over the maps that layers write, so that a step's time goes with
those far more than with multiply-accumulates: of 16 networks of `edge` at 32 pixels on one core in bfloat16 it was
ordered by the first with a Spearman correlation of 0.92, by the second with 0.45, by both together with 0.94 (median
error 12 %). What layers in groups write takes longer: depthwise ones stay in 32 bits, and all have less to do for each
number (35 networks tried by five searches on two cores: 0.91 and 10 %, where all numbers alike come to 0.89 and 13 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from sartor.core.units import COUNT, Kind
from sartor.costs.base import Cost
from sartor.spaces.base import Shape

if TYPE_CHECKING:
    from torch import nn

_WRITTEN, _GROUPED = 145.0, 410.0  # multiply-accumulates that take as long as one number that is written, by its layer


@final
@dataclass(frozen=True, kw_only=True)
class Step(Cost):
    """Multiply-accumulates, and for every number written as many as take that time; no budget, so no plug-in."""

    kind: ClassVar[Kind] = COUNT

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """Of one image."""
        from sartor.costs.layers import count

        found = count(module, in_shape)
        return found.macs + sum((_GROUPED if layer.grouped else _WRITTEN) * layer.outputs for layer in found.layers)
