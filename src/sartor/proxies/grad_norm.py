"""The gradient norm at initialisation (Abdelfattah et al., arXiv:2101.08134)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from sartor.proxies.base import Proxy, gradients


@final
@dataclass(frozen=True, kw_only=True)
class GradNorm(Proxy):
    """Sum over layers of the Euclidean norm of the loss gradient."""

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """``sum_l ||dL / dw_l||``."""
        return float(sum(g.norm() for _, g in gradients(F.cross_entropy(net(x), y), net)))


PLUGIN = GradNorm
