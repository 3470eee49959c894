"""The number of parameters: a baseline that any proxy must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor, nn

from sartor.proxies.base import Proxy


@final
@dataclass(frozen=True, kw_only=True)
class Params(Proxy):
    """The number of parameters."""

    needs_batch: ClassVar[bool] = False
    cost: ClassVar[str | None] = "params"

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """All of them, batch-norm's too."""
        return float(sum(p.numel() for p in net.parameters()))


PLUGIN = Params
