"""The size of the exported file."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from sartor.core.units import BYTES, Kind
from sartor.costs.base import ANY, INT8, Cost, Measured, Occasion
from sartor.costs.flash import Flash
from sartor.costs.memory import Memory
from sartor.spaces.base import Shape

if TYPE_CHECKING:
    from torch import nn

_TOLD = 4096  # bytes at most of what the file says of itself: labels, hashes
_ROUNDING = 1700  # bytes of the operators around a layer that round to 8 bits and back, about


@dataclass(frozen=True, kw_only=True)
class Size(Cost):
    """Bytes of the deployed file. Parts are priced by their weights; the file itself then corrects that."""

    kind: ClassVar[Kind] = BYTES
    measured: ClassVar[bool] = True
    guide: ClassVar[str] = "params"
    repeatable: ClassVar[bool] = True

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The bytes of the weights."""
        return Memory().of(module, in_shape)

    def measure(self, net: nn.Module, in_shape: Shape, at: Occasion = ANY) -> Measured:
        """The file's; before there is one, that of the same graph without what a file says of itself."""
        from sartor.deploy.module import onnx_graph

        if at.file is not None:
            return Measured.exact(float(at.file.stat().st_size))
        size = float(len(self._deployed(onnx_graph(_unlike(net), in_shape))))
        return Measured(size, size + _TOLD)

    def _deployed(self, graph: bytes) -> bytes:
        return graph

    def int8(self) -> Cost:
        """That of the quantised file."""
        return Int8Size()


@final
@dataclass(frozen=True, kw_only=True)
class Int8Size(Size):
    """Bytes of the deployed file in int8."""

    name: ClassVar[str] = Size.name

    def identity(self) -> dict[str, Any]:
        """In 8 bits."""
        return INT8

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The bytes of the weights, and of what rounds every layer's tensors."""
        from torch import nn

        layers = sum(isinstance(layer, nn.Conv2d | nn.Linear) for layer in module.modules())
        return Flash().of(module, in_shape) + _ROUNDING * layers

    def _deployed(self, graph: bytes) -> bytes:
        from sartor.deploy.quantise import sketched

        return sketched(graph)


def _unlike(net: nn.Module) -> nn.Module:
    """The network with weights that are all different, as trained ones are: equal ones are stored once."""
    made = copy.deepcopy(net)
    for value in made.state_dict().values():
        if value.is_floating_point():
            value.uniform_(0.5, 1.5)
    return made


PLUGIN = Size
