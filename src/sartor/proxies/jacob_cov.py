"""Jacobian covariance: how differently a network treats the images of a batch (arXiv:2006.04647v1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from sartor.proxies.base import Proxy


@final
@dataclass(frozen=True, kw_only=True)
class JacobCov(Proxy):
    """Minus the divergence of the correlations between images' input gradients from independence."""

    jitter: float = 1e-5

    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """``-sum_i log(v_i + k) + 1 / (v_i + k)`` over eigenvalues v of the correlation matrix."""
        x = x.detach().requires_grad_(True)
        (jacobian,) = torch.autograd.grad(net(x).sum(), x, allow_unused=True)
        if jacobian is None:  # no path leads from the image to the output
            return float("-inf")
        rows = jacobian.flatten(1).double()
        rows = rows - rows.mean(1, keepdim=True)
        lengths = rows.norm(dim=1, keepdim=True)
        if not bool((lengths > 0).all()):
            return float("-inf")
        rows = rows / lengths
        values = torch.linalg.eigvalsh(rows @ rows.T).clamp_min(0.0) + self.jitter
        return -float((values.log() + 1 / values).sum())


PLUGIN = JacobCov
