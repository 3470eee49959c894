"""The sparse prior of every layer and its updates: Algorithm 3's step 3 with table S3.

With energies E / lambda, which is what minimising ``E + lambda R`` is the MAP estimate of, the Hessian enters as
H / lambda (printed without in (B.0.3), with it in the authors' search code). A weight in several groups has the product
of their priors: precisions add.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from sartor.compression.structures import Layer, Structure, layers, of_layer, shrink, view
from sartor.core.config import check
from sartor.core.errors import BadInput

_TINY = 1e-30
_LEAST = 1e-15  # of a variance: its square is a number of 32 bits still


@dataclass(eq=False)
class LayerPrior:
    """gamma and omega of one layer's groups, a tensor a structure; the pruned weights; the weights' relevance.

    All in the form W[N, C, m, k] (`structures.view`).
    """

    layer: Layer
    structures: tuple[Structure, ...]
    free: bool = False  # of scale: the loss does not feel a common factor of the weights
    gamma: dict[str, Tensor] = field(default_factory=dict)
    omega: dict[str, Tensor] = field(default_factory=dict)
    alive: Tensor = field(init=False)
    relevance: Tensor = field(init=False)

    def __post_init__(self) -> None:
        for s in self.structures:
            start = torch.ones_like(s.norms(self.weight))
            self.gamma[s.name], self.omega[s.name] = start, start.clone()
        self.alive = torch.ones_like(self.weight)
        self.relevance = torch.zeros_like(self.weight)

    @property
    def weight(self) -> Tensor:
        """The weight as W[N, C, m, k], sharing memory with the layer's."""
        return view(self.layer, self.layer.weight.detach())

    def penalty(self) -> Tensor:
        """``R(omega o W)`` of (B.0.1)."""
        parts = [(self.omega[s.name] * s.norms(self.weight)).sum() for s in self.structures]
        return torch.stack(parts).sum() if parts else self.weight.new_zeros(())

    def proximal(self, step: float) -> None:
        """Shrink every group by ``step * omega``; what was pruned stays zero.

        Where the loss does not feel the weights' scale, nothing would stop the penalty from taking all groups, relevant
        or not: the weights' common norm is brought back, so that groups only shrink against each other.
        """
        before = self.weight.norm() if self.free else None
        for s in self.structures:
            shrink(self.weight, s, step * self.omega[s.name])
        self.weight.mul_(self.alive)
        if before is not None:
            self.weight.mul_(before / self.weight.norm().clamp_min(_TINY))

    def update(self, hessian: Tensor, strength: float) -> None:
        """(B.0.2) to (B.0.5): gamma from omega and W, then omega from gamma and the Hessian's diagonal.

        A weight's prior has the precision ``P = sum_g 1/gamma_g`` over its groups, and h = H / lambda. omega_g^2 is the
        slope of ``sum log(1 + h / P)`` (A.2.7) by gamma_g: ``sum h / (1 + h / P) / (P gamma_g)^2`` over the group's
        weights. With one group a weight, P gamma = 1 and this is (B.0.4).
        `relevance` is, weight by weight, by how much the energy would rise without it, to second order: the gradient
        of the loss, which the penalty's balances, and half the curvature, ``w^2 sum_g omega_g/||W_g|| + h w^2 / 2``.
        """
        w, h = self.weight, (view(self.layer, hessian.to(self.weight)) / strength).clamp_min(0.0)
        precision, balance = torch.zeros_like(w), torch.zeros_like(w)
        for s in self.structures:
            norms = s.norms(w)
            self.gamma[s.name] = norms / self.omega[s.name].clamp_min(_TINY)
            precision = precision + s.spread(1 / self.gamma[s.name].clamp_min(_LEAST))
            balance = balance + s.spread(self.omega[s.name] / norms.clamp_min(_TINY))
        variance = 1 / precision.clamp_min(_LEAST)
        slope = h / (1 + h * variance) * variance * variance
        for s in self.structures:
            self.omega[s.name] = s.sums(slope).sqrt() / self.gamma[s.name].clamp_min(_LEAST)
        self.relevance = torch.where(w == 0, 0.0, w * w * (balance + 0.5 * h))

    def prune(self) -> dict[str, int]:
        """Step 4: groups that training drove to zero go for good; how many of each structure are left."""
        left = {}
        for s in self.structures:
            dead = s.norms(self.weight) == 0
            self.alive = self.alive * (s.spread(dead.to(self.alive)) == 0)
            left[s.name] = int((~dead).sum())
        self.mask()
        return left

    @torch.no_grad()
    def mask(self) -> None:
        """Pruned weights are zero; a filter that is gone takes its bias with it."""
        self.weight.mul_(self.alive)
        self.relevance = self.relevance * self.alive
        if self.layer.bias is not None:
            self.layer.bias.mul_((self.layer.weight.flatten(1) != 0).any(1))


class Prior:
    """All layers' priors. `state_dict` and `load_state_dict` make it part of a training's checkpoint.

    `free` names the layers whose weights have a common factor that the loss does not feel (`flow.scale_free`).
    """

    def __init__(
        self, net: nn.Module, structures: Mapping[str, Sequence[str]], strength: float, free: Collection[str] = ()
    ) -> None:
        known = layers(net)
        self.layers = {n: LayerPrior(known[n], of_layer(known[n], names), n in free) for n, names in structures.items()}
        self.strength = strength
        if not self.layers:
            raise BadInput("there is nothing to compress: the network has no convolution and no linear layer.")
        check(self, strength="> 0")

    def penalty(self) -> Tensor:
        """``lambda sum_l R(omega^l o W^l)`` of (B.0.1)."""
        return self.strength * torch.stack([prior.penalty() for prior in self.layers.values()]).sum()

    @torch.no_grad()
    def proximal(self, rate: float) -> None:
        """A proximal step of the penalty at this learning rate."""
        for prior in self.layers.values():
            prior.proximal(rate * self.strength)

    @torch.no_grad()
    def update(self, hessians: Mapping[str, Tensor]) -> dict[str, dict[str, int]]:
        """Steps 3 and 4 of Algorithm 3 for every layer: how many groups of each structure are left."""
        left = {}
        for name, prior in self.layers.items():
            prior.update(hessians[f"{name}.weight"], self.strength)
            left[name] = prior.prune()
        return left

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        kinds = ("gamma", "omega", "alive", "relevance")
        return {n: {kind: getattr(p, kind) for kind in kinds} for n, p in self.layers.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Read what `state_dict` gave."""
        for name, prior in self.layers.items():
            like = prior.weight
            for kind in ("gamma", "omega"):
                setattr(prior, kind, {k: v.to(like.device) for k, v in state[name][kind].items()})
            for kind in ("alive", "relevance"):
                setattr(prior, kind, state[name][kind].to(like.device))
