"""1x1 convolutions with a stride whose gradient is right on a CPU.

Where maps have channels innermost and fewer of them than a vector holds, oneDNN writes past a buffer when it computes
the gradient of such a convolution's weights (its issue 6035, open): wrong gradients, a hang, or the end of the process.
Sartor keeps channels innermost, so while it trains such a layer takes the pixels that count first and is then one
without a stride: the same numbers.
"""

from __future__ import annotations

from torch import Tensor, nn

_VECTOR = 32  # numbers of 16 bits in AVX-512's registers; of 32 bits, half as many


class Pointwise(nn.Conv2d):
    """PyTorch's, with the right gradient."""

    def forward(self, input: Tensor) -> Tensor:
        """The convolution; as it is where nothing is trained, so that it is exported as it is."""
        if not self.training or input.is_cuda:
            return super().forward(input)
        down, across = self.stride
        return nn.functional.conv2d(input[..., ::down, ::across], self.weight, self.bias)


def faulty(layer: nn.Conv2d) -> bool:
    """Whether oneDNN may get the gradient of such a layer wrong."""
    size = (*layer.kernel_size, *layer.padding, layer.groups) if layer.padding_mode == "zeros" else ()
    return size == (1, 1, 0, 0, 1) and max(layer.stride) > 1 and layer.in_channels < _VECTOR
