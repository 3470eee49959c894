"""Average pooling whose gradient is right on every device.

PyTorch's CUDA kernel for maps with channels innermost forgets the border in the backward pass (its issue 188344, mended
in 2.14): wherever an average pooling has padding, wrong gradients reach everything before it, without a word. Sartor
keeps channels innermost, so such maps take the other layout here, whose kernel is right.
"""

from __future__ import annotations

from torch import Tensor, nn


class AvgPool2d(nn.AvgPool2d):
    """PyTorch's, with the right gradient."""

    def forward(self, input: Tensor) -> Tensor:
        """The average of every window."""
        if not _wrong(input) or not padded(self):
            return super().forward(input)
        averages = super().forward(input.contiguous())
        return averages.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)  # channels innermost again


def padded(layer: nn.AvgPool2d) -> bool:
    """Whether windows reach over a border."""
    return any(layer.padding) if isinstance(layer.padding, tuple) else layer.padding > 0


def _wrong(x: Tensor) -> bool:
    """Whether PyTorch would take the kernel with the fault."""
    return x.is_cuda and x.dim() == 4 and x.stride(1) == 1  # so asked, `vmap` can answer
