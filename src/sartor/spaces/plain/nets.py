"""ResNets and MobileNets as their papers describe them, with strides that leave something of small images.

ResNets are CIFAR's (He et al., arXiv:1512.03385, section 4.2): three stages of basic blocks, of which the later two
halve the map and double the width. MobileNetV2 is table 2 of arXiv:1801.04381, MobileNetV3 tables 1 and 2 of
arXiv:1905.02244; EfficientNet-B0 is table 1 of arXiv:1905.11946, and lite0 the same with ReLU6 and without
squeeze-excitation. Those are drawn for 224 pixels, where five strides of 2 leave 7 x 7; smaller images pass fewer of
them, the late ones, so that at least 4 x 4 are left.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from sartor.core.task import Task
from sartor.spaces.ops import ConvBnAct, Head, SqueezeExcite, initialise, make_divisible

_LEFT = 4  # pixels a side that strides must leave
_POOLED = 96  # from so many pixels a side on, a ResNet pools after its stem, as ImageNet's do

# expansion, width, blocks, stride of the first of them
_V2 = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
# kernel, expansion, width, blocks, stride of the first of them
_B0 = ((3, 1, 16, 1, 1), (3, 6, 24, 2, 2), (5, 6, 40, 2, 2), (3, 6, 80, 3, 2), (5, 6, 112, 3, 1), (5, 6, 192, 4, 2),
       (3, 6, 320, 1, 1))  # fmt: skip
# kernel, channels inside, width, squeeze-excitation, hard-swish, stride
_Row = tuple[int, int, int, bool, bool, int]
_LARGE: tuple[_Row, ...] = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip
_SMALL: tuple[_Row, ...] = (
    (3, 16, 16, True, False, 2), (3, 72, 24, False, False, 2), (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2), (5, 240, 40, True, True, 1), (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1), (5, 144, 48, True, True, 1), (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1), (5, 576, 96, True, True, 1),
)  # fmt: skip


class Residual(nn.Module):
    """`first` and `last`, and the input added; where the shape changes, the input passes a 1x1 convolution."""

    residual = True

    def __init__(
        self, first: nn.Module, last: ConvBnAct, inputs: int, outputs: int, stride: int, act: type[nn.Module]
    ) -> None:
        super().__init__()
        self.first, self.last, self.act = first, last, act()
        alike = stride == 1 and inputs == outputs
        self.shortcut: nn.Module = nn.Identity() if alike else ConvBnAct(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.act(self.shortcut(x) + self.last(self.first(x)))
        return y


class Basic(Residual):
    """Two 3x3 convolutions and the input added."""

    def __init__(self, inputs: int, outputs: int, stride: int, act: type[nn.Module] = nn.ReLU) -> None:
        first, last = ConvBnAct(inputs, outputs, 3, stride, act=act()), ConvBnAct(outputs, outputs, 3)
        super().__init__(first, last, inputs, outputs, stride, act)


class Bottleneck(nn.Module):
    """`body` and `last`, which has no activation, and the input added where the shape stays."""

    def __init__(self, body: nn.Module, last: ConvBnAct, residual: bool) -> None:
        super().__init__()
        self.body, self.last, self.residual = body, last, residual

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.body(x))
        return x + y if self.residual else y


class Inverted(Bottleneck):
    """1x1 to `middle` channels (unless it has them), depthwise, squeeze-excitation perhaps, 1x1 back.

    EfficientNets' squeeze-excitation is `smooth` and has a quarter of the block's inputs inside.
    """

    def __init__(
        self, inputs: int, middle: int, outputs: int, stride: int, act: type[nn.Module], kernel: int, se: bool,
        smooth: bool = False,
    ) -> None:  # fmt: skip
        body: list[nn.Module] = [ConvBnAct(inputs, middle, 1, act=act())] if middle != inputs else []
        body.append(ConvBnAct(middle, middle, kernel, stride, groups=middle, act=act()))
        if se:
            body.append(SqueezeExcite(middle, inputs // 4 if smooth else make_divisible(middle / 4), smooth))
        super().__init__(nn.Sequential(*body), ConvBnAct(middle, outputs, 1), stride == 1 and inputs == outputs)


class Classifier(nn.Sequential):
    """Mean over the map, dropout, one linear layer."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(inputs, classes))


def resnet(depth: int, width: int, stem: int, task: Task) -> nn.Sequential:
    """Of 8, 14, 20, ... layers: a stem with stride `stem`, three stages, a linear layer."""
    layers: list[nn.Module] = [ConvBnAct(task.channels, width, 3, stem, act=nn.ReLU())]
    if task.image >= _POOLED:
        layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = width
    for stage in range(3):
        for block in range((depth - 2) // 6):
            outputs = width * 2**stage
            layers.append(Basic(inputs, outputs, 2 if stage and not block else 1))
            inputs = outputs
    return nn.Sequential(*layers, Classifier(inputs, task.classes))


def mobilenet_v2(scale: float, task: Task) -> nn.Sequential:
    """Widths times `scale`; the last convolution never gets narrower, as in the paper."""
    strides = iter(_strides((2, *(s if b == 0 else 1 for _, _, n, s in _V2 for b in range(n))), task.image))
    inputs = make_divisible(32 * scale)
    layers: list[nn.Module] = [ConvBnAct(task.channels, inputs, 3, next(strides), act=nn.ReLU6())]
    for expansion, width, blocks, _ in _V2:
        outputs = make_divisible(width * scale)
        for _ in range(blocks):
            layers.append(Inverted(inputs, inputs * expansion, outputs, next(strides), nn.ReLU6, 3, False))
            inputs = outputs
    last = make_divisible(1280 * max(1.0, scale))
    return nn.Sequential(*layers, ConvBnAct(inputs, last, 1, act=nn.ReLU6()), Classifier(last, task.classes))


def mobilenet_v3(large: bool, scale: float, task: Task) -> nn.Sequential:
    """All widths times `scale`."""
    rows = _LARGE if large else _SMALL
    strides = iter(_strides((2, *(row[-1] for row in rows)), task.image))
    inputs = make_divisible(16 * scale)
    layers: list[nn.Module] = [ConvBnAct(task.channels, inputs, 3, next(strides), act=nn.Hardswish())]
    for kernel, middle, width, se, swish, _ in rows:
        outputs, act = make_divisible(width * scale), nn.Hardswish if swish else nn.ReLU
        layers.append(Inverted(inputs, make_divisible(middle * scale), outputs, next(strides), act, kernel, se))
        inputs = outputs
    hidden = make_divisible((1280 if large else 1024) * scale)
    return nn.Sequential(*layers, Head(inputs, 6 * inputs, hidden, task.classes))


def efficientnet(lite: bool, task: Task) -> nn.Sequential:
    """B0 with SiLU, or lite0."""
    strides = iter(_strides((2, *(s if b == 0 else 1 for *_, n, s in _B0 for b in range(n))), task.image))
    act: type[nn.Module] = nn.ReLU6 if lite else nn.SiLU
    inputs = 32
    layers: list[nn.Module] = [ConvBnAct(task.channels, inputs, 3, next(strides), act=act())]
    for kernel, expansion, width, blocks, _ in _B0:
        for _ in range(blocks):
            layers.append(
                Inverted(inputs, inputs * expansion, width, next(strides), act, kernel, not lite, smooth=True)
            )
            inputs = width
    return nn.Sequential(*layers, ConvBnAct(inputs, 1280, 1, act=act()), Classifier(1280, task.classes))


def _strides(strides: Iterable[int], side: int) -> list[int]:
    """The same without the first of them where the images are too small for all."""
    strides = list(strides)
    kept = 0
    while kept < strides.count(2) and -(-side // 2 ** (kept + 1)) >= _LEFT:
        kept += 1
    for n in [n for n, s in enumerate(strides) if s == 2][: strides.count(2) - kept]:
        strides[n] = 1
    return strides


def started(net: nn.Module, zero_init: bool) -> nn.Module:
    """The network with fresh weights; with `zero_init` every residual block begins as what it is added to."""
    initialise(net)
    for m in net.modules():
        if zero_init and isinstance(m, Residual | Bottleneck) and m.residual:
            nn.init.zeros_(m.last.norm.weight)
    return net
