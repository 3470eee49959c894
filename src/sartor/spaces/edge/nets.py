"""The edge space's networks: a stem that may shrink its images, stages of blocks, a head."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from sartor.spaces.edge.frame import Block, Frame
from sartor.spaces.ops import ConvBnAct
from sartor.spaces.plain.nets import Basic, Bottleneck, Classifier, Inverted, Residual

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU, "hard_swish": nn.Hardswish, "relu6": nn.ReLU6, "silu": nn.SiLU,
}  # fmt: skip
_GROUP = 8  # channels in each group of a grouped convolution


class Fused(Bottleneck):
    """3x3 to `middle` channels, 1x1 back: an inverted residual whose expansion and depthwise are one convolution."""

    def __init__(self, inputs: int, middle: int, outputs: int, stride: int, act: type[nn.Module]) -> None:
        body, last = ConvBnAct(inputs, middle, 3, stride, act=act()), ConvBnAct(middle, outputs, 1)
        super().__init__(body, last, stride == 1 and inputs == outputs)


class Grouped(Residual):
    """1x1, 3x3 in groups of eight channels, 1x1, and the input added: RegNet's block (arXiv:2003.13678)."""

    def __init__(self, inputs: int, outputs: int, stride: int, act: type[nn.Module]) -> None:
        spread = ConvBnAct(inputs, outputs, 1, act=act())
        within = ConvBnAct(outputs, outputs, 3, stride, groups=outputs // _GROUP, act=act())
        super().__init__(nn.Sequential(spread, within), ConvBnAct(outputs, outputs, 1), inputs, outputs, stride, act)


def block(kind: Block, inputs: int, stride: int, activation: str) -> nn.Module:
    """One block of a stage."""
    variant, width, act = kind.variant, kind.width, ACTIVATIONS[activation]
    if variant.family == "res":
        return Basic(inputs, width, stride, act)
    if variant.family == "group":
        return Grouped(inputs, width, stride, act)
    middle = variant.expansion * inputs
    if variant.family == "fused":
        return Fused(inputs, middle, width, stride, act)
    return Inverted(inputs, middle, width, stride, act, variant.kernel, variant.se)


class Resize(nn.Module):
    """Images of `image` pixels a side brought to `side`; others, of a training that begins small, by as much."""

    def __init__(self, side: int, image: int) -> None:
        super().__init__()
        self.side, self.image = side, image

    def forward(self, x: Tensor) -> Tensor:
        side = x.shape[-1] * self.side // self.image
        return F.interpolate(x, (side, side), mode="bilinear", align_corners=False)

    def extra_repr(self) -> str:
        """Its side, for keys and digests."""
        return str(self.side)


def stem(channels: int, image: int, width: int, frame: Frame, activation: str, kernel: int = 3) -> nn.Sequential:
    """Shrink the image where the frame says so, one convolution, and a pooling where the stride is 4."""
    layers: list[nn.Module] = []
    if image == 2 * frame.side:
        layers.append(nn.AvgPool2d(2))
    elif image != frame.side:
        layers.append(Resize(frame.side, image))
    layers.append(ConvBnAct(channels, width, kernel, min(frame.stride, 2), act=ACTIVATIONS[activation]()))
    return nn.Sequential(*layers, *([nn.MaxPool2d(3, 2, 1)] if frame.stride == 4 else []))


def head(inputs: int, width: int, classes: int, activation: str) -> nn.Sequential:
    """A last 1x1 convolution unless `width` is 0, and the classifier."""
    last = [ConvBnAct(inputs, width, 1, act=ACTIVATIONS[activation]())] if width else []
    return nn.Sequential(*last, Classifier(width or inputs, classes))
