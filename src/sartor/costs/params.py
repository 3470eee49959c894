"""The number of parameters."""

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
class Params(Cost):
    """Parameters, counted: weights, biases, batch-norm's scales and shifts; running statistics are no parameters."""

    kind: ClassVar[Kind] = COUNT

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The parameters of a module; one that is used twice counts once."""
        return float(sum(p.numel() for p in module.parameters()))


PLUGIN = Params
