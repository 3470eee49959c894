"""The memory of activations at the worst moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from sartor.core.units import BYTES, Kind
from sartor.costs.base import ANY, INT8, Cost, Measured, Occasion
from sartor.spaces.base import Shape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class Peak(Cost):
    """Bytes that activations take at the worst moment of one image; weights excluded.

    In advance a part counts with 32-bit tensors and those lifetimes that its layers have (`costs/lifetimes.py`), and a
    network as its largest part. The built network is what ONNX Runtime reports of itself in a session as deployed,
    and corrects the table; where it does not report that, the tensors that live at once (`deploy/memory.py`).
    """

    kind: ClassVar[Kind] = BYTES
    measured: ClassVar[bool] = True
    sums: ClassVar[bool] = False
    wide: ClassVar[int] = 4  # bytes of a number

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """Counted from the tensors' lifetimes."""
        from sartor.costs.lifetimes import peak

        return float(self.wide * peak(module, in_shape))

    def measure(self, net: nn.Module, in_shape: Shape, at: Occasion = ANY) -> Measured:
        """As deployed; on another processor the runtime may rewrite the graph otherwise."""
        from sartor.deploy.memory import alive, held
        from sartor.deploy.module import onnx_graph

        graph = at.file or self._deployed(onnx_graph(net, in_shape))
        least, taken = float(alive(graph, in_shape)), held(graph, in_shape)
        value, session = (least, "the tensors that live at once") if taken is None else (float(taken), "as deployed")
        return Measured(value, value, {"session": session, "alive": least})

    def _deployed(self, graph: bytes) -> bytes:
        return graph

    def int8(self) -> Cost:
        """Of the quantised network."""
        return Int8Peak()


@final
@dataclass(frozen=True, kw_only=True)
class Int8Peak(Peak):
    """Bytes of all activations that live at once in int8; the normalised image is in 32 bits still."""

    name: ClassVar[str] = Peak.name
    wide: ClassVar[int] = 1

    def identity(self) -> dict[str, Any]:
        """In 8 bits."""
        return INT8

    def _deployed(self, graph: bytes) -> bytes:
        from sartor.deploy.quantise import sketched

        return sketched(graph)


PLUGIN = Peak
