"""Multi-path: one stage of a supernet with a path of its own for every image, as few large operations.

Images are regrouped before every block, by one gather on the narrow tensor between blocks: 3x3 kernels first, then
5x5, each sorted by configuration; those whose stage ends are set aside, and all are put back in order after the stage.
The plan is made on the CPU, where the paths were drawn, and sent over in two copies: the device is never waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from sartor.spaces.base import Picks
from sartor.spaces.mobile.elastic import BlockPlan
from sartor.spaces.mobile.frame import CONFIGS, DEPTHS
from sartor.spaces.supernet import StepDraw


@dataclass(frozen=True, slots=True)
class StagePlan:
    """For every block: which images of the tensor at hand go on, which leave; and how to put all back in order."""

    steps: list[tuple[Tensor, Tensor, BlockPlan]]
    restore: Tensor


class _Draft:
    """A stage's plan as arrays."""

    def __init__(self, picks_B5: Picks) -> None:
        depth = picks_B5[:, 0] + DEPTHS[0]
        order = np.arange(len(picks_B5))  # images in the physical order of the tensor at hand
        self.take: list[np.ndarray] = []
        self.leave: list[np.ndarray] = []
        self.configs: list[np.ndarray] = []
        left: list[np.ndarray] = []
        for b in range(1, DEPTHS[-1] + 1):
            runs = depth[order] >= b
            self.leave.append(np.flatnonzero(~runs))
            left.append(order[~runs])
            stay = np.flatnonzero(runs)
            config = picks_B5[order[stay], b]
            take = stay[np.lexsort((config, config // 2 % 2))]  # by kernel, then by configuration
            self.take.append(take)
            order = order[take]
            self.configs.append(picks_B5[order, b])
            if not len(order):
                break
        self.restore = np.argsort(np.concatenate([*left, order]), kind="stable")

    def numbers(self) -> list[np.ndarray]:
        """All index arrays, in the order in which `stage_plans` takes them back."""
        expansion, group = [c // 4 for c in self.configs], [c // 4 * 2 + c % 2 for c in self.configs]
        return [*self.take, *self.leave, *expansion, *group, self.restore]

    def layout(self) -> StageLayout:
        """What is not in the arrays' values."""
        blocks = []
        for configs in self.configs:
            counts = np.bincount(configs, minlength=len(CONFIGS))
            even = bool(len(configs)) and bool((counts == counts[0]).all())
            blocks.append((int((configs // 2 % 2 == 0).sum()), even))
        return tuple(blocks), tuple(len(a) for a in self.numbers())


# of every block how many images take 3x3 kernels, and whether all configurations have equally many; the arrays' lengths
StageLayout = tuple[tuple[tuple[int, bool], ...], tuple[int, ...]]


def prepare(picks: Picks, device: torch.device) -> StepDraw:
    """A batch of paths, five choices a stage, as two tensors (places; who has squeeze-excitation) and their layout."""
    drafts = [_Draft(picks[:, 5 * s : 5 * s + 5]) for s in range(picks.shape[1] // 5)]
    places = _sent(np.concatenate([a for d in drafts for a in d.numbers()]), device)
    squeezes = _sent(np.concatenate([c % 2 == 1 for d in drafts for c in d.configs]), device)
    return StepDraw((places, squeezes), tuple(d.layout() for d in drafts))


def stage_plans(paths: StepDraw) -> list[StagePlan]:
    """The plans of all stages, as views of what `prepare` sent."""
    layouts = cast(tuple[StageLayout, ...], paths.same)
    places, squeezes = paths.tensors
    numbers = iter(torch.split(places, [n for _, lengths in layouts for n in lengths]))
    taken = [n for blocks, lengths in layouts for n in lengths[: len(blocks)]]
    squeeze = iter(torch.split(squeezes, taken))
    plans = []
    for blocks, _ in layouts:
        take, leave, expansion, group = ([next(numbers) for _ in blocks] for _ in range(4))
        steps = []
        for b, (small, even) in enumerate(blocks):
            plan = BlockPlan(small, even, expansion[b], group[b], next(squeeze)[:, None])
            steps.append((take[b], leave[b], plan))
        plans.append(StagePlan(steps, next(numbers)))
    return plans


def _sent(array: np.ndarray, device: torch.device) -> Tensor:
    """Many small arrays on the device, by one copy that is not waited for."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def many_paths(x: Tensor, blocks: nn.Module, plan: StagePlan) -> Tensor:
    """One stage with a path of its own for every image."""
    left = []
    for block, (take, leave, configs) in zip(blocks.children(), plan.steps, strict=False):
        if len(leave):
            left.append(x.index_select(0, leave))
        if not len(take):
            return torch.cat(left).index_select(0, plan.restore)
        x = block.many(x.index_select(0, take), configs)  # type: ignore[operator]
    return torch.cat([*left, x]).index_select(0, plan.restore)
