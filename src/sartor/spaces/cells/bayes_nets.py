"""The network in which BayesNAS searches and evaluates its cells: BN-ReLU-Conv order, any operations on an edge.

It differs from DARTS's in what the published parameters show: batch-norm and ReLU come before every convolution, the
stem has no batch-norm, poolings have none either, the last cell's output has one, and where the cell before was a
reduction the input from two cells before first goes through a strided pointwise convolution of its own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.cells.genotype import Genotype
from sartor.spaces.cells.nets import Frame, Slot, Stack, StackedCell
from sartor.spaces.cells.ops import Classifier, LargeStem
from sartor.spaces.pooling import AvgPool2d


class BnReluConv(nn.Sequential):
    """Pointwise: what brings a cell's inputs to its width; `halves` puts a strided pointwise convolution before it."""

    def __init__(self, inputs: int, outputs: int, halves: bool, affine: bool = True) -> None:
        before = [nn.Conv2d(inputs, inputs, 1, 2, bias=False)] if halves else []
        norm = nn.BatchNorm2d(inputs, affine=affine)
        super().__init__(*before, norm, nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False))


class NormedClassifier(Classifier):
    """What the last cell gives has met no batch-norm yet."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(inputs, classes)
        self.norm = nn.BatchNorm2d(inputs)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.norm(x))


def stem(frame: Frame, channels: int) -> nn.Module:
    """What the paper's ImageNet stem is, nobody says: there it is DARTS's."""
    width = frame.stem_width()
    return LargeStem(channels, width) if frame.large else nn.Conv2d(channels, width, 3, padding=1, bias=False)


def preprocess(slot: Slot, number: int, affine: bool = True) -> nn.Module:
    """What brings input 0 or 1 to the cell's width and side."""
    inputs = slot.last if number else slot.before
    return BnReluConv(inputs, slot.width, slot.shrinks and number == 0, affine)


class ZeroedMaxPool(nn.MaxPool2d):
    """A 3x3 max-pooling that sees a border of zeros.

    As a padding with zeros and a pooling it would be deployed as something else: ONNX Runtime (1.31) fuses the two into
    one pooling, whose border is of nothing.
    """

    def __init__(self, stride: int) -> None:
        super().__init__(3, stride, 1)
        self.step = stride

    def forward(self, x: Tensor) -> Tensor:
        out = super().forward(x)
        ends = [torch.arange(n, device=x.device) * self.step for n in out.shape[2:]]
        rows, columns = ((at == 0) | (at + 1 >= side) for at, side in zip(ends, x.shape[2:], strict=True))
        return torch.where(rows[:, None] | columns[None], out.clamp_min(0.0), out)


def _separable(channels: int, kernel: int, stride: int, affine: bool) -> nn.Module:
    """Depthwise-separable convolution, applied twice (appendix D.1); the stride is the first one's."""
    layers: list[nn.Module] = []
    for step in (stride, 1):
        layers += [
            nn.BatchNorm2d(channels, affine=affine),
            nn.ReLU(),
            nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, bias=False),
        ]
    return nn.Sequential(*layers)


def operation(name: str, channels: int, stride: int, affine: bool = True) -> nn.Module:
    """The operation called `name`; dilated convolutions are full ones, and poolings see a border of zeros."""
    if name == "skip_connect":
        halve = nn.Conv2d(channels, channels, 1, 2, bias=False)
        return nn.Identity() if stride == 1 else nn.Sequential(nn.BatchNorm2d(channels, affine=affine), halve)
    kind, _, size = name.rpartition("_")
    if kind == "max_pool":
        return ZeroedMaxPool(stride)
    if kind == "avg_pool":
        return AvgPool2d(3, stride, 1)
    kernel = int(size[0]) if size[:1].isdigit() else 0
    if kind == "sep_conv":
        return _separable(channels, kernel, stride, affine)
    if kind == "dil_conv":
        dilated = nn.Conv2d(channels, channels, kernel, stride, kernel - 1, dilation=2, bias=False)
        return nn.Sequential(nn.BatchNorm2d(channels, affine=affine), nn.ReLU(), dilated)
    raise BadInput(f"cells of BayesNAS have no operation {name!r}: an edge without operations is simply left out.")


class DropChannels(nn.Module):
    """In training, an operation's output loses whole channels with probability `path_p`, which a schedule sets."""

    def __init__(self) -> None:
        super().__init__()
        self.path_p = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout2d(x, self.path_p, self.training)


class BayesCell(StackedCell):
    """One cell; identities lose channels too."""

    def _path(self, op: nn.Module, x: Tensor) -> Tensor:
        out: Tensor = self.drop(op(x))
        return out


class BayesNet(Stack):
    """A network of stacked cells as BayesNAS evaluates them (section 6.1, appendix D)."""

    def __init__(self, genotype: Genotype, frame: Frame, task: Task) -> None:
        super().__init__()
        kinds = (genotype.normal, genotype.reduce)
        slots = frame.slots(task.image, (len(kinds[0].concat), len(kinds[1].concat)))
        self.stem = stem(frame, task.channels)
        self.cells = nn.ModuleList(
            BayesCell(kinds[s.reduces], s, (preprocess(s, i) for i in (0, 1)), operation, DropChannels()) for s in slots
        )
        self.classifier = NormedClassifier(slots[-1].width * len(kinds[slots[-1].reduces].concat), task.classes)
