"""Building blocks of stand-alone mobile networks: what is deployed, exported and timed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


class Modules(nn.ModuleList, Generic[M]):
    """A module list that says what it holds."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[M]: ...
        def __getitem__(self, index: int) -> M: ...  # type: ignore[override]


def make_divisible(value: float, divisor: int = 8) -> int:
    """Round half up to a multiple of `divisor`, at least one, and never more than 10 % below `value`."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


def activation(hard_swish: bool) -> nn.Module:
    """Hard-swish or ReLU; both have second derivatives, which curvature needs."""
    return nn.Hardswish() if hard_swish else nn.ReLU()


def hard_sigmoid(x: Tensor) -> Tensor:
    """``relu6(x + 3) / 6``: unlike PyTorch's own hard-sigmoid it can be differentiated twice."""
    return F.relu6(x + 3.0) / 6.0


class ConvBnAct(nn.Sequential):
    """Convolution without bias, batch-norm, and an activation unless `act` is None."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, act: nn.Module | None = None
    ) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), *([act] if act is not None else []))

    @property
    def conv(self) -> nn.Conv2d:
        """Its first layer."""
        return cast(nn.Conv2d, self[0])

    @property
    def norm(self) -> nn.BatchNorm2d:
        """Its second layer."""
        return cast(nn.BatchNorm2d, self[1])


class SqueezeExcite(nn.Module):
    """Channel attention: global pool, two pointwise layers with bias, ReLU inside, hard-sigmoid gate.

    EfficientNets have the `smooth` functions that those two approximate.
    """

    def __init__(self, channels: int, hidden: int, smooth: bool = False) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, hidden, 1)
        self.expand = nn.Conv2d(hidden, channels, 1)
        self.smooth = smooth

    def forward(self, x: Tensor) -> Tensor:
        inside = self.reduce(F.adaptive_avg_pool2d(x, 1))
        if self.smooth:
            return x * torch.sigmoid(self.expand(F.silu(inside)))
        return x * hard_sigmoid(self.expand(F.relu(inside)))


class InvertedResidual(nn.Module):
    """MBInvRes block: pointwise expansion, depthwise convolution, optional SE, pointwise projection.

    The input is added to the output when the stride is 1 and the channels agree.
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, kernel: int, expansion: int, se: bool, hard_swish: bool
    ) -> None:
        super().__init__()
        middle = make_divisible(expansion * inputs)
        self.expand = ConvBnAct(inputs, middle, 1, act=activation(hard_swish))
        self.depthwise = ConvBnAct(middle, middle, kernel, stride, groups=middle, act=activation(hard_swish))
        self.se = SqueezeExcite(middle, make_divisible(0.25 * middle)) if se else nn.Identity()
        self.project = ConvBnAct(middle, outputs, 1)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.se(self.depthwise(self.expand(x))))
        return x + y if self.residual else y


class Stem(nn.Sequential):
    """Rows 1 and 2 of the table: a 3x3 convolution and a depthwise-separable block (ReLU), which `skip` adds to."""

    def __init__(self, channels: int, width: int, outputs: int, stride: int, skip: bool = False) -> None:
        super().__init__(
            ConvBnAct(channels, width, 3, stride, act=nn.Hardswish()),
            ConvBnAct(width, width, 3, groups=width, act=nn.ReLU()),
            ConvBnAct(width, outputs, 1),
        )
        self.skip = skip

    def forward(self, x: Tensor) -> Tensor:
        first = self[0](x)
        out: Tensor = self[2](self[1](first))
        return first + out if self.skip else out


class Head(nn.Module):
    """MobileNetV3's efficient head: 1x1 conv-BN-act, global pool, 1x1 conv with bias and no BN, act, classifier."""

    def __init__(self, inputs: int, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.conv = ConvBnAct(inputs, width, 1, act=nn.Hardswish())
        self.hidden = nn.Conv2d(width, hidden, 1)
        self.dropout = nn.Dropout(0.0)
        self.classifier = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.adaptive_avg_pool2d(self.conv(x), 1)
        x = self.dropout(F.hardswish(self.hidden(x)).flatten(1))
        out: Tensor = self.classifier(x)
        return out


def initialise(module: nn.Module) -> None:
    """Kaiming-normal convolutions (fan out), small normal classifier: what mobile networks are trained from."""
    for m in module.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out")
            if m.bias is not None:
                nn.init.zeros_(m.bias)
        elif isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, 0.0, 0.01)
            nn.init.zeros_(m.bias)


def copy_slice(target: Tensor | None, source: Tensor | None) -> None:
    """Copy the leading corner of `source` that has `target`'s shape: how a child inherits shared weights."""
    assert target is not None and source is not None
    with torch.no_grad():
        target.copy_(source[tuple(slice(0, n) for n in target.shape)])


def copy_norm(target: nn.BatchNorm2d, source: Any) -> None:
    """Copy the leading channels of a batch-norm's affine parameters and running statistics."""
    for name in ("weight", "bias", "running_mean", "running_var"):
        copy_slice(getattr(target, name), getattr(source, name))


def free(module: nn.Module) -> None:
    """Give the memory of a wiped operation back; its tensors stay, empty, so that checkpoints keep their names."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
        parameter.grad = None
        parameter.data = parameter.data.new_empty(0)
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            if buffer.ndim:
                setattr(part, name, buffer.new_empty(0))
