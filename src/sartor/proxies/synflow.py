"""SynFlow: synaptic flow, with no data at all (arXiv:2006.05467)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from sartor.engine.curvature.kernel import Norm
from sartor.proxies.base import Proxy, gradients


@final
@dataclass(frozen=True, kw_only=True)
class SynFlow(Proxy):
    """Sum of weights times the gradient of the summed outputs, all weights positive, an image of ones.

    The published values are for networks without batch-norm, hence the default.
    """

    norm: Norm = "off"

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """``sum |w dR/dw|`` with ``R = sum f(1; |w|)``, in double precision, since flows multiply layer by layer."""
        net.double()
        with torch.no_grad():
            for p in net.parameters():
                p.abs_()
        ones = torch.ones_like(x[:1], dtype=torch.float64)
        return float(sum((w.detach() * g).abs().sum() for w, g in gradients(net(ones).sum(), net)))


PLUGIN = SynFlow
