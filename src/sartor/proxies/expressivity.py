"""Expressivity: how many directions a network's features really use (after AZ-NAS, arXiv:2403.19232)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from sartor.proxies.base import Proxy


@final
@dataclass(frozen=True, kw_only=True)
class Expressivity(Proxy):
    """Sum over blocks of the entropy of the principal components of their features."""

    @torch.no_grad()
    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """``sum_l -sum_i p_i log p_i`` with p the normalised eigenvalues of block l's channel covariance."""
        features: list[Tensor] = []
        for block in blocks(net):
            block.register_forward_hook(lambda module, args, out: features.append(out))
        net(x)
        return sum(_entropy(f) for f in features if f.ndim == 4)


def blocks(net: nn.Module) -> Iterator[nn.Module]:
    """The children of the network, and of its lists of modules."""
    for child in net.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        else:
            yield child


def _entropy(features_BCHW: Tensor) -> float:
    rows = features_BCHW.transpose(0, 1).flatten(1).double()
    rows = rows - rows.mean(1, keepdim=True)
    values = torch.linalg.eigvalsh(rows @ rows.T).clamp_min(0.0)
    total = values.sum()
    if not bool(total > 0):  # constant features express nothing
        return 0.0
    shares = values / total
    return -float(torch.special.xlogy(shares, shares).sum())


PLUGIN = Expressivity
