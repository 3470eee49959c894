"""The number of layers with weights: a baseline that any proxy must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from sartor.proxies import base


@final
@dataclass(frozen=True, kw_only=True)
class Layers(base.Proxy):
    """The number of convolutions and linear layers."""

    needs_batch: ClassVar[bool] = False

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """Counted, whether or not the output depends on them."""
        return float(sum(1 for _ in base.layers(net)))


PLUGIN = Layers
