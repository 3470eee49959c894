import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.engine.recipe import MovingAverage, Recipe
from sartor.spaces.mobile.space import Mobile


def test_the_rate_warms_up_linearly_and_decays_as_a_cosine():
    r = Recipe(epochs=10, lr=0.2, warmup=0.1)
    assert r.rate(0.0) == pytest.approx(0.002)
    assert r.rate(0.05) == pytest.approx(0.2 * (0.01 + 0.99 / 2))
    assert r.rate(0.1) == pytest.approx(0.2)
    assert r.rate(0.55) == pytest.approx(0.1)
    assert r.rate(1.0) == pytest.approx(0.0, abs=1e-12)
    rates = [r.rate(k / 100) for k in range(101)]
    assert rates.index(max(rates)) == 10
    assert all(a < b for a, b in pairwise(rates[:11]))
    assert all(a > b for a, b in pairwise(rates[10:]))


@pytest.mark.parametrize("warmup", [0.0, 1.0])
def test_the_rate_is_finite_without_warm_up_and_with_nothing_else(warmup):
    r = Recipe(epochs=1, lr=0.2, warmup=warmup)
    assert all(0 <= r.rate(k / 20) <= 0.2 + 1e-12 and math.isfinite(r.rate(k / 20)) for k in range(21))


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": -1},
        {"batch": 0},
        {"lr": 0.0},
        {"lr": -1.0},
        {"ema": 1.0},
        {"ema": -0.1},
        {"warmup": 1.5},
        {"first_rate": 0.0},
        {"first_rate": 1.1},
        {"head_first": 1.0},
    ],
)
def test_impossible_recipes_are_refused(wrong):
    with pytest.raises(BadInput):
        Recipe(**{"epochs": 1, **wrong})


def test_weight_decay_is_for_convolutions_and_linear_layers_only():
    net = Mobile().supernet(Task(3, 8, 1))
    optimiser = Recipe(epochs=1, weight_decay=0.5).optimiser(net)
    decayed = {id(p) for g in optimiser.param_groups if g["weight_decay"] for p in g["params"]}
    everything = [p for g in optimiser.param_groups for p in g["params"]]
    assert {id(p) for p in everything} == {id(p) for p in net.parameters()}
    assert len(everything) == len(list(net.parameters()))
    wanted = {id(m.weight) for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    assert decayed == wanted


def test_frozen_parameters_are_not_optimised():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[0].requires_grad_(False)
    groups = Recipe(epochs=1).optimiser(net).param_groups
    assert {id(p) for g in groups for p in g["params"]} == {id(p) for p in net[1].parameters()}


def three():
    return nn.Sequential(*(nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)) for _ in range(3)), nn.Linear(2, 5))


def rates(recipe, net, progress):
    optimiser = recipe.optimiser(net)
    recipe.set_rates(optimiser, progress)
    found = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    return [found[id(p)] for p in net.parameters()]


def test_the_first_layers_learn_least_where_the_recipe_says_so():
    net = three()
    found = rates(Recipe(epochs=1, lr=0.5, first_rate=0.1, warmup=0.0), net, 0.0)
    assert len(found) == len(list(net.parameters()))
    assert found[0] == pytest.approx(0.05)
    assert found[-2:] == [0.5, 0.5]
    assert found[:-2] == sorted(found[:-2])
    assert found[-3] < 0.5
    steps = [b / a for a, b in pairwise(sorted(set(found)))]
    assert steps == pytest.approx([10**0.25] * 4)
    assert set(rates(Recipe(epochs=1, lr=0.5, warmup=0.0), net, 0.0)) == {0.5}


def test_the_head_learns_alone_first_then_the_schedule_begins():
    net, recipe, plain = three(), Recipe(epochs=1, lr=0.5, head_first=0.2), Recipe(epochs=1, lr=0.5)
    assert rates(recipe, net, 0.19) == [0.0] * 12 + [0.5, 0.5]
    for progress in (0.2, 0.25, 0.6, 1.0):
        assert rates(recipe, net, progress) == pytest.approx([plain.rate((progress - 0.2) / 0.8)] * 14)


def test_the_moving_average_follows_its_formula():
    net = nn.BatchNorm1d(1)
    average = MovingAverage(net, 0.9)
    expected = [0.0, 1.0]  # running mean and variance of a fresh batch-norm
    for step in range(1, 200):
        with torch.no_grad():
            net.running_mean.fill_(step)
            net.running_var.fill_(step**0.5)
        average.update()
        decay = min(0.9, (1 + step) / (10 + step))
        expected = [decay * e + (1 - decay) * v for e, v in zip(expected, (step, step**0.5), strict=True)]
    average.put()
    assert net.running_mean.item() == pytest.approx(expected[0], rel=1e-4)
    assert net.running_var.item() == pytest.approx(expected[1], rel=1e-4)


def test_the_moving_average_is_saved_and_read_whole():
    torch.manual_seed(0)
    net = nn.Linear(3, 3)
    one = MovingAverage(net, 0.9)
    for _ in range(3):
        with torch.no_grad():
            net.weight.add_(1.0)
        one.update()
    two = MovingAverage(net, 0.9)
    two.load_state_dict(one.state_dict())
    for average in (one, two):
        average.update()
    assert two.steps == one.steps == 4
    assert all(torch.equal(a, b) for a, b in zip(one.shadow, two.shadow, strict=True))


def test_cycles_of_the_power_cosine_with_falling_amplitude():
    r = Recipe(epochs=1500, lr=0.025, warmup=0.0, cycles=5, power=10.0)
    for cycle in range(5):
        top = 0.025 * 0.5**cycle
        assert r.rate(cycle / 5) == pytest.approx(top)
        assert r.rate(cycle / 5 + 0.1) == pytest.approx(top * (10**1.5 - 10) / 90)
        assert r.rate(cycle / 5 + 0.2 - 1e-9) == pytest.approx(0.0, abs=1e-9)
    assert r.rate(1.0) == pytest.approx(0.0, abs=1e-12)
    near, plain = Recipe(epochs=1, warmup=0.0, power=1.0 + 1e-7), Recipe(epochs=1, warmup=0.0)
    assert near.rate(0.3) == pytest.approx(plain.rate(0.3), rel=1e-5)
    for wrong in ({"cycles": 0}, {"cycle_decay": 0.0}, {"power": 0.5}, {"drop_path": 1.0}, {"auxiliary": -1.0}):
        with pytest.raises(BadInput):
            Recipe(epochs=1, **wrong)


def test_the_decay_ends_where_it_is_told_to():
    recipe = Recipe(epochs=10, lr=0.025, last_lr=0.001, warmup=0.0)
    assert recipe.rate(0.0) == pytest.approx(0.025)
    assert recipe.rate(0.5) == pytest.approx(0.013)
    assert recipe.rate(1.0) == pytest.approx(0.001)
    with pytest.raises(BadInput, match="last_lr"):
        Recipe(epochs=10, lr=0.025, last_lr=0.1)
