"""A cut network computes what the whole one does with the same weights set to zero; counts and budgets are exact."""

import copy

import numpy as np
import pytest
import torch
from nets import FACTORIES, Residual, warm
from torch import nn

from sartor.compression.graph import widths
from sartor.compression.space import Widths
from sartor.compression.surgery import Plan, apply, branches
from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit
from sartor.core.task import Task
from sartor.costs.macs import Macs
from sartor.costs.params import Params
from sartor.solvers import solve
from sartor.solvers.base import Problem

TASK = Task(3, 8, 1)
pytest.importorskip("torch_pruning")


def made(name):
    torch.manual_seed(0)
    return warm(FACTORIES[name]())


def images(count=4):
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(2))


def space_of(net, levels=4, rng=None):
    found = widths(net, images(2))
    rng = rng or np.random.default_rng(0)
    return Widths(net, TASK, found, [rng.random(w.channels) + 0.1 for w in found], branches(net), levels)


@torch.no_grad()
def masked(space, arch):
    """The whole network with everything that reads or makes a removed channel at zero."""
    net = copy.deepcopy(space.net)
    for last in space.plan(arch).gone:  # the batch-norm after a branch's last layer ends it
        norm = net.get_submodule(last.replace("c2", "b2"))
        norm.weight.zero_()
        norm.bias.zero_()
    for width, kept in zip(space.widths, space.kept(arch), strict=True):
        gone = np.setdiff1d(np.arange(width.channels), kept)
        for slot in width.slots:
            layer = net.get_submodule(slot.layer)
            if slot.side == "in":
                layer.weight[:, slot.index[gone].reshape(-1)] = 0.0
    return net


@pytest.mark.parametrize("name", FACTORIES)
def test_cut_equals_masked(name):
    net, x = made(name), images()
    space, rng = space_of(net), np.random.default_rng(1)
    narrower = 0
    for _ in range(4):
        arch = space.sample(rng)
        small = space.network(arch, TASK).eval()
        torch.testing.assert_close(small(x), masked(space, arch)(x), rtol=1e-4, atol=1e-5)
        narrower += sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in net.parameters())
    assert narrower
    torch.testing.assert_close(space.network(space.heaviest, TASK).eval()(x), net(x))


@pytest.mark.parametrize("gone", [("a.c2",), ("b.c2",), ("a.c2", "b.c2")])
def test_branches_go_whole(gone):
    """One of two, or both, one after the other."""
    net, x = made("residual"), images()
    space = space_of(net)
    assert set(space.inside) == {"a.c2", "b.c2"}
    picks = list(space.heaviest.picks)
    for last in gone:
        picks[space.inside[last][0]] = 0
    arch = Arch(tuple(picks))
    small = space.network(arch, TASK).eval()
    assert set(space.plan(arch).gone) == set(gone)
    left = {n.rpartition(".")[0] for n, _ in small.named_parameters()}
    assert not any(last in left or last.replace("c2", "b1") in left for last in gone)
    for cost in (Params(), Macs()):
        assert cost.table(space, TASK).form(arch) == cost.of(small, (1, 8, 8))
    torch.testing.assert_close(small(x), masked(space, arch)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize("cost", [Params(), Macs()], ids=["params", "macs"])
def test_prices_add_up_exactly(name, cost):
    space, rng = space_of(made(name)), np.random.default_rng(3)
    form = cost.table(space, TASK).form
    for arch in (space.heaviest, *(space.sample(rng) for _ in range(3))):
        assert form(arch) == cost.of(space.network(arch, TASK), (1, 8, 8))


def test_a_budget_is_met_exactly_and_relevance_is_kept():
    space = space_of(made("residual"), levels=6)
    form = Macs().table(space, TASK).form
    limit = 0.4 * form(space.heaviest)
    found = solve(Problem(space.score, (Limit("macs", form, limit), *space.rules)), "milp")
    small = space.network(found.arch, TASK)
    assert found.proven
    assert Macs().of(small, (1, 8, 8)) <= limit
    for value, kept in zip(space.values, space.kept(found.arch), strict=True):
        if len(kept):
            gone = np.setdiff1d(np.arange(len(value)), kept)
            assert value[kept].min() >= value[gone].max(initial=0.0)


def test_channels_worth_nothing_are_free_to_go():
    net = made("plain")
    found = widths(net, images(2))
    values = [np.where(np.arange(w.channels) < 3, 1.0, 0.0) for w in found]
    space = Widths(net, TASK, found, values, (), 4)
    assert [len(k) for k in space.kept(space.heaviest)] == [3] * len(found)


def test_pixels_that_nobody_reads():
    net, x = made("matrix"), images()
    space = space_of(net, levels=3)
    pixel = next(i for i, w in enumerate(space.widths) if w.pixels)
    arch = space.sample(np.random.default_rng(5))
    small = space.network(arch, TASK)
    assert small[1].in_features == len(space.kept(arch)[pixel])
    assert "1.inputs" in small.state_dict()
    assert space.describe(space.heaviest) == "64-20-12"
    torch.testing.assert_close(small.eval()(x), masked(space, arch)(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FACTORIES)
def test_a_plan_from_json_rebuilds_the_network(name):
    import json

    net, x = made(name), images()
    space = space_of(net)
    arch = space.sample(np.random.default_rng(7))
    small = space.network(arch, TASK).eval()
    plan = Plan.from_json(json.loads(json.dumps(space.plan(arch).to_json())))
    again = apply(FACTORIES[name](), plan)
    again.load_state_dict(small.state_dict())
    torch.testing.assert_close(again.eval()(x), small(x))
    with pytest.raises(BadInput, match="not a plan"):
        Plan.from_json({"removed": 3})


class Fixed(Residual):
    """Its forward pass names a number of channels: that width cannot change."""

    def forward(self, x):
        return self.fc(self.b(self.a(self.stem(x))).view(-1, 8 * 16))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 1, 3, padding=1), nn.Linear(64, 3)

    def forward(self, x):
        return self.fc(self.conv(self.conv(x)).flatten(1))


def test_what_cannot_change_is_left_alone_or_named():
    torch.manual_seed(0)
    names = {w.name for w in widths(warm(Fixed()), images(2))}
    assert names == {"stem", "a.c1", "b.c1"}
    with pytest.raises(BadInput, match="conv is called again"):
        widths(Twice(), images(2))
    with pytest.raises(BadInput, match="no channels that could go"):
        widths(nn.Sequential(nn.Conv2d(1, 3, 8), nn.Flatten()), images(2))
