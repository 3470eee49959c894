"""Copies of networks: nothing shared, nothing changed."""

import copy

import torch
from torch import nn

from sartor.proxies.clone import clone


class Odd(nn.Module):
    """Tied weights, a module twice, modules in plain attributes, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.again = self.a
        self.plain = [self.b, {"norm": nn.BatchNorm1d(3)}]
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return self.plain[1]["norm"](self.plain[0](self.again(self.a(x)))) * self.scale


def test_equals_a_deep_copy_and_leaves_the_original_alone():
    torch.manual_seed(0)
    net, x = Odd().train(), torch.randn(5, 3)
    before = copy.deepcopy(net)
    mine = clone(net)
    assert torch.equal(mine(x), copy.deepcopy(net)(x))
    assert mine.b.weight is mine.a.weight
    assert mine.again is mine.a
    assert mine.plain[0] is mine.b
    with torch.no_grad():
        mine.a.weight.zero_()
        mine.scale.zero_()
    mine.eval().a.register_forward_hook(lambda module, args, out: None)
    assert net.training
    assert not net.a._forward_hooks
    assert all(torch.equal(v, before.state_dict()[k]) for k, v in net.state_dict().items())
    assert torch.equal(net(x), before(x))


def test_hooks_go_along():
    net = nn.Sequential(nn.Linear(2, 2))
    seen = []
    net[0].register_forward_hook(lambda module, args, out: seen.append(module))
    mine = clone(net)
    mine(torch.ones(1, 2))
    assert seen == [mine[0]]
