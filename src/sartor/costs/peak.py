"""The memory of activations at the worst moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from sartor.core.units import BYTES, Kind
from sartor.costs.base import Cost
from sartor.spaces.base import Shape

if TYPE_CHECKING:
    from torch import nn

_FP32 = 4  # bytes


@final
@dataclass(frozen=True, kw_only=True)
class Peak(Cost):
    """Bytes of all 32-bit activations that live at once, at the worst moment of one image; weights excluded.

    Where a network runs part after part, that is the peak of its largest part, exactly. Where parts run beside each
    other, what else is alive is known from the built network only, which then corrects the table.
    """

    kind: ClassVar[Kind] = BYTES
    measured: ClassVar[bool] = True
    sums: ClassVar[bool] = False
    repeatable: ClassVar[bool] = True

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """Counted from the tensors' lifetimes."""
        from sartor.costs.lifetimes import peak

        return float(_FP32 * peak(module, in_shape))


PLUGIN = Peak
