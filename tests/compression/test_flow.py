"""The layers of free scale are those whose weights can be doubled without any change, tried on every one."""

import copy

import pytest
import torch
import torch.nn.functional as F
from nets import Concat, Deciding, Residual, plain
from torch import nn

from sartor.compression.flow import scale_free
from sartor.compression.structures import layers


class Preactivated(nn.Module):
    """Norms before convolutions; what they write is added up, and norms read the sum."""

    def __init__(self, bias=False):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.n1, self.c1 = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1, bias=bias)
        self.n2, self.c2 = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1, bias=bias)
        self.last, self.fc = nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.c2(F.relu(self.n2(self.c1(F.relu(self.n1(x))))))
        return self.fc(F.relu(self.last(x)).mean((2, 3)))


class Listed(nn.Module):
    """All convolutions first, then all norms; an activation between, with and without a bias before it."""

    def __init__(self):
        super().__init__()
        convs = nn.Conv2d(1, 4, 3, bias=False), nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList([nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.BatchNorm2d(4)])
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        x = self.norms[0](F.max_pool2d(F.relu(self.convs[0](x)), 2))
        x = self.norms[1](F.relu(self.convs[1](x)))
        return self.fc(F.relu(self.norms[2](self.convs[2](x))).mean((2, 3)))


class Dense(nn.Module):
    """Every layer reads all before it, through a norm."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 3, 1), nn.Conv2d(3, 2, 1)
        self.na, self.nb, self.fc = nn.BatchNorm2d(3), nn.BatchNorm2d(5), nn.Linear(5, 3)

    def forward(self, x):
        x = self.a(x)
        x = torch.cat([x, self.b(F.relu(self.na(x)))], 1)
        return self.fc(F.relu(self.nb(x)).mean((2, 3)))


@pytest.mark.parametrize(("make", "count"), [
    (plain, 2), (Residual, 5), (Deciding, 5), (Concat, 0), (Preactivated, 1), (lambda: Preactivated(bias=True), 1),
    (Listed, 2), (Dense, 2),
])  # fmt: skip
def test_layers_of_free_scale_are_those_that_can_be_doubled(make, count):
    torch.manual_seed(0)
    net = make().double()
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.eps = 1e-100
            nn.init.normal_(norm.bias)
    x = torch.randn(4, 1, 8, 8, dtype=torch.float64)
    net(x)
    free = scale_free(net, x)
    assert net.training and len(free) == count
    before = net(x)
    for name in layers(net):
        doubled = copy.deepcopy(net)
        layers(doubled)[name].weight.data.mul_(2)
        assert torch.allclose(doubled(x), before, rtol=1e-9, atol=1e-12) == (name in free), name
