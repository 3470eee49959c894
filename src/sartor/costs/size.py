"""The size of the exported file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from sartor.core.units import BYTES, Kind
from sartor.costs.base import ANY, Cost, Measured, Occasion
from sartor.costs.memory import Memory
from sartor.spaces.base import Shape

if TYPE_CHECKING:
    from torch import nn

_TOLD = 4096  # bytes at most of what the file says of itself: labels, hashes


@final
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
        size = float(len(onnx_graph(net, in_shape, 1)))
        return Measured(size, size + _TOLD)


PLUGIN = Size
