"""The working memory of a microcontroller that computes in int8."""

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
class Sram(Cost):
    """Bytes of all int8 activations that live at once, at the worst moment of one image: see `peak`.

    A microcontroller's runtime needs some more for itself and for operators that spread out their input.
    """

    kind: ClassVar[Kind] = BYTES
    measured: ClassVar[bool] = True
    sums: ClassVar[bool] = False
    repeatable: ClassVar[bool] = True

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """One byte a number."""
        from sartor.costs.lifetimes import peak

        return float(peak(module, in_shape))


PLUGIN = Sram
