"""Orthogonal steps: what they do to a matrix, which weights take them, and that the rest is SGD's."""

import copy

import pytest
import torch
from torch import nn

from sartor.core.errors import BadInput
from sartor.engine.muon import _factor, _turned, inner, orthogonal
from sartor.engine.recipe import Recipe


def _net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 16, 1), nn.Conv2d(16, 4, 3),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(5, 20), (20, 5), (7, 7), (24, 216), (12, 9)])
def test_singular_values_come_near_one_and_their_vectors_stay(shape):
    torch.manual_seed(1)
    given = torch.randn(3, *shape)
    u, before, v = torch.linalg.svd(given, full_matrices=False)
    before = before / before.norm(dim=1, keepdim=True)
    found = orthogonal(given)
    values = (u.mT @ found @ v.mT).diagonal(dim1=1, dim2=2)
    assert values[before > 0.05].min() > 0.6 and values.max() < 1.25
    assert (values[before <= 0.05] > 10 * before[before <= 0.05]).all()  # directions that are hardly there grow too
    inside = u.mT @ found @ v.mT  # diagonal, if the vectors are the same
    assert torch.allclose(inside - torch.diag_embed(inside.diagonal(dim1=1, dim2=2)), torch.zeros(1), atol=1e-4)


def test_dense_convolutions_but_the_first_take_such_steps():
    net = _net()
    assert [p.shape for p in inner(net)] == [net[3].weight.shape, net[4].weight.shape]


def _step(net, recipe, times=1):
    torch.manual_seed(2)
    optimiser = recipe.optimiser(net)
    for _ in range(times):
        net(torch.randn(4, 3, 12, 12)).square().sum().backward()
        recipe.set_rates(optimiser, 0.1)
        optimiser.step()
        optimiser.zero_grad()
    return optimiser


def test_the_rest_moves_as_with_sgd_and_decay_is_as_strong():
    plain, turned, start = _net(), _net(), _net()
    told = {"epochs": 1, "lr": 0.1, "warmup": 0.1, "weight_decay": 5e-4}
    _step(plain, Recipe(**told))
    _step(turned, Recipe(**told, muon=0.05))
    mine = {id(p) for p in inner(turned)}
    for a, b, c in zip(plain.parameters(), turned.parameters(), start.parameters(), strict=True):
        assert torch.equal(a, b) is (id(b) not in mine)
        if id(b) in mine:  # 0.1 * 5e-4 / (1 - 0.9), and a step whose singular values are about the rate
            values = torch.linalg.svdvals((b - c * (1 - 5e-4)).detach().flatten(1))
            rate = 0.05 * max(1.0, b.shape[0] / b[0].numel()) ** 0.5
            assert values.max() < 1.25 * rate


def test_its_state_goes_into_a_checkpoint_and_back():
    whole, first = _net(), _net()
    recipe = Recipe(epochs=1, muon=0.05)
    _step(whole, recipe)
    before = _step(first, recipe)
    other = copy.deepcopy(first)
    after = recipe.optimiser(other)
    after.load_state_dict(copy.deepcopy(before.state_dict()))  # else they share their momentum
    for net, optimiser in ((first, before), (other, after)):
        torch.manual_seed(3)
        net(torch.randn(4, 3, 12, 12)).square().sum().backward()
        optimiser.step()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), whole.parameters(), strict=True))


def test_a_negative_rate_is_refused():
    with pytest.raises(BadInput, match="muon"):
        Recipe(epochs=1, muon=-1)


def test_the_iteration_on_squares_gives_the_same_matrices():
    torch.manual_seed(4)
    x = torch.randn(2, 16, 144)
    x = x / x.norm(dim=(1, 2), keepdim=True)
    torch.testing.assert_close(_factor(x @ x.mT) @ x, _turned(x), atol=2e-4, rtol=0)


@pytest.mark.parametrize("shape", [(96, 200), (200, 96), (100, 100), (64, 200)])
def test_large_matrices_in_half_precision_come_out_alike(shape):
    torch.manual_seed(5)
    x = torch.randn(2, *shape)
    whole, half = orthogonal(x), orthogonal(x, half=True)
    assert half.dtype == torch.float32
    far = ((half - whole).norm() / whole.norm()).item()
    assert (0 < far < 0.03) if min(shape) >= 96 else far == 0
