"""Layers whose gradients libraries get wrong are replaced by those that take a detour."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from sartor.spaces import pointwise, pooling

Module = TypeVar("Module", bound=nn.Module)


def mended(module: Module) -> Module:
    """The module itself, with the right gradient wherever it averages over a border or strides over few channels."""
    for layer in module.modules():  # the same layers: references to them, their hooks and their names stay
        if type(layer) is nn.AvgPool2d and pooling.padded(layer):
            layer.__class__ = pooling.AvgPool2d
        elif type(layer) is nn.Conv2d and pointwise.faulty(layer):
            layer.__class__ = pointwise.Pointwise
    return module
