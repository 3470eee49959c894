"""Images that grow while a network is trained: small ones first, the whole ones for the last part.

A step on images of half the side takes a third of the time, and what a network learns from them it need not learn
again: in the same seconds it sees more. Photos of 64 pixels ended 2 points higher on test images, level on validation
images; those of 32 that began with 16 lower (`benchmarks/recipes.py`, the sets short_*). The last stage is at the side
that the network is deployed with, so that its features and statistics end there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.core.task import Task

_SIDES = ((0.3, 0.0), (0.6, 0.5))  # (until this share of all steps, this far from the first side to the whole one)
_LEAST = 32  # pixels a side: photos of 32 that began with 16 ended lower (`benchmarks/recipes.py`)
_EVEN = 4  # sides are multiples of it


@final
@dataclass(frozen=True)
class Stage:
    """A part of a training with images of one size."""

    until: float  # the share of all steps at which it ends
    side: int
    cost: float = 1.0  # the time of a step, in steps of the last stage


@final
@dataclass(frozen=True)
class Growth:
    """The stages of a training, the last of which ends with it and shows images as they are."""

    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, small: float, task: Task, net: nn.Module) -> Growth:
        """Stages from the share `small` of the images' side on; one alone where the network takes no smaller ones."""
        first, whole = max(_LEAST, _round(small * task.image)), Stage(1.0, task.image)
        if small == 1 or first >= task.image or not _takes(net, task, first):
            return cls((whole,))
        sides = [(until, _round(first + far * (task.image - first))) for until, far in _SIDES]
        return cls((*(Stage(until, side) for until, side in sides), whole))

    def timed(self, seconds: dict[int, float]) -> Growth:
        """With what a step at each side takes."""
        last = seconds[self.stages[-1].side]
        return Growth(tuple(replace(s, cost=seconds[s.side] / last) for s in self.stages))

    def at(self, progress: float) -> Stage:
        """The stage after that share of all steps."""
        return next((s for s in self.stages if progress < s.until), self.stages[-1])

    def left(self, progress: float) -> float:
        """The mean cost of the steps from there on."""
        if progress >= 1:
            return self.stages[-1].cost
        starts = (0.0, *(s.until for s in self.stages))
        parts = [max(0.0, s.until - max(b, progress)) * s.cost for b, s in zip(starts, self.stages, strict=False)]
        return sum(parts) / (1 - progress)

    def shown(self, x: Tensor, progress: float) -> Tensor:
        """The batch at the side of its stage."""
        side = self.at(progress).side
        if side == x.shape[-1]:
            return x
        small = F.interpolate(x, (side, side), mode="bilinear", align_corners=False, antialias=True)
        return small.contiguous(memory_format=torch.channels_last)


def _round(side: float) -> int:
    return _EVEN * round(side / _EVEN)


def _takes(net: nn.Module, task: Task, side: int) -> bool:
    """Whether a network gives an answer to smaller images too; one that flattens its last maps does not."""
    trained, some = net.training, next(net.parameters())
    net.eval()
    try:
        with torch.no_grad():
            net(torch.zeros(2, task.channels, side, side, device=some.device))
    except RuntimeError:
        return False
    finally:
        net.train(trained)
    return True
