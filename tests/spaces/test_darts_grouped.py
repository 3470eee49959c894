"""The grouped mixture's kernels; that it equals the plain form is tested with the space."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from sartor.core.task import Task
from sartor.spaces.cells import grouped
from sartor.spaces.cells.darts import Darts
from sartor.spaces.cells.ops import DilConv, FactorizedReduce, SepConv

TASK = Task(3, 16, 3)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))]


class Seen(TorchDispatchMode):
    """The arguments of every call of one operation."""

    def __init__(self, name):
        super().__init__()
        self.name, self.calls = name, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.overloadpacket.__name__ == self.name:
            self.calls.append(args)
        return function(*args, **(kwargs or {}))


def step(together=True, device="cpu", dtype=torch.float32):
    """A network with channels innermost, the leaves of a mixture and its loss."""
    torch.manual_seed(0)
    space = Darts(cells=4, channels=4).fitted(TASK)
    net = space.supernet(TASK).to(device, dtype, memory_format=torch.channels_last)
    net.grouped = together
    x = torch.randn(4, 3, 16, 16, dtype=dtype).contiguous(memory_format=torch.channels_last)
    leaves = {i: torch.rand(7, dtype=dtype).to(device).requires_grad_() for i in space.forecasters(TASK)}
    return net, list(leaves.values()), net(x.to(device), space.mixture(leaves)).square().sum()


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_those_of_the_plain_form_on_every_device(device):
    found = []
    for together in (False, True):
        net, leaves, loss = step(together, device, torch.float64)
        found.append([loss, *torch.autograd.grad(loss, [*leaves, *net.parameters()])])
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("n", [1, 3])
def test_kernels_on_the_diagonal_are_a_grouped_convolution(n):
    x = torch.randn(2, 4 * n, 6, 6, dtype=torch.float64)
    kernels = torch.randn(4 * n, 4, 5, 5, dtype=torch.float64, requires_grad=True)
    dense = F.conv2d(x, grouped._diagonal(kernels, n), padding=2)
    torch.testing.assert_close(dense, grouped._apart(x, kernels))
    aim = torch.randn_like(dense)
    ours, theirs = (torch.autograd.grad((y * aim).sum(), kernels)[0] for y in (dense, grouped._apart(x, kernels)))
    torch.testing.assert_close(ours, theirs)
    assert grouped._diagonal(kernels, n).is_contiguous(memory_format=torch.channels_last)


def test_depthwise_and_pointwise_are_one_dense_convolution():
    torch.manual_seed(0)
    small, large = (DilConv(4, size, 1, affine=False).double() for size in (3, 5))
    x = torch.randn(2, 4, 9, 9, dtype=torch.float64)
    one, two = grouped._dense([[(small[1], small[2])], [(large[1], large[2])]], torch.float64)
    for kernel, layers in ((one, small), (two, large)):
        assert kernel.shape == (4, 4, 5, 5)
        torch.testing.assert_close(F.conv2d(x, kernel, padding=4, dilation=2), layers[2](layers[1](x)))
    alone = SepConv(4, 3, 1, affine=False).double()
    (narrow,) = grouped._dense([[(alone[1], alone[2])]], torch.float64)
    assert narrow.shape == (4, 4, 3, 3)  # no border where no kernel is larger


@pytest.mark.parametrize("side", [8, 9])
def test_a_reducing_identity_is_a_convolution_of_squares(side):
    torch.manual_seed(0)
    layers = [FactorizedReduce(4, 5, affine=False).double().eval() for _ in range(2)]
    x = torch.randn(2, 4, side, side, dtype=torch.float64)
    together = grouped._reduced(layers, F.relu(x)).split(5, 1)
    for mine, layer in zip(together, layers, strict=True):
        torch.testing.assert_close(layer.norm(mine), layer(x))


def test_gradients_reach_every_batch_norm_in_one_piece():
    _, leaves, loss = step()
    with Seen("native_batch_norm_backward") as seen:
        torch.autograd.grad(loss, leaves)
    assert len(seen.calls) > 30
    # On CUDA a gradient in slices, or with channels outermost, takes kernels that are many times slower.
    for gradient, x, *_ in seen.calls:
        assert x.is_contiguous(memory_format=torch.channels_last)
        assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_rewards_cost_no_gradients_of_weights():
    net, leaves, loss = step()
    with Seen("convolution_backward") as seen:
        torch.autograd.grad(loss, leaves)
    masks = [tuple(args[-1]) for args in seen.calls]
    assert len(masks) > 30
    assert set(masks) == {(True, False, False)}
    assert all(p.grad is None for p in net.parameters())
