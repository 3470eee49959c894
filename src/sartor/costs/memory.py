"""The memory of the weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, final

from sartor.core.task import Task
from sartor.costs.base import Cost, CostTable, Tick, counted, silent
from sartor.costs.params import Params
from sartor.spaces.base import Shape, Space

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

    kind: ClassVar[str] = "bytes"

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The bytes of a module's weights."""
        return _FP32 * Params().of(module, in_shape)

    def table(self, space: Space, task: Task, tick: Tick = silent, cache: Path | None = None) -> CostTable:
        """The weight bytes of every part of the space."""
        return counted("memory", self, space, task, tick)


PLUGIN = Memory
