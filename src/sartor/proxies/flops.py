"""The number of multiply-accumulates: a baseline that any proxy must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from sartor.costs.macs import Macs
from sartor.proxies.base import Proxy


@final
@dataclass(frozen=True, kw_only=True)
class Flops(Proxy):
    """Multiply-accumulates of one image, which papers call FLOPs."""

    needs_batch: ClassVar[bool] = False
    cost: ClassVar[str | None] = "macs"

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """As the cost `macs` counts them."""
        return Macs().of(net.float(), (x.shape[1], x.shape[2], x.shape[3]))


PLUGIN = Flops
