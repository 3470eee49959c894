"""The trace of the neural tangent kernel at initialisation, in NASI's three forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from sartor.engine.curvature.kernel import LOSSES, Loss, batch_trace, exact_trace, joint_trace, squared_norm, sum_trace
from sartor.engine.curvature.kernel import weights as trained
from sartor.proxies.base import Proxy


@final
@dataclass(frozen=True, kw_only=True)
class NtkTrace(Proxy):
    """NTK trace: exact (equation 9), the sum of per-image gradient norms (11), or the mini-batch's (12) (NASI)."""

    form: Literal["batch", "sum", "exact"] = "batch"
    loss: Literal["cross_entropy", "mse", "logits"] = "cross_entropy"

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """The trace of the chosen form; with batch statistics, exact and sum are those of the batch as a whole."""
        loss = LOSSES[self.loss]
        if self.form == "exact":
            return joint_trace(net, x) if self.norm == "batch" else exact_trace(net, x)
        if self.form == "sum":
            return joint_sum(net, x, y, loss) if self.norm == "batch" else sum_trace(net, x, y, loss)
        return batch_trace(net, x, y, loss)


def joint_sum(
    net: nn.Module, x: Tensor, y: Tensor, loss: Loss = torch.nn.functional.cross_entropy, chunk: int = 16
) -> float:
    """The first part of equation 11 where images influence each other: every image's own loss, the batch's statistics.

    The network must not be used afterwards where its running statistics matter: the forward pass moves them.
    """
    theta, out = trained(net), net(x)
    losses = torch.stack([loss(out[n : n + 1], y[n : n + 1]) for n in range(len(x))])
    total = 0.0
    for part in torch.split(torch.eye(len(x), dtype=out.dtype, device=out.device), chunk):
        rows = torch.autograd.grad(losses, theta, part, retain_graph=True, allow_unused=True, is_grads_batched=True)
        total += float(squared_norm(rows))
    return total


PLUGIN = NtkTrace
