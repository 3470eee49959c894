"""Depthwise convolutions that stay in 32 bits while a CPU computes the rest in bfloat16.

oneDNN has no fast kernel for their gradients in bfloat16: a step took up to three times as long with them as without
(`engine/half.py`). On a GPU they follow the rest.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Depthwise(nn.Conv2d):
    """PyTorch's, in 32 bits on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        """The convolution; as it is where nothing is computed in half precision, so that it is exported as it is."""
        if not torch.is_autocast_enabled("cpu"):  # a GPU's half precision is another's matter
            return super().forward(input)
        with torch.autocast("cpu", enabled=False):
            return super().forward(input.float())


def in_32_bits(module: nn.Module) -> None:
    """Let the module's layers in which every channel has a kernel of its own stay in 32 bits from now on."""
    for layer in module.modules():
        if type(layer) is nn.Conv2d and layer.groups == layer.in_channels > 1:
            layer.__class__ = Depthwise
