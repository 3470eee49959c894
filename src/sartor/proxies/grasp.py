"""GraSP: how pruning changes the gradient flow (arXiv:2002.07376), summed over the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.proxies.base import Proxy, gradients


@final
@dataclass(frozen=True, kw_only=True)
class Grasp(Proxy):
    """Minus the sum of weights times the Hessian's product with the gradient."""

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """``-sum w (H g)`` with ``H g = d(g . stop(g)) / dw``."""
        pairs = gradients(F.cross_entropy(net(x), y), net, graph=True)
        flow = torch.stack([(g * g.detach()).sum() for _, g in pairs]).sum()
        products = torch.autograd.grad(flow, [w for w, _ in pairs], allow_unused=True)
        return -float(sum((w.detach() * h).sum() for (w, _), h in zip(pairs, products, strict=True) if h is not None))


PLUGIN = Grasp
