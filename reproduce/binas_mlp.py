"""The multi-layer perceptron of BINAS, section 3.2.3: a predictor beyond quadratics.

Inputs are the one-hot vectors of all choices, zero where a choice is inactive; four hidden layers
of 500 with ReLU and dropout, as published. The training is our own: targets are standardised,
mini-batches, AdamW with a one-cycle rate, and the weights of the best epoch on held-out samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from sartor.core.arch import Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Array
from sartor.engine.seeding import seeded
from sartor.predictors.base import Predictor, check_samples


class Encoder:
    """zeta -> the network's input: a choice's vector times the probability that the choice is active."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.sizes = tuple(len(c.options) for c in choices)
        self.first = np.concatenate([[0], np.cumsum(self.sizes)]).astype(int)
        self.gates = [(i, other, allowed) for i, c in enumerate(choices) for other, allowed in c.needs]

    def __call__(self, zeta: Tensor) -> Tensor:
        """The (n, entries) input; at vertices exactly zero or one."""
        active = [zeta.new_ones(len(zeta), 1) for _ in self.sizes]
        for i, other, allowed in self.gates:
            columns = [int(self.first[other]) + a for a in allowed]
            active[i] = active[i] * zeta[:, columns].sum(1, keepdim=True)
        return torch.cat(
            [part * on for part, on in zip(torch.split(zeta, list(self.sizes), 1), active, strict=True)], 1
        )

    def one_hot(self, picks: ArrayLike) -> Tensor:
        """The vertices of whole architectures."""
        index = np.asarray(picks, np.int64)
        zeta = torch.zeros(len(index), int(self.first[-1]), dtype=torch.float64)
        return zeta.scatter_(1, torch.from_numpy(index + self.first[:-1]), 1.0)


@dataclass(frozen=True, eq=False)
class FittedMLP:
    """A trained predictor: values of architectures, and value and gradient of relaxed ones for Frank-Wolfe."""

    encoder: Encoder
    net: nn.Module
    mean: float
    scale: float

    def batch(self, picks: ArrayLike) -> Array:
        """The predictions for (n, choices) picks."""
        with torch.no_grad():
            return self._value(self.encoder.one_hot(picks)).numpy()

    def value_and_gradient(self, zeta: Array) -> tuple[float, Array]:
        """The prediction at one relaxed architecture and its derivatives."""
        point = torch.from_numpy(np.asarray(zeta, np.float64))[None].requires_grad_()
        value = self._value(point)
        (gradient,) = torch.autograd.grad(value.sum(), point)
        return float(value.detach()), gradient[0].numpy()

    def _value(self, zeta: Tensor) -> Tensor:
        out: Tensor = self.net(self.encoder(zeta))[:, 0]
        return self.mean + self.scale * out


@final
@dataclass(frozen=True, kw_only=True)
class MLP(Predictor):
    """Multi-layer perceptron on one-hot inputs (BINAS, section 3.2.3)."""

    width: int = 500
    layers: int = 4
    dropout: float = 0.2
    epochs: int = 200
    batch: int = 64
    lr: float = 1e-3
    weight_decay: float = 1e-3
    held_out: float = 0.1

    def __post_init__(self) -> None:
        if min(self.width, self.layers, self.epochs, self.batch) < 1 or not 0 < self.held_out < 1:
            raise BadInput(
                "width, layers, epochs and batch must be at least 1 and held_out between 0 and 1, "
                f"but got {self.width}, {self.layers}, {self.epochs}, {self.batch} and {self.held_out}."
            )

    def fit(
        self, picks: ArrayLike, targets: ArrayLike, choices: Sequence[Choice], rng: np.random.Generator
    ) -> FittedMLP:
        """Train on all but `held_out` of the samples; keep the weights of the best epoch on those."""
        index, y, _ = check_samples(picks, targets, choices, least=10)
        encoder = Encoder(choices)
        mean, scale = float(y.mean()), float(y.std()) or 1.0
        x, goal = encoder(encoder.one_hot(index)).float(), torch.from_numpy((y - mean) / scale).float()
        order = torch.from_numpy(rng.permutation(len(y)))
        kept = max(1, round(self.held_out * len(y)))
        with seeded(int(rng.integers(2**31))):
            net = self._build(x.shape[1])
            self._train(net, x, goal, order[kept:], order[:kept])
        return FittedMLP(encoder, net.double().eval().requires_grad_(False), mean, scale)

    def _build(self, inputs: int) -> nn.Sequential:
        parts: list[nn.Module] = []
        for n in range(self.layers):
            parts += [nn.Linear(inputs if n == 0 else self.width, self.width), nn.ReLU(), nn.Dropout(self.dropout)]
        last = nn.Linear(self.width, 1)
        nn.init.zeros_(last.bias)  # targets are standardised: zero is the mean accuracy
        return nn.Sequential(*parts, last)

    def _train(self, net: nn.Sequential, x: Tensor, y: Tensor, train: Tensor, kept: Tensor) -> None:
        optimizer = torch.optim.AdamW(net.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        steps = -(-len(train) // self.batch)
        rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.lr, total_steps=steps * self.epochs)
        best, least = {k: v.clone() for k, v in net.state_dict().items()}, float("inf")
        for _ in range(self.epochs):
            net.train()
            for rows in torch.split(train[torch.randperm(len(train))], self.batch):
                optimizer.zero_grad()
                nn.functional.smooth_l1_loss(net(x[rows])[:, 0], y[rows]).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                rate.step()
            net.eval()
            with torch.no_grad():
                error = float(nn.functional.mse_loss(net(x[kept])[:, 0], y[kept]))
            if error < least:
                best, least = {k: v.clone() for k, v in net.state_dict().items()}, error
        net.load_state_dict(best)
