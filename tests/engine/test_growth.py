"""Images that grow while a network is trained: which sides, what they cost, and that the time is kept all the same."""

import time
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from sartor.core.arch import Arch
from sartor.core.task import Task
from sartor.data.open import open_data
from sartor.engine.fit import Training, fit, nothing
from sartor.engine.growth import Growth, Stage
from sartor.engine.length import Length
from sartor.engine.plan import planned
from sartor.engine.recipe import Recipe
from sartor.spaces.edge import Edge

PHOTOS = Task(classes=3, image=64, channels=3)
GROWTH = Growth((Stage(0.3, 32, 0.3), Stage(0.6, 48, 0.6), Stage(1.0, 64, 1.0)))


class Alone:
    """An engine of one process."""

    def agree(self, value):
        return value


def _net():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


def test_the_last_stage_shows_images_as_they_are():
    growth = Growth.of(0.5, PHOTOS, _net())
    assert [s.side for s in growth.stages] == [32, 48, 64]
    assert [growth.at(p).side for p in (0, 0.29, 0.3, 0.59, 0.6, 0.99, 1)] == [32, 32, 48, 48, 64, 64, 64]
    x = torch.rand(2, 3, 64, 64)
    assert growth.shown(x, 0.7) is x
    flat = torch.full_like(x, 0.25)
    assert growth.shown(flat, 0.0).shape[-2:] == (32, 32) and torch.allclose(
        growth.shown(flat, 0.0), flat[..., :32, :32]
    )


@pytest.mark.parametrize(("small", "image"), [(1.0, 64), (0.5, 32), (0.5, 8), (0.98, 64)])
def test_small_images_and_whole_ones_do_not_grow(small, image):
    growth = Growth.of(small, replace(PHOTOS, image=image), _net())
    assert growth.stages == (Stage(1.0, image),)


def test_a_network_that_takes_one_side_only_is_trained_at_it():
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 3))
    assert net.training and Growth.of(0.5, PHOTOS, net).stages == (Stage(1.0, 64),) and net.training


def test_costs_of_what_is_left():
    assert GROWTH.left(0.0) == pytest.approx(0.3 * 0.3 + 0.3 * 0.6 + 0.4)
    assert GROWTH.left(0.45) == pytest.approx((0.15 * 0.6 + 0.4) / 0.55)
    assert GROWTH.left(0.8) == GROWTH.left(1.0) == 1.0
    assert [s.cost for s in GROWTH.timed({32: 1.0, 48: 2.0, 64: 4.0}).stages] == [0.25, 0.5, 1.0]


@pytest.mark.parametrize("slower", [1.0, 2.0])
def test_later_epochs_take_longer_and_the_time_is_kept(monkeypatch, slower):
    """As planned its epochs stay; where every step is twice as slow, half of them are trained, the schedule whole."""
    now, at = 0.0, 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    end = 100 / GROWTH.left(0.0)  # an epoch of the last stage takes a second
    length = Length(end, until=100.0 / 0.97, filled=True, growth=GROWTH)
    while at < length.end:
        length.keep(Alone(), at)
        at, now = at + 0.1, now + slower * 0.1 * GROWTH.at(length.progress(at)).cost
    assert 96 < now < 105 and length.end == pytest.approx(end / slower, rel=0.06)
    assert length.progress(length.end) == pytest.approx(1.0)


def _training(tmp_path, **recipe):
    """A network of 64-pixel images that notes the sides it is shown."""
    job, sides = tiny.job(tmp_path), []
    x, y = tiny.arrays(48)
    images = open_data((x.repeat(8, axis=1).repeat(8, axis=2), y))
    feed = replace(job.feed, images=images)
    torch.manual_seed(0)
    space = Edge().fitted(images.task)
    net = space.network(space.heaviest, images.task)

    def loss(x, y, drawn):
        sides.append(x.shape[-1])
        return {"loss": nn.functional.cross_entropy(net(x), y)}

    told = Recipe(epochs=5, batch=16, augment="light", **recipe)
    return Training("grows", net, loss, told, feed, np.arange(48), job.run, draw=nothing), sides


def test_a_recipes_images_grow_and_a_killed_training_ends_with_the_same_weights(tmp_path):
    t, sides = _training(tmp_path / "whole", small=0.5)
    fit(t)
    assert sides == [32] * 5 + [48] * 4 + [64] * 6  # 15 steps

    class Killed(Exception):
        pass

    def kill(t, optimiser, epoch, step, steps):
        if epoch == 2:
            raise Killed

    again, _ = _training(tmp_path / "killed", small=0.5)
    with pytest.raises(Killed):
        fit(replace(again, after=kill))
    rest, seen = _training(tmp_path / "killed", small=0.5)
    fit(rest)
    assert seen == sides[6:]
    assert all(
        torch.equal(a, b) for a, b in zip(t.net.state_dict().values(), rest.net.state_dict().values(), strict=True)
    )


@pytest.mark.parametrize(("gain", "stages"), [(0.5, 3), (0.05, 1)])
def test_seconds_are_planned_with_the_times_of_all_stages_where_growing_pays(tmp_path, monkeypatch, gain, stages):
    t, _ = _training(tmp_path, small=0.5)

    def timed(t, patience, hopeless=0.0):
        side = 64 if t.growth is None else t.growth.stages[0].side
        return 0.5 * (1 - gain * (64 - side) / 32)

    monkeypatch.setattr("sartor.engine.plan.seconds_per_step", timed)
    found = planned(t, 100.0)
    mean = 0.3 * 0.5 + 0.3 * 0.75 + 0.4 if stages == 3 else 1.0
    assert len(found.growth.stages) == stages
    assert found.length.end == pytest.approx(0.97 * 100 / (0.5 * mean * 3), rel=0.01)
    monkeypatch.setattr("sartor.engine.plan.seconds_per_step", lambda *told: pytest.fail("timed again"))
    assert planned(t, 1.0).growth == found.growth


def test_networks_that_shrink_their_images_shrink_smaller_ones_by_as_much():
    space = Edge().fitted(replace(PHOTOS, image=64))
    frame = next(k for k, f in enumerate(space.layout) if f.side == 48)
    net = space.network(Arch((frame, *space.heaviest.picks[1:])), PHOTOS)
    seen = []
    stem = next(m for m in net.modules() if isinstance(m, nn.Conv2d))
    stem.register_forward_pre_hook(lambda m, given: seen.append(given[0].shape[-1]))
    for side in (64, 32):
        net(torch.zeros(2, 3, side, side))
    assert seen == [48, 24]
