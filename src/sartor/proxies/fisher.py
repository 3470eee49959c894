"""Fisher: the information in every activation's channel (Theis et al., arXiv:1801.05787)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.proxies.base import Proxy, layers


@final
@dataclass(frozen=True, kw_only=True)
class Fisher(Proxy):
    """Half the mean squared saliency of every channel of every layer's output, summed."""

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """``sum_c mean_n (sum_hw a da)^2 / 2`` over outputs a of convolutions and linear layers."""
        outputs: list[Tensor] = []
        for layer in layers(net):
            layer.register_forward_hook(lambda module, args, out: outputs.append(out))
        loss = F.cross_entropy(net(x), y)
        grads = torch.autograd.grad(loss, outputs, allow_unused=True)
        total = 0.0
        for a, g in zip(outputs, grads, strict=True):
            if g is not None:
                saliency = (a * g).flatten(2).sum(2) if a.ndim > 2 else a * g
                total += float(saliency.detach().pow(2).mean(0).sum() / 2)
        return total


PLUGIN = Fisher
