"""Average pooling: the same numbers and gradients as PyTorch's own, whatever the layout and the device."""

import pytest
import torch
from torch import nn

from sartor.core.registry import SPACES
from sartor.core.task import Task
from sartor.engine.device import Engine
from sartor.spaces import pooling as averaging
from sartor.spaces.mending import mended
from sartor.spaces.pooling import AvgPool2d

SHAPES = [(3, 1, 1, False), (3, 2, 1, False), (3, 2, 1, True), (5, 2, (2, 1), False), (2, 2, 0, False)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))]


def both(layer, x):
    """The result and the gradient of a weighted sum of it."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = layer(x)
    weights = torch.arange(y.numel(), dtype=y.dtype).view(y.shape).sin().to(x.device)
    return y, torch.autograd.grad((y * weights).sum(), x)[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kernel", "stride", "padding", "border"), SHAPES)
def test_gradients_are_those_of_the_plain_layout(kernel, stride, padding, border, device, monkeypatch):
    if device == "cpu":  # the detour itself, where the kernel has no fault
        monkeypatch.setattr(averaging, "_wrong", lambda x: True)
    given = {"kernel_size": kernel, "stride": stride, "padding": padding, "count_include_pad": border}
    x = torch.randn(2, 3, 7, 8, dtype=torch.float64)
    plain = both(nn.AvgPool2d(**given), x)
    ours = both(AvgPool2d(**given), x.to(device).contiguous(memory_format=torch.channels_last))
    for mine, right in zip(ours, plain, strict=True):
        torch.testing.assert_close(mine.cpu(), right)
    assert ours[0].is_contiguous(memory_format=torch.channels_last)


def test_the_detour_is_taken_only_where_there_is_a_border(monkeypatch):
    monkeypatch.setattr(averaging, "_wrong", lambda x: True)
    seen = []
    monkeypatch.setattr(nn.AvgPool2d, "forward", lambda self, x: seen.append(x.is_contiguous()) or x)
    x = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    for padding in (0, 1, (0, 0), (0, 1)):
        AvgPool2d(3, padding=padding)(x)
    assert seen == [False, True, False, True]


def test_the_detour_can_be_mapped_and_differentiated_twice(monkeypatch):
    monkeypatch.setattr(averaging, "_wrong", lambda x: x.dim() == 4 and x.stride(1) == 1)
    ours, plain = AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d(3, 2, 1, count_include_pad=False)
    x = torch.randn(5, 2, 3, 6, 6, dtype=torch.float64).permute(0, 1, 4, 2, 3)  # (5, 2, 6, 3, 6)
    found, right = (torch.func.vmap(torch.func.hessian(lambda z, f=f: f(z).pow(3).sum()))(x) for f in (ours, plain))
    torch.testing.assert_close(found, right)


def test_a_given_network_is_mended_where_it_is_placed():
    pools = [nn.AvgPool2d(2), nn.AvgPool2d(3, 1, 1), nn.MaxPool2d(3, 1, 1)]
    net = Engine("cpu").place(nn.Sequential(*pools))
    assert [type(layer) for layer in net] == [nn.AvgPool2d, AvgPool2d, nn.MaxPool2d]
    assert net[1] is pools[1]
    assert mended(net) is net


@pytest.mark.parametrize("name", ["darts", "freecells", "nasbench201", "treecell"])
def test_no_space_averages_over_a_border_by_pytorchs_own_layer(name):
    task = Task(3, 16, 3)
    space = SPACES[name]().fitted(task)
    padded = [m for m in space.supernet(task).modules() if isinstance(m, nn.AvgPool2d) and averaging.padded(m)]
    assert padded
    assert {type(m) for m in padded} == {AvgPool2d}
