"""NAS-Bench-1Shot1's networks: the stand-alone one and the supernet.

A cell's input reaches a node, or the output, through a 1x1 projection of its own. The output is the concatenation of
all nodes and of the projected input, those that were not chosen being zero, so that every cell of a space has the same
shape. A 2x2 max-pool stands before the second and the third stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.core.arch import Arch
from sartor.core.task import Task
from sartor.spaces.base import Gates, Picks
from sartor.spaces.ops import Modules
from sartor.spaces.supernet import Supernet

OPERATIONS = ("maxpool3x3", "conv1x1-bn-relu", "conv3x3-bn-relu")


@dataclass(frozen=True, slots=True)
class Frame:
    """What is not searched, and who may read whom: the possible inputs of every node, and last of the output."""

    inputs: tuple[tuple[tuple[int, ...], ...], ...]
    channels: int  # of the stem
    cells: tuple[tuple[int, int, int], ...]  # of every cell: input channels, a node's channels, the side

    @property
    def nodes(self) -> int:
        """Nodes with an operation."""
        return len(self.inputs) - 1


class ConvBnRelu(nn.Sequential):
    """Convolution without bias, batch-norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class Head(nn.Module):
    """The global average and a linear classifier."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.classifier(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return y


def operation(name: str, channels: int) -> nn.Module:
    """The operation of a node."""
    if name == "maxpool3x3":
        return nn.MaxPool2d(3, 1, 1)
    return ConvBnRelu(channels, channels, 3 if name.startswith("conv3x3") else 1)


def pool(odd: bool) -> nn.Module:
    """Halves the side, upwards."""
    return nn.MaxPool2d(2, 2, ceil_mode=odd)


Node = Callable[[int, Tensor], Tensor]
Reads = Sequence[Sequence[Tensor | float]]  # (node, source): the weight of every source, 0 where it is not read


def _cell(x: Tensor, channels: int, reads: Reads, project: Node, operate: Node) -> Tensor:
    """Sums of the sources that are read, an operation on each; the output keeps what it reads."""
    nodes: list[Tensor] = []
    shape = (len(x), channels, *x.shape[2:])
    for j, row in enumerate(reads[:-1]):
        total: Tensor = x.new_zeros(shape)
        if _read(row[0]):
            total = total + _weighed(row[0], project(j, x))
        for weight, node in zip(row[1:], nodes, strict=True):
            if _read(weight):
                total = total + _weighed(weight, node)
        nodes.append(operate(j, total))
    last = reads[-1]
    kept = [_weighed(last[0], project(len(nodes), x)) if _read(last[0]) else x.new_zeros(shape)]
    kept += [_weighed(w, n) if _read(w) else torch.zeros_like(n) for w, n in zip(last[1:], nodes, strict=True)]
    return torch.cat(kept, 1)


def _read(weight: Tensor | float) -> bool:
    return isinstance(weight, Tensor) or weight != 0


def _weighed(weight: Tensor | float, x: Tensor) -> Tensor:
    return x if isinstance(weight, float) else weight * x


class Cell(nn.Module):
    """One cell."""

    def __init__(self, frame: Frame, arch: Arch, inputs: int, channels: int) -> None:
        super().__init__()
        self.channels, self.reads = channels, _reads_of(frame, arch)
        self.ops = nn.ModuleList(operation(n, channels) for n in _names(frame, arch))
        self.projections = nn.ModuleDict(
            {str(j): ConvBnRelu(inputs, channels, 1) for j, row in enumerate(self.reads) if row[0]}
        )

    def forward(self, x: Tensor) -> Tensor:
        project: Node = lambda j, x: self.projections[str(j)](x)  # noqa: E731
        operate: Node = lambda j, x: self.ops[j](x)  # noqa: E731
        return _cell(x, self.channels, self.reads, project, operate)


class MixedCell(nn.Module):
    """One cell with all operations of every node and all projections."""

    def __init__(self, frame: Frame, inputs: int, channels: int) -> None:
        super().__init__()
        self.channels = channels
        self.ops: Modules[nn.ModuleList] = Modules(
            nn.ModuleList(operation(n, channels) for n in OPERATIONS) for _ in range(frame.nodes)
        )
        self.projections = nn.ModuleList(ConvBnRelu(inputs, channels, 1) for _ in range(frame.nodes + 1))

    def forward(self, x: Tensor, reads: Reads, operate: Callable[[nn.ModuleList, int, Tensor], Tensor]) -> Tensor:
        project: Node = lambda j, x: self.projections[j](x)  # noqa: E731
        return _cell(x, self.channels, reads, project, lambda j, y: operate(self.ops[j], j, y))


def _names(frame: Frame, arch: Arch) -> list[str]:
    return [OPERATIONS[p] for p in arch.picks[: frame.nodes]]


def _reads_of(frame: Frame, arch: Arch) -> list[list[float]]:
    """Who reads whom: 1.0 where it does."""
    rows = zip(frame.inputs, arch.picks[frame.nodes :], strict=True)
    return [[float(i in options[p]) for i in range(j + 1)] for j, (options, p) in enumerate(rows)]


class OneShotNet(nn.Module):
    """One network of the space, ready to train, export and time."""

    def __init__(self, frame: Frame, arch: Arch, task: Task) -> None:
        super().__init__()
        self.stem = ConvBnRelu(task.channels, frame.channels, 3)
        self.cells: Modules[Cell] = Modules(Cell(frame, arch, inputs, channels) for inputs, channels, _ in frame.cells)
        self.pools = _pools([side for _, _, side in frame.cells])
        self.head = Head((frame.nodes + 1) * frame.cells[-1][1], task.classes)

    def trace(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """The features after the stem and after every cell, and the logits."""
        features = [self.stem(x)]
        for cell, pool_ in zip(self.cells, self.pools, strict=True):
            features.append(cell(pool_(features[-1])))
        return features, self.head(features[-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.trace(x)[1]


def _pools(sides: Sequence[int]) -> nn.ModuleList:
    """What stands before every cell: nothing, or a max-pool where the side changes."""
    before = [sides[0], *sides[:-1]]
    return nn.ModuleList(pool(a % 2 == 1) if a != b else nn.Identity() for a, b in zip(before, sides, strict=True))


class OneShotSupernet(Supernet):
    """Every network of the space in one set of shared weights."""

    def __init__(self, frame: Frame, task: Task) -> None:
        super().__init__()
        self.frame, self.task = frame, task
        self.stem = ConvBnRelu(task.channels, frame.channels, 3)
        self.cells: Modules[MixedCell] = Modules(
            MixedCell(frame, inputs, channels) for inputs, channels, _ in frame.cells
        )
        self.pools = _pools([side for _, _, side in frame.cells])
        self.head = Head((frame.nodes + 1) * frame.cells[-1][1], task.classes)

    def trace(self, x: Tensor, who: Arch | Picks | Gates) -> tuple[list[Tensor], Tensor]:
        """The features after the stem and after every cell, and the logits."""
        reads, operate = self._route(who, x.device)
        features = [self.stem(x)]
        for cell, pool_ in zip(self.cells, self.pools, strict=True):
            features.append(cell(pool_(features[-1]), reads, operate))
        return features, self.head(features[-1])

    def _route(self, who: Arch | Picks | Gates, device: torch.device) -> tuple[Reads, Callable[..., Tensor]]:
        """Weights of the sources and how a node's operations are applied."""
        if isinstance(who, Arch):
            return _reads_of(self.frame, who), lambda ops, j, y: ops[who.picks[j]](y)
        nodes = self.frame.nodes
        if isinstance(who, Gates):
            rows = [
                _members(o, j, w) for j, (o, w) in enumerate(zip(self.frame.inputs, who.weights[nodes:], strict=True))
            ]
            return rows, lambda ops, j, y: sum(w * op(y) for w, op in zip(who.weights[j].unbind(), ops, strict=True))
        hot = [
            torch.from_numpy(np.eye(len(o), dtype=np.float32)[who[:, nodes + j]]).to(device)
            for j, o in enumerate(self.frame.inputs)
        ]
        rows = [
            [w[:, None, None, None] for w in _members(o, j, h)]
            for j, (o, h) in enumerate(zip(self.frame.inputs, hot, strict=True))
        ]
        groups = [[torch.from_numpy(np.flatnonzero(who[:, j] == k)).to(device) for k in range(3)] for j in range(nodes)]
        return rows, lambda ops, j, y: _grouped(ops, groups[j], y)

    def extract(self, arch: Arch) -> OneShotNet:
        """The stand-alone network with copies of the weights."""
        net = OneShotNet(self.frame, arch, self.task).to(self.head.classifier.weight.device)
        net.stem.load_state_dict(self.stem.state_dict())
        net.head.load_state_dict(self.head.state_dict())
        for mixed, cell in zip(self.cells, net.cells, strict=True):
            for j, op in enumerate(cell.ops):
                op.load_state_dict(mixed.ops[j][arch.picks[j]].state_dict())
            for name, projection in cell.projections.items():
                projection.load_state_dict(mixed.projections[int(name)].state_dict())
        return net.eval()


def _members(options: Sequence[Sequence[int]], node: int, weights: Tensor) -> list[Tensor]:
    """The weight of every source: the sum over the options that contain it."""
    rows = torch.tensor([[float(i in o) for o in options] for i in range(node + 1)], device=weights.device)
    return list((weights @ rows.T.to(weights.dtype)).unbind(-1))


def _grouped(ops: nn.ModuleList, groups: Sequence[Tensor], y: Tensor) -> Tensor:
    """Every image through the operation that it picked."""
    total = torch.zeros_like(y)
    for op, where in zip(ops, groups, strict=True):
        if len(where):
            total = total.index_copy(0, where, op(y.index_select(0, where)).to(total.dtype))
    return total
