"""1x1 convolutions with a stride: right gradients on a CPU, whatever the layout (oneDNN's own may end the process)."""

import pytest
import torch
from torch import nn

from sartor.engine.device import Engine
from sartor.spaces.pointwise import Pointwise


def gradients(layer, x, weights):
    x = x.detach().requires_grad_()
    (layer(x) * weights).sum().backward()
    return x.grad, layer.weight.grad


@pytest.mark.parametrize(("channels", "side", "stride"), [(4, 32, 2), (8, 48, 2), (8, 9, (1, 2)), (15, 16, 3)])
def test_gradients_are_those_of_float64(channels, side, stride):
    torch.manual_seed(0)
    net = Engine("cpu").place(nn.Sequential(nn.Conv2d(channels, 8, 1, stride, bias=False))).train()
    x = torch.randn(32, channels, side, side)
    exact = nn.Conv2d(channels, 8, 1, stride, bias=False).double()
    exact.load_state_dict({"weight": net[0].weight.detach().double()})
    weights = torch.randn_like(net(x))
    found = gradients(net[0], x.contiguous(memory_format=torch.channels_last), weights)
    for mine, right in zip(found, gradients(exact, x.double(), weights.double()), strict=True):
        torch.testing.assert_close(mine, right.float(), rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(net(x), net.eval()(x))


def test_only_what_has_the_fault_takes_the_detour():
    layers = [
        nn.Conv2d(8, 16, 1, 2), nn.Conv2d(32, 16, 1, 2), nn.Conv2d(8, 16, 1), nn.Conv2d(8, 16, 3, 2, 1),
        nn.Conv2d(8, 16, 1, 2, 1), nn.Conv2d(8, 8, 1, 2, groups=8), nn.Conv2d(8, 16, 1, 2, padding_mode="reflect"),
    ]  # fmt: skip
    placed = Engine("cpu").place(nn.ModuleList(layers))
    assert [type(layer) is Pointwise for layer in placed] == [True] + 6 * [False]
