"""A likelihood beside those of the tasks: numbers with noise, as BayesNAS writes its equations."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sartor.engine.curvature.hessian import Likelihood


@dataclass(frozen=True)
class Gaussian(Likelihood):
    """Numbers with noise of the given variance (equation 9): half the squared error over it, H = I / variance."""

    variance: float = 1.0

    def loss(self, outputs_BC: Tensor, y: Tensor) -> Tensor:
        """Squared error."""
        return (outputs_BC - y).pow(2).sum() / (2 * self.variance * len(y))

    @torch.no_grad()
    def sample(self, outputs_BC: Tensor, generator: torch.Generator | None) -> Tensor:
        """Outputs with noise."""
        shape, like = outputs_BC.shape, outputs_BC
        noise = torch.randn(shape, generator=generator, device=like.device, dtype=like.dtype)
        return outputs_BC + math.sqrt(self.variance) * noise

    @torch.no_grad()
    def bend(self, outputs_BC: Tensor, tangents_BCK: Tensor) -> Tensor:
        """The squared tangent."""
        return tangents_BCK.pow(2).sum(1) / self.variance
