"""Branches while a network is trained: nothing at first, the same network afterwards."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from sartor.core.arch import from_names
from sartor.core.task import Task
from sartor.engine import branches
from sartor.engine.branches import Branches
from sartor.engine.network import Masks, train_network
from sartor.engine.recipe import Recipe
from sartor.spaces.edge.space import Edge
from sartor.spaces.ops import ConvBnAct

FAMILIES = ("res", "group", "mb5_e3_se", "fused_e3")


def network(family="res", seed=0):
    """A small one with statistics as if it had been trained."""
    torch.manual_seed(seed)
    space, task = Edge(frames=("r16_s1_x3",)), Task(3, 16, 1)
    names = {"frame": "r16_s1_x3", "stem": "8", "head": "0"}
    for k, width in enumerate((8, 16, 32)):
        late = {"mb5_e3_se": "mb5_e6_se", "fused_e3": "res"}.get(family, family) if k == 2 else family
        names |= {f"stage{k + 1}": f"{late}_w{width}", f"stage{k + 1}.depth": "2"}
    net = space.network(from_names(space.choices, names), task)
    shaken(net)
    return net.eval()


@torch.no_grad()
def shaken(net):
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            for tensor, low, high in ((m.weight, 0.5, 1.5), (m.bias, -0.3, 0.3), (m.running_mean, -0.3, 0.3)):
                tensor.uniform_(low, high)
            m.running_var.uniform_(0.5, 1.5)


@pytest.mark.parametrize("family", FAMILIES)
def test_they_begin_as_nothing_and_end_as_one_convolution(family):
    net, x = network(family), torch.randn(8, 1, 16, 16)
    names = list(net.state_dict())
    with torch.no_grad():
        before = net[:-1](x)  # maps: what comes out of the head differs little from image to image
        branches.attach(net)
        torch.testing.assert_close(net.eval()[:-1](x), before, rtol=1e-4, atol=1e-4)
        added = [m for m in net.modules() if isinstance(m, Branches)]
        large = [m for m in net.modules() if isinstance(m, ConvBnAct)][1:]
        assert added and len(added) == sum(isinstance(layer[0], Branches) for layer in large)
        assert {len(b.norms) for b in added} == {1, 2}  # with the input itself where the shape stays
        shaken(net)
        wanted = net.eval()[:-1](x)
        assert (wanted - before).std() > 0.1 * before.std() and wanted.std(0).mean() > 0.02 * wanted.std()
        branches.detach(net, [(x, None)])
        torch.testing.assert_close(net[:-1](x), wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))
    assert list(net.state_dict()) == names


def test_statistics_may_be_measured_again_afterwards():
    net, x = network(), torch.randn(64, 1, 16, 16)
    branches.attach(net)
    net.train()
    with torch.no_grad():
        for _ in range(200):  # statistics of these images
            net(x)
        branches.detach(net, [(x, None)])
        wanted = net(x)
        net.train()
        for _ in range(200):
            net(x)
        torch.testing.assert_close(net.eval()(x), wanted, rtol=0.02, atol=0.02 * float(wanted.abs().max()))


def test_a_training_leaves_a_plain_network_that_learnt_with_them(tmp_path, monkeypatch):
    job, seen = tiny.job(tmp_path), []
    attach = branches.attach
    monkeypatch.setattr(branches, "attach", lambda net: (attach(net), seen.append(net)))
    recipe = Recipe(epochs=2, batch=16, lr=0.05, augment="light", branches=True)

    def trained(name, recipe, masks=None):
        torch.manual_seed(0)
        net = job.space.network(job.space.smallest, job.task)
        names = list(net.state_dict())
        history = train_network(net, None, recipe, job.feed, job.splits, job.run, name, masks and masks(net))
        assert list(net.state_dict()) == names and not any(isinstance(m, Branches) for m in net.modules())
        return net, history

    net, history = trained("with", recipe)
    assert len(seen) == 1 and np.isfinite([row["loss"] for row in history]).all()
    plain, _ = trained("without", replace(recipe, branches=False))
    assert any(
        not torch.equal(a, b) for a, b in zip(net.state_dict().values(), plain.state_dict().values(), strict=True)
    )

    def masks(net):
        return Masks(net, {n: torch.zeros_like(p) for n, p in net.named_parameters() if p.ndim == 4})

    held, _ = trained("held", recipe, masks)  # what is held at zero stays there
    assert len(seen) == 1
    assert all(not p.any() for p in held.parameters() if p.ndim == 4)
