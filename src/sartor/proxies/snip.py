"""SNIP: connection sensitivity (arXiv:1810.02340), summed over the network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from sartor.proxies.base import Proxy, gradients


@final
@dataclass(frozen=True, kw_only=True)
class Snip(Proxy):
    """Sum of the absolute products of weights and loss gradients."""

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """``sum |w dL/dw|``."""
        return float(sum((w.detach() * g).abs().sum() for w, g in gradients(F.cross_entropy(net(x), y), net)))


PLUGIN = Snip
