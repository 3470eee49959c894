"""The number of parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, final

from sartor.core.task import Task
from sartor.costs.base import Cost, CostTable, Tick, counted, silent
from sartor.spaces.base import Shape, Space

if TYPE_CHECKING:
    from torch import nn


@final
@dataclass(frozen=True, kw_only=True)
class Params(Cost):
    """Parameters, counted: weights, biases, batch-norm's scales and shifts; running statistics are no parameters."""

    kind: ClassVar[str] = "count"

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The parameters of a module; one that is used twice counts once."""
        return float(sum(p.numel() for p in module.parameters()))

    def table(self, space: Space, task: Task, tick: Tick = silent, cache: Path | None = None) -> CostTable:
        """The parameters of every part of the space."""
        return counted("params", self, space, task, tick)


PLUGIN = Params
