"""Muon: inner convolutions move by orthogonal matrices (Jordan et al. 2024), the rest by SGD.

A gradient's momentum, as a matrix of outputs by inputs, has a few large singular values and many small ones; all are
brought to about one, so that a step moves every direction alike. Short trainings end several points higher, though a
step takes longer (`benchmarks/recipes.py`). PyTorch has one for matrices alone, always in bfloat16, which ends the
process on some CPUs; here large products are in bfloat16 where the CPU computes in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor, nn

_MOMENTUM = 0.8
_TURNS = 3  # of the iteration: five end no higher (docs/decisions.md), and take longer
_WIDE = 1.5  # columns a row from which the iteration on squares is the shorter one
_LARGE = 96  # rows from which products in bfloat16 take less time: half as much at 128, a quarter at 256
# Its polynomial a x + b x^3 + c x^5: in three turns 0.05 to 1 come to 0.6 to 1.2, what is less grows by 40.
_A, _B, _C = 3.4445, -4.7750, 2.0315


@final
class Muon(torch.optim.SGD):
    """SGD whose groups that are marked `orthogonal` take orthogonal steps, with a decay of their own.

    Such a group's weights shrink by ``lr * decay`` a step, apart from their gradients. `half`: the machine computes in
    bfloat16.
    """

    half = False

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step of all groups; gradients that orthogonal ones have used are gone."""
        for group in self.param_groups:
            if group.get("orthogonal"):
                self._orthogonal(group)
        super().step(closure)  # passes over what has no gradient

    def _orthogonal(self, group: dict[str, Any]) -> None:
        shapes: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = {}
        for p in group["params"]:
            if p.grad is None:
                continue
            mean = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
            mean.mul_(_MOMENTUM).add_(p.grad)
            ahead = p.grad.add(mean, alpha=_MOMENTUM).flatten(1)  # Nesterov's
            shapes.setdefault((ahead.shape[0], ahead.shape[1]), []).append((p, ahead))
            p.grad = None
        for (rows, columns), alike in shapes.items():  # those of one shape at once
            turned = orthogonal(torch.stack([m for _, m in alike]), self.half)
            for (p, _), move in zip(alike, turned, strict=True):
                p.mul_(1 - group["lr"] * group["decay"])
                p.add_(move.view_as(p), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)


def orthogonal(matrices_NRC: Tensor, half: bool = False) -> Tensor:
    """Matrices with the same singular vectors, whose singular values are about one (Newton-Schulz)."""
    x = matrices_NRC / (matrices_NRC.norm(dim=(1, 2), keepdim=True) + 1e-7)
    x = x.bfloat16() if half and min(x.shape[1:]) >= _LARGE else x
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = _factor(x @ x.mT) @ x if x.shape[2] > _WIDE * x.shape[1] else _turned(x)
    return (x.mT if tall else x).float()


def _turned(x: Tensor) -> Tensor:
    for _ in range(_TURNS):
        square = x @ x.mT
        x = _A * x + (_B * square + _C * (square @ square)) @ x
    return x


def _factor(square: Tensor) -> Tensor:
    """What all turns together multiply a matrix by, from its square ``x x'`` alone: less work where x is wide.

    A turn is ``x <- p x`` with a polynomial p of the square, which commutes with it: ``square <- p p square``.
    """
    total = None
    for turn in range(_TURNS):
        p = _B * square + _C * (square @ square)
        p.diagonal(dim1=1, dim2=2).add_(_A)
        total = p if total is None else p @ total
        if turn + 1 < _TURNS:
            square = p @ p @ square
    assert total is not None
    return total


def inner(net: nn.Module) -> Iterable[nn.Parameter]:
    """The weights that such steps suit: of all convolutions but the first one and those of separate channels."""
    layers = [m for m in net.modules() if isinstance(m, nn.Conv2d)]
    own = [m.weight for m in layers[1:] if m.groups == 1]
    return [weight for weight in own if isinstance(weight, nn.Parameter)]  # not what is made of one (`rounding.py`)
