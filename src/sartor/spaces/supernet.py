"""The contract of a supernet, and what a training step draws at random.

Who runs in a supernet is said in one of three ways: an `Arch`, one path for the whole batch; `Picks`, a path of its own
for every image ("multi-path"); `Gates`, a mixture of all the options. Paths may also come as a `StepDraw` that the
supernet itself prepared from picks (`sartor.spaces.capabilities.Replayable`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import final

from torch import Tensor, nn

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.base import Gates, Picks, Space

Who = Arch | Picks | Gates


@final
@dataclass(frozen=True, eq=False, slots=True)
class StepDraw:
    """What a step draws: tensors on the device, and in `same` all else that the computation depends on.

    Two steps with equal `same` and tensors of equal shapes launch the same kernels, so that one's recording serves
    the other (`sartor.engine.replay`).
    """

    tensors: tuple[Tensor, ...] = ()
    same: Hashable = None


class Supernet(nn.Module, ABC):
    """All networks of a space in one set of shared weights."""

    task: Task

    @abstractmethod
    def trace(self, x: Tensor, who: Who) -> tuple[list[Tensor], Tensor]:
        """The features after every stage (for distillation) and the logits."""

    @abstractmethod
    def extract(self, arch: Arch) -> nn.Module:
        """The stand-alone network with the inherited weights: in evaluation mode, the same logits."""

    def forward(self, x: Tensor, who: Who) -> Tensor:
        """The logits."""
        return self.trace(x, who)[1]


def trace(net: nn.Module, x: Tensor) -> tuple[list[Tensor], Tensor]:
    """The features after every stage of a stand-alone network, as its supernet's `trace` gives them, and the logits."""
    if not hasattr(net, "trace"):
        return [], net(x)
    traced: tuple[list[Tensor], Tensor] = net.trace(x)  # type: ignore[operator]
    return traced


class SharedSpace(Space):
    """A space whose networks share one set of weights: it also makes supernets."""

    @abstractmethod
    def supernet(self, task: Task) -> Supernet:
        """A new supernet, initialised from torch's random state."""


def new_supernet(space: Space, task: Task) -> Supernet:
    """A supernet of the space; refused for one without shared weights."""
    if not isinstance(space, SharedSpace):
        raise BadInput(
            f"this method trains all networks of a space at once, but {type(space).__name__} has no shared weights. "
            "Use --method random, or make it a SharedSpace."
        )
    return space.supernet(task)
