"""Several branches while a network is trained, one convolution when it is deployed (RepVGG, arXiv:2101.03697).

Beside every k x k convolution with its batch-norm stand a 1x1 convolution and, where the shape stays, the input itself,
each with a batch-norm of its own. Their sum is linear in the input once the statistics stand, so that one convolution
computes all three. New branches begin at zero: what the network has learnt, or how it was initialised, stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.spaces.ops import ConvBnAct


class Branches(nn.Module):
    """What stands in the place of a convolution; its batch-norm's place is empty meanwhile."""

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.conv, self.norm = conv, norm
        stride = conv.stride[0]
        self.point = nn.Conv2d(conv.in_channels, conv.out_channels, 1, stride, groups=conv.groups, bias=False)
        norms = [nn.BatchNorm2d(conv.out_channels)]
        if conv.in_channels == conv.out_channels and stride == 1:
            norms.append(nn.BatchNorm2d(conv.out_channels))
        self.norms = nn.ModuleList(norms)
        for added in norms:
            nn.init.zeros_(added.weight)
        self.to(conv.weight.device)

    def forward(self, x: Tensor) -> Tensor:
        """The sum of the branches."""
        y: Tensor = self.norm(self.conv(x)) + self.norms[0](self.point(x))
        return y + self.norms[1](x) if len(self.norms) > 1 else y

    @torch.no_grad()
    def merged(self) -> tuple[Tensor, Tensor]:
        """The kernel and the bias of the convolution that computes the same with the statistics as they are."""
        size = self.conv.kernel_size[0]
        kernels = [self.conv.weight, _centred(self.point.weight, size)]
        if len(self.norms) > 1:
            within = self.conv.in_channels // self.conv.groups
            itself = torch.eye(within).repeat(self.conv.groups, 1)[:, :, None, None]
            kernels.append(_centred(itself.to(self.conv.weight), size))
        kernel, bias = torch.zeros_like(self.conv.weight), torch.zeros_like(self.norm.bias)
        for each, norm in zip(kernels, [self.norm, *self.norms], strict=True):
            assert isinstance(norm, nn.BatchNorm2d) and norm.running_var is not None and norm.running_mean is not None
            scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            kernel += scale[:, None, None, None] * each
            bias += norm.bias - scale * norm.running_mean
        return kernel, bias


def attach(net: nn.Module) -> None:
    """Branches beside every convolution that is larger than a point, but the first, which sees the image."""
    layers = [m for m in net.modules() if isinstance(m, ConvBnAct)]
    for layer in layers[1:]:
        if layer.conv.kernel_size[0] > 1:
            layer[0], layer[1] = Branches(layer.conv, layer.norm), nn.Identity()


def detach(net: nn.Module, batches: Iterable[tuple[Tensor, Any]]) -> None:
    """One convolution and its batch-norm again in the place of each, which compute the same.

    The statistics of the merged convolutions on these images become the batch-norms', as those of any network are: they
    may be measured again later.
    """
    found = [m for m in net.modules() if isinstance(m, ConvBnAct) and isinstance(m[0], Branches)]
    sums: dict[nn.Module, Tensor] = {}
    biases, hooks = [], []
    for layer in found:
        branches = layer[0]
        assert isinstance(branches, Branches)
        kernel, bias = branches.merged()
        branches.conv.weight.data.copy_(kernel)
        layer[0], layer[1] = branches.conv, branches.norm
        _through(layer.norm, bias)
        biases.append(bias)
        hooks.append(layer.conv.register_forward_hook(partial(_note, sums)))
    net.eval()
    with torch.no_grad():
        for x, _ in batches if found else ():
            net(x)
    for layer, bias, hook in zip(found, biases, hooks, strict=True):
        hook.remove()
        count, total, squares = sums[layer.conv].unbind()
        mean = total / count
        _rest(layer.norm, bias, mean.float(), (squares / count - mean**2).clamp(min=0).float())


def _centred(kernel: Tensor, size: int) -> Tensor:
    """A 1x1 kernel in the middle of a larger one."""
    return F.pad(kernel, [size // 2] * 4)


@torch.no_grad()
def _through(norm: nn.BatchNorm2d, bias: Tensor) -> None:
    """A batch-norm that adds the bias and nothing else."""
    _rest(norm, bias, torch.zeros_like(bias), torch.full_like(bias, 1.0 - norm.eps))


@torch.no_grad()
def _rest(norm: nn.BatchNorm2d, bias: Tensor, mean: Tensor, variance: Tensor) -> None:
    """A batch-norm with these statistics that adds the bias and nothing else."""
    assert norm.running_mean is not None and norm.running_var is not None
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    norm.weight.copy_(torch.sqrt(variance + norm.eps))
    norm.bias.copy_(bias + mean)


def _note(sums: dict[nn.Module, Tensor], layer: nn.Module, _: Any, y: Tensor) -> None:
    """How many numbers a convolution gave out for each channel, their sum and that of their squares."""
    y = y.double()
    found = torch.stack([torch.full_like(y[0, :, 0, 0], y[:, 0].numel()), y.sum((0, 2, 3)), (y**2).sum((0, 2, 3))])
    sums[layer] = sums[layer] + found if layer in sums else found
