"""ZiCo: inverse coefficient of variation of gradients (arXiv:2301.11300)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.core.errors import BadInput
from sartor.proxies.base import Proxy, gradients


@final
@dataclass(frozen=True, kw_only=True)
class ZiCo(Proxy):
    """Sum over layers of the log of summed mean-to-deviation ratios of gradients between parts of the batch."""

    parts: int = 2  # the batch is cut into so many, each giving one gradient

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """``sum_l log sum_w E|g_w| / sqrt(Var g_w)``; weights whose gradient does not vary are left out."""
        if not 2 <= self.parts <= len(x):
            raise BadInput(f"zico needs 2 <= parts <= images of the batch, but got {self.parts} and {len(x)}.")
        runs = []
        for images, labels in zip(x.chunk(self.parts), y.chunk(self.parts), strict=True):
            runs.append([g for _, g in gradients(F.cross_entropy(net(images), labels), net)])
        total = 0.0
        for grads in zip(*runs, strict=True):
            stacked = torch.stack(grads)
            deviation = stacked.std(0, correction=0)
            varies = deviation > 0
            ratio = float((stacked.abs().mean(0)[varies] / deviation[varies]).sum())
            total += math.log(ratio) if ratio > 0 else 0.0
        return total


PLUGIN = ZiCo
