"""The program memory that a network's weights take in int8."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from sartor.core.units import BYTES, Kind
from sartor.costs.base import Cost
from sartor.spaces.base import Shape

if TYPE_CHECKING:
    from torch import nn


@final
@dataclass(frozen=True, kw_only=True)
class Flash(Cost):
    """Bytes of int8 weights: one a weight, and eight a channel for its 32-bit bias and scale.

    Batch-norms count as folded into the convolutions before them.
    """

    kind: ClassVar[Kind] = BYTES
    usual: ClassVar[bool] = False

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """Counted, layer by layer; one that is used twice counts once."""
        from torch import nn

        total = 0
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                total += layer.weight.numel() + 8 * layer.weight.shape[0]
            elif not isinstance(layer, nn.BatchNorm2d):
                total += 4 * sum(p.numel() for p in layer.parameters(recurse=False))
        return float(total)


PLUGIN = Flash
