"""The mobile space's stand-alone network and its supernet."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.arch import Arch
from sartor.core.task import Task
from sartor.spaces.base import Gates, Picks
from sartor.spaces.mobile.elastic import ElasticBlock
from sartor.spaces.mobile.frame import DEPTHS, Frame, stages
from sartor.spaces.mobile.multipath import many_paths, prepare, stage_plans
from sartor.spaces.ops import Head, InvertedResidual, Modules, Stem, initialise
from sartor.spaces.supernet import StepDraw, Supernet


class MobileNet(nn.Module):
    """One network of the mobile space, ready to train, export and time."""

    def __init__(self, frame: Frame, stages: list[list[tuple[int, int, bool]]], task: Task) -> None:
        super().__init__()
        self.stem = Stem(task.channels, frame.stem, frame.first, frame.stem_stride, frame.skip)
        inputs, built = frame.first, []
        for s, blocks in enumerate(stages):
            stage: list[nn.Module] = []
            for b, (e, k, se) in enumerate(blocks):
                stride = frame.strides[s] if b == 0 else 1
                stage.append(InvertedResidual(inputs, frame.widths[s], stride, k, e, se, hard_swish=s >= 2))
                inputs = frame.widths[s]
            built.append(nn.Sequential(*stage))
        self.stages = nn.ModuleList(built)
        self.head = Head(inputs, frame.head, frame.hidden, task.classes)
        initialise(self)

    def trace(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """The features after the stem and after every stage, and the logits."""
        features = [self.stem(x)]
        for stage in self.stages:
            features.append(stage(features[-1]))
        return features, self.head(features[-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.trace(x)[1]


class MobileSupernet(Supernet):
    """Every network of the mobile space in one set of shared weights (see `_elastic`)."""

    def __init__(self, frame: Frame, task: Task) -> None:
        super().__init__()
        self.frame, self.task = frame, task
        self.stem = Stem(task.channels, frame.stem, frame.first, frame.stem_stride, frame.skip)
        inputs, built = frame.first, list[Modules[ElasticBlock]]()
        for s, width in enumerate(frame.widths):
            blocks = []
            for b in range(DEPTHS[-1]):
                blocks.append(ElasticBlock(inputs, width, frame.strides[s] if b == 0 else 1, hard_swish=s >= 2))
                inputs = width
            built.append(Modules(blocks))
        self.stages: Modules[Modules[ElasticBlock]] = Modules(built)
        self.head = Head(inputs, frame.head, frame.hidden, task.classes)
        initialise(self)

    def prepared(self, picks: Picks, device: torch.device) -> StepDraw:
        """The paths as the stages run them."""
        return prepare(picks, device)

    def trace(self, x: Tensor, who: Arch | Picks | StepDraw | Gates) -> tuple[list[Tensor], Tensor]:
        """The features after the stem and after every stage, and the logits."""
        features = [self.stem(x)]
        paths = prepare(who, x.device) if isinstance(who, np.ndarray) else who
        plans = stage_plans(paths) if isinstance(paths, StepDraw) else None
        for s, blocks in enumerate(self.stages):
            x = features[-1]
            if isinstance(who, Arch):
                features.append(self._one_path(x, blocks, who.picks[5 * s : 5 * s + 5]))
            elif plans is not None:
                features.append(many_paths(x, blocks, plans[s]))
            else:
                assert isinstance(who, Gates)
                features.append(_mixture(x, blocks, who.weights[5 * s : 5 * s + 5]))
        return features, self.head(features[-1])

    @staticmethod
    def _one_path(x: Tensor, blocks: Modules[ElasticBlock], picks: tuple[int, ...]) -> Tensor:
        depth = DEPTHS[picks[0]]
        for block, config in zip(list(blocks)[:depth], picks[1:], strict=False):
            x = block.one(x, config)
        return x

    def extract(self, arch: Arch) -> MobileNet:
        """The stand-alone network of `arch` with this supernet's weights and batch-norm statistics."""
        net = MobileNet(self.frame, stages(arch), self.task)
        net.stem.load_state_dict(self.stem.state_dict())
        net.head.load_state_dict(self.head.state_dict())
        for s, blocks in enumerate(self.stages):
            picks = arch.picks[5 * s : 5 * s + 5]
            elastic = list(blocks)[: DEPTHS[picks[0]]]
            net.stages[s] = nn.Sequential(*(b.extract(c) for b, c in zip(elastic, picks[1:], strict=False)))
        weight = self.head.classifier.weight
        return net.to(weight.device, weight.dtype).train(self.training)

    def sort_channels(self) -> None:
        """Reorder every block's shared channels by the importance that the gradients held in `.grad` give."""
        for block in self.elastic_blocks():
            block.sort_channels()

    def inherit(self) -> None:
        """Start the options that the heaviest network never ran from what it learnt."""
        for block in self.elastic_blocks():
            block.inherit()

    def elastic_blocks(self) -> list[ElasticBlock]:
        """All blocks, in order."""
        return [m for m in self.modules() if isinstance(m, ElasticBlock)]


def _mixture(x: Tensor, blocks: Modules[ElasticBlock], weights: tuple[Tensor, ...]) -> Tensor:
    """One stage as a mixture: ``x_{s+1} = sum_d beta_d x_{d}`` over mixed blocks."""
    depth, *configs = weights
    total: Tensor | float = 0.0
    for b, (block, gate) in enumerate(zip(blocks, configs, strict=True), start=1):
        x = block.mixed(x, gate)
        if b >= DEPTHS[0]:
            total = total + depth[b - DEPTHS[0]] * x
    assert isinstance(total, Tensor)
    return total
