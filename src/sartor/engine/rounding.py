"""A network trained as it will compute in 8 bits: weights and the inputs of its layers rounded on the way forward.

On the way back the gradient passes as if nothing were rounded (Jacob et al., arXiv:1712.05877, section 3). A weight has
a step for each output channel, which the batch-norm that is folded into the layer later scales alike; an input has the
range of its batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

_LAYERS = (nn.Conv2d, nn.Linear)
_TINY = 1e-12


class Rounded(nn.Module):
    """A weight in 8 bits, a step for each output channel."""

    def forward(self, weight: Tensor) -> Tensor:  # noqa: D102
        most = weight.detach().abs().flatten(1).amax(dim=1).clamp_min(_TINY)
        return _steps(weight, (most / 127).reshape(-1, *(1,) * (weight.ndim - 1)))


def _steps(x: Tensor, step: Tensor) -> Tensor:
    """Whole steps; the gradient is that of `x`."""
    return x + ((x / step).round() * step - x).detach()


def _input(layer: nn.Module, given: Any) -> Any:
    """The input in 256 steps from its least to its largest value, zero among them."""
    x, *more = given
    low, high = x.detach().amin().clamp_max(0), x.detach().amax().clamp_min(0)
    return (_steps(x, ((high - low) / 255).clamp_min(_TINY)), *more)


@contextmanager
def rounding(net: nn.Module) -> Iterator[None]:
    """For as long as this lasts the network computes as in 8 bits; what it learns stays in its own weights."""
    layers = [m for m in net.modules() if isinstance(m, _LAYERS)]
    hooks = [layer.register_forward_pre_hook(_input) for layer in layers]
    for layer in layers:
        parametrize.register_parametrization(layer, "weight", Rounded())
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for layer in layers:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
