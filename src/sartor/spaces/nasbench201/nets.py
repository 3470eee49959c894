"""NAS-Bench-201's macro skeleton: the stand-alone network and the supernet.

A 3x3 stem, three stages of equal cells, a residual reduction block of stride 2 between stages, a
head of batch-norm, ReLU, global average and a linear classifier: the benchmark's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.core.arch import Arch
from sartor.core.task import Task
from sartor.spaces.base import Gates, Picks
from sartor.spaces.ops import Modules
from sartor.spaces.pooling import AvgPool2d
from sartor.spaces.supernet import Supernet

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = tuple((source, node) for node in (1, 2, 3) for source in range(node))
_NODES = 4


class ReluConvBn(nn.Sequential):
    """The benchmark's convolution: ReLU, convolution without bias, batch-norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        super().__init__(nn.ReLU(), conv, nn.BatchNorm2d(outputs))

    @property
    def conv(self) -> nn.Conv2d:
        """The layer between the other two."""
        return cast(nn.Conv2d, self[1])


class Stem(nn.Sequential):
    """A 3x3 convolution and batch-norm."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs))


class Reduction(nn.Module):
    """A basic residual block of stride 2; its shortcut averages 2x2 pixels before a 1x1 convolution."""

    def __init__(self, inputs: int, outputs: int, odd: bool = False) -> None:
        super().__init__()
        self.convs = nn.Sequential(ReluConvBn(inputs, outputs, 3, 2), ReluConvBn(outputs, outputs, 3))
        # A map of odd side is halved upwards, as the strided convolution does it.
        pool = nn.AvgPool2d(2, 2, ceil_mode=odd)
        self.shortcut = nn.Sequential(pool, nn.Conv2d(inputs, outputs, 1, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.shortcut(x) + self.convs(x)
        return y


class Head(nn.Module):
    """Batch-norm, ReLU, the global average, and a linear classifier."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.act = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classifier(F.adaptive_avg_pool2d(self.act(x), 1).flatten(1))
        return y


def operation(name: str, channels: int) -> nn.Module:
    """An operation that computes something; the other two are the absence and the input itself."""
    if name == "avg_pool_3x3":
        return AvgPool2d(3, 1, 1, count_include_pad=False)
    return ReluConvBn(channels, channels, 3 if name == "nor_conv_3x3" else 1)


class Cell(nn.Module):
    """One cell with one operation an edge."""

    def __init__(self, names: Sequence[str], channels: int) -> None:
        super().__init__()
        self.names = tuple(names)
        # Named by the edge, so that a cell's tensors are called as the supernet's are.
        self.ops = nn.ModuleDict(
            {str(e): operation(n, channels) for e, n in enumerate(names) if n not in ("none", "skip_connect")}
        )

    def forward(self, x: Tensor) -> Tensor:
        return _cell(x, _picked(self.names, lambda e: self.ops[str(e)]))


def _picked(names: Sequence[str], op: Callable[[int], nn.Module]) -> Callable[[int, Tensor], Tensor | None]:
    """What every edge gives with the operation that is named for it."""

    def edge(e: int, source: Tensor) -> Tensor | None:
        if names[e] == "none":
            return None
        return source if names[e] == "skip_connect" else op(e)(source)

    return edge


def _cell(x: Tensor, edge: Callable[[int, Tensor], Tensor | None]) -> Tensor:
    """Node j is the sum over i < j of an edge's operation on node i; a node that nothing reaches is zero."""
    nodes, e = [x], 0
    for node in range(1, _NODES):
        total: Tensor | None = None
        for source in range(node):
            y = edge(e, nodes[source])
            total = y if total is None else total if y is None else total + y
            e += 1
        # Not a constant: a network whose input were folded away could be neither exported nor timed.
        nodes.append(x * 0.0 if total is None else total)
    return nodes[-1]


class MixedCell(nn.Module):
    """One cell with every operation on every edge."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        computed = ("nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
        self.edges: Modules[nn.ModuleDict] = Modules(
            nn.ModuleDict({name: operation(name, channels) for name in computed}) for _ in range(6)
        )

    def one(self, x: Tensor, names: Sequence[str]) -> Tensor:
        """The whole batch through one cell."""
        return _cell(x, _picked(names, lambda e: self.edges[e][names[e]]))

    def many(self, x: Tensor, groups: Sequence[dict[str, Tensor]]) -> Tensor:
        """Every image through a cell of its own: on every edge, an operation works on the images that picked it."""

        def edge(e: int, source: Tensor) -> Tensor:
            total = torch.zeros_like(source)
            for name, where in groups[e].items():
                if name != "none":
                    part = source.index_select(0, where)
                    part = part if name == "skip_connect" else self.edges[e][name](part)
                    total = total.index_copy(0, where, part.to(total.dtype))
            return total

        return _cell(x, edge)

    def mixed(self, x: Tensor, weights: Sequence[Tensor], order: Sequence[str]) -> Tensor:
        """Every edge the sum of its operations' outputs, each times its weight."""

        def edge(e: int, source: Tensor) -> Tensor:
            gate, ops = dict(zip(order, weights[e].unbind(), strict=True)), self.edges[e]
            total: Tensor = source * gate["skip_connect"] + gate["avg_pool_3x3"] * ops["avg_pool_3x3"](source)
            small, large = (cast(ReluConvBn, ops[name]) for name in ("nor_conv_1x1", "nor_conv_3x3"))
            if isinstance(small[2], nn.Identity) and isinstance(large[2], nn.Identity):
                # Without batch-norm a sum of convolutions is one convolution: a third less to compute and to keep.
                kernel = gate["nor_conv_3x3"] * large.conv.weight
                kernel = kernel + F.pad(gate["nor_conv_1x1"] * small.conv.weight, (1,) * 4)
                return total + F.conv2d(F.relu(source), kernel, padding=1)
            total = total + gate["nor_conv_1x1"] * small(source) + gate["nor_conv_3x3"] * large(source)
            return total

        return _cell(x, edge)


class CellNet(nn.Module):
    """One network of the space, ready to train, export and time."""

    def __init__(self, names: Sequence[str], cells: int, channels: int, task: Task) -> None:
        super().__init__()
        self.stem = Stem(task.channels, channels)
        stages, reductions = [], []
        c, side = channels, task.image
        for stage in range(3):
            if stage:
                reductions.append(Reduction(c, 2 * c, side % 2 == 1))
                c, side = 2 * c, -(-side // 2)
            stages.append(nn.Sequential(*(Cell(names, c) for _ in range(cells))))
        self.stages: Modules[nn.Sequential] = Modules(stages)
        self.reductions: Modules[Reduction] = Modules(reductions)
        self.head = Head(c, task.classes)

    def trace(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """The features after the stem and after every stage, and the logits."""
        features = [self.stem(x)]
        for s, stage in enumerate(self.stages):
            x = self.reductions[s - 1](features[-1]) if s else features[-1]
            features.append(stage(x))
        return features, self.head(features[-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.trace(x)[1]


class CellSupernet(Supernet):
    """Every network of the space in one set of shared weights."""

    def __init__(self, cells: int, channels: int, task: Task) -> None:
        super().__init__()
        self.cells, self.channels, self.task = cells, channels, task
        frame = CellNet((), 0, channels, task)  # the skeleton without its cells
        self.stem, self.reductions, self.head = frame.stem, frame.reductions, frame.head
        self.stages: Modules[Modules[MixedCell]] = Modules(
            Modules(MixedCell(channels * 2**stage) for _ in range(cells)) for stage in range(3)
        )

    def trace(self, x: Tensor, who: Arch | Picks | Gates) -> tuple[list[Tensor], Tensor]:
        """The features after the stem and after every stage, and the logits."""
        features = [self.stem(x)]
        names = [OPERATIONS[p] for p in who.picks] if isinstance(who, Arch) else []
        groups = _groups(who, x.device, OPERATIONS) if isinstance(who, np.ndarray) else []
        for s, stage in enumerate(self.stages):
            x = self.reductions[s - 1](features[-1]) if s else features[-1]
            for cell in stage:
                if isinstance(who, Arch):
                    x = cell.one(x, names)
                elif isinstance(who, Gates):
                    x = cell.mixed(x, who.weights, OPERATIONS)
                else:
                    x = cell.many(x, groups)
            features.append(x)
        return features, self.head(features[-1])

    def extract(self, arch: Arch) -> CellNet:
        """The stand-alone network with copies of the weights."""
        names = [OPERATIONS[p] for p in arch.picks]
        device = self.head.classifier.weight.device
        net = CellNet(names, self.cells, self.channels, self.task).to(device)
        for mine, theirs in ((self.stem, net.stem), (self.reductions, net.reductions), (self.head, net.head)):
            theirs.load_state_dict(mine.state_dict())
        for stage, cells in zip(self.stages, net.stages, strict=True):
            for mixed, cell in zip(stage, cells, strict=True):
                for e, op in cast(Cell, cell).ops.items():
                    op.load_state_dict(mixed.edges[int(e)][names[int(e)]].state_dict())
        return net.eval()


def _groups(picks: Picks, device: torch.device, order: Sequence[str]) -> list[dict[str, Tensor]]:
    """For every edge, which images of the batch picked which operation."""
    groups = []
    for e in range(picks.shape[1]):
        where = {name: np.flatnonzero(picks[:, e] == k) for k, name in enumerate(order)}
        groups.append({name: torch.from_numpy(w).to(device) for name, w in where.items() if len(w)})
    return groups
