"""What a module computes, layer by layer, told by shapes alone.

A space has thousands of parts, and to run one of them takes torch milliseconds even where nothing is computed (meta
tensors). So the usual layers are not run: each tells the shape of what it would give, and what that takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from sartor.deploy.module import evaluating
from sartor.spaces.base import Shape

_PASSED = (nn.BatchNorm2d, nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.Dropout)  # layers that keep the shape


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution or a fully connected layer at batch 1."""

    macs: int
    weights: int
    channels: int
    outputs: int  # numbers that it gives
    grouped: bool = False  # not every output depends on every input channel


@dataclass(frozen=True, slots=True)
class Count:
    """Multiply-accumulates of a module, the layers that make up most of them, and the shape of what it gives."""

    macs: float
    layers: tuple[Layer, ...]
    out_shape: tuple[int, ...]


def count(module: nn.Module, in_shape: Shape) -> Count:
    """Count one forward pass at batch 1."""
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    elsewhere = {n: t.detach().to("meta") for n, t in tensors.items() if not t.is_meta}
    x = torch.empty(1, *in_shape, device="meta")
    with evaluating(module), telling(module) as layers, _Counter() as rest:  # type: ignore[no-untyped-call]
        out = functional_call(module, elsewhere, (x,)) if elsewhere else module(x)
    shape = tuple(out.shape[1:]) if isinstance(out, Tensor) else ()
    return Count(float(rest.flops // 2 + sum(layer.macs for layer in layers)), tuple(layers), shape)


def _unchanged(x: Tensor) -> Tensor:
    return x


@contextmanager
def telling(module: nn.Module, passed: Callable[[Tensor], Tensor] = _unchanged) -> Iterator[list[Layer]]:
    """Inside, the usual layers of the module are not run but listed; those that keep the shape do `passed` instead."""
    listed: list[Layer] = []
    changed: list[nn.Module] = []
    for layer in module.modules():
        forward: Any
        if type(layer) is nn.Conv2d and not isinstance(layer.padding, str):
            forward = partial(_convolved, listed, layer)
        elif type(layer) is nn.Linear:
            forward = partial(_connected, listed, layer)
        elif type(layer) in _PASSED:
            forward = passed
        else:
            continue
        layer.forward = forward
        changed.append(layer)
    try:
        yield listed
    finally:
        for layer in changed:
            del layer.forward


def _convolved(listed: list[Layer], layer: nn.Conv2d, x: Tensor) -> Tensor:
    window = zip(layer.kernel_size, layer.stride, map(int, layer.padding), layer.dilation, strict=True)
    sides = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, (k, s, p, d) in zip(x.shape[2:], window, strict=True)]
    weights, pixels = layer.weight.numel(), math.prod(sides) * len(x)
    listed.append(Layer(weights * pixels, weights, layer.out_channels, layer.out_channels * pixels, layer.groups > 1))
    return x.new_empty(len(x), layer.out_channels, *sides)


def _connected(listed: list[Layer], layer: nn.Linear, x: Tensor) -> Tensor:
    weights, rows = layer.weight.numel(), math.prod(x.shape[:-1])
    listed.append(Layer(weights * rows, weights, layer.out_features, layer.out_features * rows))
    return x.new_empty(*x.shape[:-1], layer.out_features)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts what is computed outside the layers that tell; without gradients every operator arrives in its parts."""

    flops = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if func._overloadpacket in flop_registry:
            self.flops += flop_registry[func._overloadpacket](*args, **(kwargs or {}), out_val=out)
        return out
