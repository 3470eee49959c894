"""The trace of the neural tangent kernel at initialisation, in NASI's three forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor, nn

from sartor.engine.curvature import LOSSES, batch_trace, exact_trace, joint_trace, sum_trace
from sartor.proxies.base import Proxy


@final
@dataclass(frozen=True, kw_only=True)
class NtkTrace(Proxy):
    """NTK trace: exact (equation 9), the sum of per-image gradient norms (11), or the mini-batch's (12) (NASI)."""

    form: Literal["batch", "sum", "exact"] = "batch"
    loss: Literal["cross_entropy", "mse", "logits"] = "cross_entropy"

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """The trace of the chosen form; with batch statistics the exact one is that of the batch as a whole."""
        if self.form == "exact":
            return joint_trace(net, x) if self.norm == "batch" else exact_trace(net, x)
        if self.form == "sum":
            return sum_trace(net.eval(), x, y, LOSSES[self.loss])
        return batch_trace(net, x, y, LOSSES[self.loss])


PLUGIN = NtkTrace
