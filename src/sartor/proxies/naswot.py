"""NASWOT: how well ReLU patterns tell the images of a batch apart (arXiv:2006.04647)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from sartor.proxies.base import Proxy


@final
@dataclass(frozen=True, kw_only=True)
class NasWot(Proxy):
    """The log-determinant of the kernel of agreeing ReLU units."""

    @torch.no_grad()
    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """``log |K|`` with ``K_ij`` the number of ReLU units in the same state for images i and j."""
        kernel = torch.zeros(len(x), len(x), dtype=torch.float64, device=x.device)

        def count(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> None:
            on = (args[0] > 0).flatten(1).float()
            both = on @ on.T
            some = on.sum(1)
            kernel.add_(2 * both - some[:, None] - some[None] + on.shape[1])

        for module in net.modules():
            if isinstance(module, nn.ReLU):
                module.register_forward_hook(count)
        net(x)
        return float(torch.linalg.slogdet(kernel).logabsdet)


PLUGIN = NasWot
