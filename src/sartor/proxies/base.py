"""The contract of a training-free proxy.

Published values of one and the same proxy differ by how the weights were drawn, by what the batch-norms do and by the
batch; so all three are explicit: the first two are options of every proxy, the batch is an argument.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from sartor.engine.curvature.kernel import Init, Norm, prepare
from sartor.proxies.clone import clone


@dataclass(frozen=True, kw_only=True)
class Proxy(ABC):
    """A frozen dataclass whose fields are its options; calling it measures a network on a batch.

    `needs_batch` is false where the number depends on the network and the image's shape alone; `cost` then names the
    additive cost that it is, if any: a table prices all networks of a space at once.
    """

    needs_batch: ClassVar[bool] = True
    cost: ClassVar[str | None] = None

    init: Init = "keep"
    norm: Norm = "batch"
    gain: float = 1.0
    seed: int = 0  # of the weights, where they are drawn anew

    @final
    def __call__(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """The number; the network that was given is left as it is, and torch's random state too."""
        mine = clone(net)
        prepare(mine, self.init, self.norm, self.gain, self.seed)
        with torch.enable_grad():
            return float(self.measure(mine, x, y))

    @abstractmethod
    def measure(self, net: nn.Module, x: Tensor, y: Tensor) -> float:
        """The number for a prepared network of one's own, which may be changed."""


def layers(net: nn.Module) -> Iterator[nn.Conv2d | nn.Linear]:
    """The convolutions and linear layers: what published proxies sum over."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            yield module


def gradients(loss: Tensor, net: nn.Module, graph: bool = False) -> list[tuple[Tensor, Tensor]]:
    """Every layer's weight with the gradient of `loss`; layers that the output does not depend on are left out."""
    tensors: list[Tensor] = [layer.weight for layer in layers(net)]
    found = torch.autograd.grad(loss, tensors, create_graph=graph, allow_unused=True)
    return [(w, g) for w, g in zip(tensors, found, strict=True) if g is not None]
