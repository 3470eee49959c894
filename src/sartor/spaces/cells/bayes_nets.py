"""The network in which BayesNAS evaluates its cells: pre-activation order, any number of operations an edge.

It differs from DARTS's in what the published parameters show: batch-norm and ReLU come before every convolution, the
stem has no batch-norm, poolings have none either, the last cell's output has one, and where the cell before was a
reduction the input from two cells before first goes through a strided pointwise convolution of its own.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.cells.genotype import Genotype
from sartor.spaces.cells.nets import Frame, Stack, StackedCell
from sartor.spaces.cells.ops import Classifier, LargeStem
from sartor.spaces.pooling import AvgPool2d


class BnReluConv(nn.Sequential):
    """Pointwise: what brings a cell's inputs to its width; `halves` puts a strided pointwise convolution before it."""

    def __init__(self, inputs: int, outputs: int, halves: bool) -> None:
        before = [nn.Conv2d(inputs, inputs, 1, 2, bias=False)] if halves else []
        super().__init__(*before, nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False))


def _separable(channels: int, kernel: int, stride: int) -> nn.Module:
    """Depthwise-separable convolution, applied twice (appendix D.1); the stride is the first one's."""
    layers: list[nn.Module] = []
    for step in (stride, 1):
        layers += [
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, bias=False),
        ]
    return nn.Sequential(*layers)


def operation(name: str, channels: int, stride: int) -> nn.Module:
    """The operation called `name`; dilated convolutions are full ones, and poolings see a border of zeros."""
    if name == "skip_connect":
        halve = nn.Conv2d(channels, channels, 1, 2, bias=False)
        return nn.Identity() if stride == 1 else nn.Sequential(nn.BatchNorm2d(channels), halve)
    kind, _, size = name.rpartition("_")
    if kind == "max_pool":
        return nn.Sequential(nn.ZeroPad2d(1), nn.MaxPool2d(3, stride))
    if kind == "avg_pool":
        return AvgPool2d(3, stride, 1)
    kernel = int(size[0]) if size[:1].isdigit() else 0
    if kind == "sep_conv":
        return _separable(channels, kernel, stride)
    if kind == "dil_conv":
        dilated = nn.Conv2d(channels, channels, kernel, stride, kernel - 1, dilation=2, bias=False)
        return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), dilated)
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
        width = frame.stem_width()
        # What the paper's ImageNet stem is, nobody says: there it is DARTS's.
        small = nn.Conv2d(task.channels, width, 3, padding=1, bias=False)
        self.stem = LargeStem(task.channels, width) if frame.large else small
        self.cells = nn.ModuleList()
        for s in slots:
            inputs = BnReluConv(s.before, s.width, s.shrinks), BnReluConv(s.last, s.width, False)
            self.cells.append(BayesCell(kinds[s.reduces], s, inputs, operation, DropChannels()))
        last = slots[-1].width * len(kinds[slots[-1].reduces].concat)
        self.norm = nn.BatchNorm2d(last)
        self.classifier = Classifier(last, task.classes)

    def logits(self, last: Tensor) -> Tensor:
        """From the last cell's output, which has a batch-norm."""
        return super().logits(self.norm(last))
