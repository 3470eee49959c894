"""The elastic block: all twelve configurations of a mobile block in one set of shared weights.

Sharing: the expansion is computed at its widest and channels beyond the picked ratio are masked
after the depthwise batch-norm, which equals slicing; 3x3 and 5x5 depthwise kernels are separate,
each with its own batch-norm; one SE module whose hidden units are masked likewise; one projection;
the last batch-norm is private to every (expansion, SE), six of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.spaces.mobile.frame import CONFIGS, EXPANSIONS, KERNELS
from sartor.spaces.mobile.grouped_norm import GroupedNorm
from sartor.spaces.ops import (
    InvertedResidual,
    Modules,
    SqueezeExcite,
    activation,
    copy_norm,
    copy_slice,
    hard_sigmoid,
    make_divisible,
)


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """Which configuration each image of a batch takes.

    Images of 3x3 kernels come first, `small` of them; within a kernel they are sorted by configuration. `even` says
    that every configuration has equally many.
    """

    small: int
    even: bool
    expansion: Tensor  # (B,) index into EXPANSIONS
    group: Tensor  # (B,) which of the private batch-norms, 2 * expansion + SE
    se: Tensor  # (B, 1) bool


class ElasticBlock(nn.Module):
    """A mobile block whose expansion, kernel and SE are decided at run time."""

    expansion_mask: Tensor
    hidden_mask: Tensor

    def __init__(self, inputs: int, outputs: int, stride: int, hard_swish: bool) -> None:
        super().__init__()
        self.middles = tuple(make_divisible(e * inputs) for e in EXPANSIONS)
        self.hiddens = tuple(make_divisible(0.25 * m) for m in self.middles)
        wide, hidden = self.middles[-1], self.hiddens[-1]
        self.expand = nn.Conv2d(inputs, wide, 1, bias=False)
        self.expand_norm = nn.BatchNorm2d(wide)
        self.depthwise: Modules[nn.Conv2d] = Modules(
            nn.Conv2d(wide, wide, k, stride, k // 2, groups=wide, bias=False) for k in KERNELS
        )
        self.depthwise_norm: Modules[nn.BatchNorm2d] = Modules(nn.BatchNorm2d(wide) for _ in KERNELS)
        self.reduce = nn.Conv2d(wide, hidden, 1)
        self.excite = nn.Conv2d(hidden, wide, 1)
        self.project = nn.Conv2d(wide, outputs, 1, bias=False)
        self.project_norm = GroupedNorm(2 * len(EXPANSIONS), outputs)
        self.act = activation(hard_swish)
        self.shape = (inputs, outputs, stride, hard_swish)
        self.residual = stride == 1 and inputs == outputs
        self.register_buffer("expansion_mask", _staircase(self.middles), persistent=False)
        self.register_buffer("hidden_mask", _staircase(self.hiddens), persistent=False)

    def one(self, x: Tensor, config: int) -> Tensor:
        """The whole batch through one configuration, with weights sliced to it."""
        e, k, se = config // 4, config // 2 % 2, config % 2
        middle, hidden = self.middles[e], self.hiddens[e]
        y = F.conv2d(x, self.expand.weight[:middle])
        y = self.act(_sliced_norm(y, self.expand_norm))
        conv = self.depthwise[k]
        y = F.conv2d(y, conv.weight[:middle], None, conv.stride, conv.padding, groups=middle)
        y = self.act(_sliced_norm(y, self.depthwise_norm[k]))
        if se:
            assert self.reduce.bias is not None and self.excite.bias is not None
            s = F.adaptive_avg_pool2d(y, 1)
            s = F.relu(F.conv2d(s, self.reduce.weight[:hidden, :middle], self.reduce.bias[:hidden]))
            y = y * hard_sigmoid(F.conv2d(s, self.excite.weight[:middle, :hidden], self.excite.bias[:middle]))
        y = self.project_norm.one(F.conv2d(y, self.project.weight[:, :middle]), 2 * e + se)
        return x + y if self.residual else y

    def many(self, x: Tensor, plan: BlockPlan) -> Tensor:
        """Every image through a configuration of its own, in one vectorised pass at full width."""
        y = self.act(_sliced_norm(self.expand(x), self.expand_norm))
        halves = []
        for k, part in enumerate((y[: plan.small], y[plan.small :])):
            if len(part):
                halves.append(self.act(_sliced_norm(self.depthwise[k](part), self.depthwise_norm[k])))
        y = torch.cat(halves) if len(halves) > 1 else halves[0]
        gate = self._gate(y, self.expansion_mask[plan.expansion], self.hidden_mask[plan.expansion], plan.se)
        y = self.project(y * gate.to(y.dtype)[:, :, None, None])
        norm = self.project_norm
        y = norm.sorted_evenly(y, len(KERNELS)) if plan.even and self.training else norm(y, plan.group)
        return x + y if self.residual else y

    def mixed(self, x: Tensor, weights: Tensor) -> Tensor:
        """The sum of all configurations' outputs, each times its weight."""
        y = self.act(_sliced_norm(self.expand(x), self.expand_norm))
        branches = [self.act(_sliced_norm(c(y), n)) for c, n in zip(self.depthwise, self.depthwise_norm, strict=True)]
        total: Tensor | float = 0.0
        for c, (expansion, kernel, se) in enumerate(CONFIGS):
            e, z = EXPANSIONS.index(expansion), branches[KERNELS.index(kernel)]
            mask = self.expansion_mask[e].expand(len(x), -1)
            on = torch.full((len(x), 1), se, device=x.device)
            # Mixtures are differentiated twice (NASI, curvature), which PyTorch's own hard-sigmoid cannot be.
            gate = self._gate(z, mask, self.hidden_mask[e].expand(len(x), -1), on, hard_sigmoid)
            z = self.project(z * gate.to(z.dtype)[:, :, None, None])
            total = total + weights[c] * self.project_norm.one(z, 2 * e + se)
        assert isinstance(total, Tensor)
        return x * weights.sum() + total if self.residual else total

    def _gate(self, y: Tensor, mask: Tensor, hidden_mask: Tensor, on: Tensor, sigmoid: Any = F.hardsigmoid) -> Tensor:
        """The factor of every channel of every image: 0 beyond the expansion, else SE's gate or 1."""
        with torch.autocast(y.device.type, enabled=False):  # tiny products: casting them would cost more
            pooled = y.mean((2, 3), dtype=torch.float32) * mask
            s = F.relu(F.linear(pooled, self.reduce.weight.flatten(1), self.reduce.bias)) * hidden_mask
            gate = sigmoid(F.linear(s, self.excite.weight.flatten(1), self.excite.bias))
            return mask * torch.where(on, gate, 1.0)

    def extract(self, config: int) -> InvertedResidual:
        """The stand-alone block of one configuration."""
        e, k, se = config // 4, config // 2 % 2, config % 2
        inputs, outputs, stride, hard_swish = self.shape
        block = InvertedResidual(inputs, outputs, stride, KERNELS[k], EXPANSIONS[e], bool(se), hard_swish)
        copy_slice(block.expand.conv.weight, self.expand.weight)
        copy_norm(block.expand.norm, self.expand_norm)
        copy_slice(block.depthwise.conv.weight, self.depthwise[k].weight)
        copy_norm(block.depthwise.norm, self.depthwise_norm[k])
        if isinstance(block.se, SqueezeExcite):
            for mine, shared in ((block.se.reduce, self.reduce), (block.se.expand, self.excite)):
                copy_slice(mine.weight, shared.weight)
                copy_slice(mine.bias, shared.bias)
        copy_slice(block.project.conv.weight, self.project.weight)
        group = 2 * e + se
        for name in ("weight", "bias", "running_mean", "running_var"):
            copy_slice(getattr(block.project.norm, name), getattr(self.project_norm, name)[group])
        return block

    @torch.no_grad()
    def inherit(self) -> None:
        """Start what the widest configuration never ran from what it learnt (our choice; the paper is silent).

        The 3x3 kernel takes the centre of the 5x5 one, and every private batch-norm the widest one's values.
        """
        small, large = self.depthwise
        small.weight.copy_(large.weight[:, :, 1:-1, 1:-1])
        copy_norm(self.depthwise_norm[0], self.depthwise_norm[1])
        for name in ("weight", "bias", "running_mean", "running_var"):
            table = getattr(self.project_norm, name)
            table.copy_(table[-1].expand_as(table).clone())

    @torch.no_grad()
    def sort_channels(self) -> None:
        """Reorder expanded channels and SE hidden units by ``sum |w * grad|``, most important first.

        The widest configuration computes the same function before and after; narrower ones now keep
        the channels that matter.
        """

        def saliency(p: Tensor) -> Tensor:
            return torch.zeros_like(p) if p.grad is None else (p * p.grad).abs()

        channels = saliency(self.expand.weight).flatten(1).sum(1) + saliency(self.excite.weight).flatten(1).sum(1)
        for conv in self.depthwise:
            channels += saliency(conv.weight).flatten(1).sum(1)
        hidden = saliency(self.reduce.weight).flatten(1).sum(1)
        by_channel = torch.argsort(channels, descending=True, stable=True)
        by_hidden = torch.argsort(hidden, descending=True, stable=True)
        rows: list[Tensor | None] = [
            self.expand.weight,
            self.excite.weight,
            self.excite.bias,
            *(c.weight for c in self.depthwise),
        ]
        for norm in (self.expand_norm, *self.depthwise_norm):
            rows += [norm.weight, norm.bias, norm.running_mean, norm.running_var]
        for tensors, order in ((rows, by_channel), ([self.reduce.weight, self.reduce.bias], by_hidden)):
            for tensor in tensors:
                assert tensor is not None
                tensor.copy_(tensor[order].clone())
        self.project.weight.copy_(self.project.weight[:, by_channel].clone())
        self.reduce.weight.copy_(self.reduce.weight[:, by_channel].clone())
        self.excite.weight.copy_(self.excite.weight[:, by_hidden].clone())


def _staircase(widths: tuple[int, ...]) -> Tensor:
    """Row i has its first ``widths[i]`` entries 1 and the rest 0."""
    return (torch.arange(widths[-1])[None] < torch.tensor(widths)[:, None]).float()


def _sliced_norm(x: Tensor, norm: Any) -> Tensor:
    """Batch-norm with the leading channels of `norm`; its running statistics are updated in place."""
    mean, var, weight, bias = norm.running_mean, norm.running_var, norm.weight, norm.bias
    if (n := x.shape[1]) < norm.num_features:  # a slice of everything would still be recorded and differentiated
        mean, var, weight, bias = mean[:n], var[:n], weight[:n], bias[:n]
    several = x.shape[0] * x.shape[2] * x.shape[3] > 1  # a single value has no variance to normalise by
    return F.batch_norm(x, mean, var, weight, bias, norm.training and several, norm.momentum or 0.0, norm.eps)
