"""The memory of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from sartor.core.units import BYTES, Kind
from sartor.costs.base import INT8, Cost
from sartor.costs.flash import Flash
from sartor.costs.params import Params
from sartor.spaces.base import Shape

if TYPE_CHECKING:
    from torch import nn

_FP32 = 4  # bytes


@final
@dataclass(frozen=True, kw_only=True)
class Memory(Cost):
    """Bytes of the weights as 32-bit floats: four times the parameters, activations excluded.

    Batch-norm counts with its scale and shift. An ONNX runtime folds those, and the running statistics,
    into the convolution before, so what is really loaded is at most this.
    """

    kind: ClassVar[Kind] = BYTES

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The bytes of a module's weights."""
        return _FP32 * Params().of(module, in_shape)

    def int8(self) -> Cost:
        """A byte a weight."""
        return Int8Memory()


@final
@dataclass(frozen=True, kw_only=True)
class Int8Memory(Cost):
    """Bytes of the weights in int8, with the bias and the scale of every channel."""

    name: ClassVar[str] = Memory.name
    kind: ClassVar[Kind] = BYTES

    def identity(self) -> dict[str, Any]:
        """In 8 bits."""
        return INT8

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """As a microcontroller's program memory."""
        return Flash().of(module, in_shape)


PLUGIN = Memory
