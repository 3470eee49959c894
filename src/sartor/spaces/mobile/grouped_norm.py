"""Several batch-norms of one shape in one pass: every image of the batch goes through the one of its group.

Written as one autograd function: the chain of small operations that autograd would record costs a GPU's host more
than the arithmetic costs the GPU.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# B images, C channels, H W positions, G groups


class GroupedNorm(nn.Module):
    """`groups` batch-norms over `channels`; `group_B` says which one each image takes."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, groups: int, channels: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(groups, channels))
        self.bias = nn.Parameter(torch.zeros(groups, channels))
        self.register_buffer("running_mean", torch.zeros(groups, channels))
        self.register_buffer("running_var", torch.ones(groups, channels))
        self.eps, self.momentum = eps, momentum

    def one(self, x: Tensor, group: int) -> Tensor:
        """The whole batch through one group."""
        mean, var = self.running_mean[group], self.running_var[group]
        several = x.shape[0] * x.shape[2] * x.shape[3] > 1  # a single value has no variance to normalise by
        training = self.training and several
        return F.batch_norm(x, mean, var, self.weight[group], self.bias[group], training, self.momentum, self.eps)

    def forward(self, x_BCHW: Tensor, group_B: Tensor) -> Tensor:
        """Every image through the batch-norm of its own group."""
        member_GB = (torch.arange(len(self.weight), device=x_BCHW.device)[:, None] == group_B[None]).float()
        with torch.autocast(x_BCHW.device.type, enabled=False):  # sums of squares need all of float32
            if not self.training:
                return _affine(x_BCHW, member_GB, self.weight, self.bias, self.running_mean, self._inverse_deviation())
            out: Tensor = _Normalise.apply(x_BCHW, member_GB, self.weight, self.bias, self)  # type: ignore[no-untyped-call]
            return out

    def sorted_evenly(self, x_BCHW: Tensor, repeats: int) -> Tensor:
        """The same for images sorted by group, equally many each, the whole sequence `repeats` times over.

        The groups' channels are then laid side by side and PyTorch's own batch-norm does them all at once.
        """
        groups, channels = self.weight.shape
        count, _, *side = x_BCHW.shape
        each = count // (repeats * groups)
        if each * repeats * x_BCHW.shape[2] * x_BCHW.shape[3] < 2:
            return self.forward(
                x_BCHW, torch.arange(groups, device=x_BCHW.device).repeat_interleave(each).repeat(repeats)
            )
        wide = x_BCHW.reshape(repeats, groups, each, channels, *side).transpose(1, 2)
        wide = wide.reshape(repeats * each, groups * channels, *side)
        mean, var = self.running_mean.view(-1), self.running_var.view(-1)
        wide = F.batch_norm(wide, mean, var, self.weight.view(-1), self.bias.view(-1), True, self.momentum, self.eps)
        narrow = wide.view(repeats, each, groups, channels, *side).transpose(1, 2)
        return narrow.reshape(count, channels, *side).contiguous(memory_format=torch.channels_last)

    def _inverse_deviation(self) -> Tensor:
        return torch.rsqrt(self.running_var + self.eps)

    def statistics(self, x_BCHW: Tensor, member_GB: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, inverse deviation and 1 / (number of values) of every group; the running ones are updated.

        A group with at most one value in the batch has no variance: it is normalised by its running statistics, which
        are constants, so 0 stands for the inverse of its count.
        """
        positions = x_BCHW.shape[2] * x_BCHW.shape[3]
        count_G1 = member_GB.sum(1, keepdim=True)
        share_GB = member_GB / count_G1.clamp(min=1)
        mean_GC = share_GB @ x_BCHW.mean((2, 3), dtype=torch.float32)
        square_BC = torch.linalg.vector_norm(x_BCHW, 2, (2, 3), dtype=torch.float32).square() / positions
        var_GC = (share_GB @ square_BC - mean_GC.square()).clamp(min=0)
        values_G1 = count_G1 * positions
        usable_G1 = values_G1 > 1
        mean_GC = torch.where(usable_G1, mean_GC, self.running_mean)
        unbiased_GC = torch.where(usable_G1, var_GC * values_G1 / (values_G1 - 1).clamp(min=1), self.running_var)
        var_GC = torch.where(usable_G1, var_GC, self.running_var)
        inverse_GC = torch.rsqrt(var_GC + self.eps)
        self.running_mean.lerp_(mean_GC, self.momentum)
        self.running_var.lerp_(unbiased_GC, self.momentum)
        return mean_GC, inverse_GC, torch.where(usable_G1, 1 / values_G1.clamp(min=1), 0.0)


class _Normalise(torch.autograd.Function):
    """``y = weight * (x - mean) / deviation + bias`` with every group's own moments, and its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, member_GB: Tensor, weight: Tensor, bias: Tensor, norm: GroupedNorm) -> Tensor:
        mean_GC, inverse_GC, per_value_G1 = norm.statistics(x, member_GB)
        ctx.save_for_backward(x, member_GB, weight, mean_GC, inverse_GC, per_value_G1)
        return _affine(x, member_GB, weight, bias, mean_GC, inverse_GC)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, member_GB, weight, mean_GC, inverse_GC, per_value_G1 = ctx.saved_tensors
        dbias_GC = member_GB @ dy.sum((2, 3), dtype=torch.float32)
        moment_GC = member_GB @ (dy * x).sum((2, 3), dtype=torch.float32)
        dweight_GC = (moment_GC - mean_GC * dbias_GC) * inverse_GC
        scale_GC = weight * inverse_GC
        # dx = scale * (dy - mean(dy) - normalised x * mean(dy * normalised x)), gathered by what multiplies dy, x and 1
        pull_GC = scale_GC * inverse_GC * dweight_GC * per_value_G1
        shift_GC = pull_GC * mean_GC - scale_GC * dbias_GC * per_value_G1

        def spread(table_GC: Tensor) -> Tensor:
            return torch.matmul(member_GB.T, table_GC)[:, :, None, None].to(x.dtype)

        dx = torch.addcmul(torch.addcmul(spread(shift_GC), x, spread(-pull_GC)), dy, spread(scale_GC))
        return dx, None, dweight_GC, dbias_GC, None


def _affine(x: Tensor, member_GB: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    """One multiplication and one addition a pixel, with the factors of every image's group."""
    scale_GC = weight * inverse
    scale = (member_GB.T @ scale_GC)[:, :, None, None].to(x.dtype)
    shift = (member_GB.T @ (bias - mean * scale_GC))[:, :, None, None].to(x.dtype)
    return torch.addcmul(shift, x, scale)
