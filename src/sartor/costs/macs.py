"""Multiply-accumulate operations of one image."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, final

from sartor.core.units import COUNT, Kind
from sartor.costs.base import Cost
from sartor.spaces.base import Shape

if TYPE_CHECKING:
    from torch import nn


@final
@dataclass(frozen=True, kw_only=True)
class Macs(Cost):
    """Multiply-accumulates of convolutions (squeeze-excitation's too) and fully connected layers, counted.

    Batch-norm, activations, pooling, residual additions, biases and squeeze-excitation's final
    product are left out: the convention of the papers, which call these numbers FLOPs.
    """

    kind: ClassVar[Kind] = COUNT

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The multiply-accumulates of one forward pass at batch 1; nothing is computed, only shapes pass through."""
        import torch
        from torch.func import functional_call

        from sartor.deploy.module import evaluating

        tensors = dict([*module.named_parameters(), *module.named_buffers()])
        elsewhere = {n: t.detach().to("meta") for n, t in tensors.items() if not t.is_meta}
        x = torch.empty(1, *in_shape, device="meta")
        with evaluating(module), _told_by_shapes(module) as told, _counter() as counter:
            functional_call(module, elsewhere, (x,)) if elsewhere else module(x)
        return float(counter.flops // 2 + sum(told))


def _counter() -> Any:
    """Counts what is computed outside the layers that tell; without gradients every operator arrives in its parts."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
        flops = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            out = func(*args, **(kwargs or {}))
            if func._overloadpacket in flop_registry:
                self.flops += flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=out)
            return out

    return Counter()  # type: ignore[no-untyped-call]


@contextmanager
def _told_by_shapes(module: nn.Module) -> Iterator[list[int]]:
    """Inside, the usual layers only tell the shape of what they would give, and list their multiply-accumulates.

    A space has thousands of parts, and running one of them takes torch milliseconds even where nothing is computed.
    """
    from torch import Tensor, nn

    told: list[int] = []

    def convolved(layer: nn.Conv2d, x: Tensor) -> Tensor:
        window = zip(layer.kernel_size, layer.stride, map(int, layer.padding), layer.dilation, strict=True)
        sides = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, (k, s, p, d) in zip(x.shape[2:], window, strict=True)]
        told.append(layer.weight.numel() * math.prod(sides) * len(x))
        return x.new_empty(len(x), layer.out_channels, *sides)

    def unchanged(layer: nn.Module, x: Tensor) -> Tensor:
        return x

    changed = []
    for layer in module.modules():
        if type(layer) is nn.Conv2d and not isinstance(layer.padding, str):
            layer.forward = partial(convolved, layer)  # type: ignore[method-assign]
        elif type(layer) in (nn.BatchNorm2d, nn.ReLU, nn.ReLU6, nn.Hardswish, nn.Dropout):
            layer.forward = partial(unchanged, layer)
        else:
            continue
        changed.append(layer)
    try:
        yield told
    finally:
        for layer in changed:
            del layer.forward


PLUGIN = Macs
