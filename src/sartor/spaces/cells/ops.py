"""Operations, stems and heads of cell networks (DARTS, section 3; XNAS, sections 4.1 and 9.2): ReLU-Conv-BN order."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.spaces.cells.genotype import ZERO
from sartor.spaces.pooling import AvgPool2d


class ReluConvBn(nn.Sequential):
    """Pointwise: what brings a cell's inputs to its width."""

    def __init__(self, inputs: int, outputs: int, affine: bool = True) -> None:
        super().__init__(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs, affine=affine))


class FactorizedReduce(nn.Module):
    """Half the side without losing pixels: two strided pointwise convolutions, one of them a pixel further on."""

    def __init__(self, inputs: int, outputs: int, affine: bool = True) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs, affine=affine)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        shifted = x[:, :, 1:, 1:]
        if x.shape[-1] % 2:  # an odd side: a border of zeros, so that both halves have the same size
            shifted = F.pad(shifted, (0, 1, 0, 1))
        out: Tensor = self.norm(torch.cat([self.even(x), self.odd(shifted)], 1))
        return out


class SepConv(nn.Sequential):
    """Depthwise-separable convolution, applied twice; the stride is the first one's."""

    def __init__(self, channels: int, kernel: int, stride: int, affine: bool = True) -> None:
        layers: list[nn.Module] = []
        for step in (stride, 1):
            layers += [
                nn.ReLU(),
                nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
                nn.Conv2d(channels, channels, 1, bias=False),
                nn.BatchNorm2d(channels, affine=affine),
            ]
        super().__init__(*layers)


class DilConv(nn.Sequential):
    """Depthwise-separable convolution with dilation 2, applied once."""

    def __init__(self, channels: int, kernel: int, stride: int, affine: bool = True) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(channels, channels, kernel, stride, kernel - 1, dilation=2, groups=channels, bias=False),
            nn.Conv2d(channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels, affine=affine),
        )


class Zero(nn.Module):
    """Nothing, at the right size."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return x[:, :, :: self.stride, :: self.stride] * 0.0


def operation(name: str, channels: int, stride: int, affine: bool = True, pool_norm: bool = True) -> nn.Module:
    """The operation called `name`; with `pool_norm` a batch-norm without parameters follows a pooling."""
    if name == "skip_connect":
        return nn.Identity() if stride == 1 else FactorizedReduce(channels, channels, affine)
    if name == ZERO:
        return Zero(stride)
    kind, _, size = name.rpartition("_")
    kernel = int(size[0])
    if kind == "sep_conv":
        return SepConv(channels, kernel, stride, affine)
    if kind == "dil_conv":
        return DilConv(channels, kernel, stride, affine)
    pool: nn.Module = nn.MaxPool2d(kernel, stride, kernel // 2)
    if kind == "avg_pool":
        pool = AvgPool2d(kernel, stride, kernel // 2, count_include_pad=False)
    return nn.Sequential(pool, nn.BatchNorm2d(channels, affine=False)) if pool_norm else nn.Sequential(pool)


class SmallStem(nn.Sequential):
    """For small images: one 3x3 convolution; both inputs of the first cell."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__(nn.Conv2d(channels, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))


class LargeStem(nn.Module):
    """For large images: three strided convolutions; the first cell reads the maps at a quarter and at an eighth."""

    def __init__(self, channels: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first = nn.Sequential(
            nn.Conv2d(channels, half, 3, 2, 1, bias=False),
            nn.BatchNorm2d(half),
            nn.ReLU(),
            nn.Conv2d(half, outputs, 3, 2, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.second = nn.Sequential(
            nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        quarter = self.first(x)
        return quarter, self.second(quarter)


class Classifier(nn.Module):
    """Global average pool and a linear layer."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.0)
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(self.dropout(F.adaptive_avg_pool2d(x, 1).flatten(1)))
        return out


class Auxiliary(nn.Module):
    """A second classifier on an inner map, in training only (XNAS, section 9.3); `stride` is 3 for small images.

    Maps smaller than its pooling are first brought to 8 x 8, the size that it was made for.
    """

    def __init__(self, inputs: int, classes: int, stride: int = 3) -> None:
        super().__init__()
        self.stride = stride
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, 128, 1, bias=False),
            nn.BatchNorm2d(128),
            nn.ReLU(),
            nn.Conv2d(128, 768, 2, bias=False),
            nn.BatchNorm2d(768),
            nn.ReLU(),
        )
        self.linear = nn.Linear(768, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        if x.shape[-1] < 5 + self.stride:
            x = F.interpolate(x, size=8)
        x = F.avg_pool2d(x, 5, self.stride, count_include_pad=False)
        out: Tensor = self.linear(F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))
        return out


class SqueezeExcite(nn.Module):
    """Channel attention on a cell's output: two linear layers without bias, sigmoid gate."""

    def __init__(self, channels: int, reduction: int) -> None:
        super().__init__()
        self.reduce = nn.Linear(channels, channels // reduction, bias=False)
        self.expand = nn.Linear(channels // reduction, channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.expand(F.relu(self.reduce(F.adaptive_avg_pool2d(x, 1).flatten(1)))))
        return x * gate[:, :, None, None]


class DropPath(nn.Module):
    """In training, an image loses this path with probability `path_p`, which a schedule sets; the rest is scaled up."""

    def __init__(self) -> None:
        super().__init__()
        self.path_p = 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.path_p == 0.0:
            return x
        keep = torch.rand(len(x), 1, 1, 1, device=x.device) >= self.path_p
        return x * keep / (1.0 - self.path_p)
