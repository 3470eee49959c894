"""The first convolution as a whitening of patches: what it hands on, and that it stays."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from sartor.core.arch import Arch
from sartor.engine import checkpoint, whitening
from sartor.engine.network import train_network
from sartor.engine.recipe import Recipe
from sartor.methods.trials import PLUGIN as Trials
from sartor.methods.trials.bench import Bench, Work, trial_file


def network(width=6, kernel=3, before=()):
    torch.manual_seed(0)
    first = nn.Conv2d(1, width, kernel, padding=kernel // 2, bias=False)
    return nn.Sequential(*before, first, nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(width, 3))  # fmt: skip


def first(net):
    return next(m for m in net.modules() if isinstance(m, nn.Conv2d))


def patches(job, size=3):
    x = torch.cat([x for x, _ in job.feed.plain(job.splits.train, 16)])
    return nn.functional.unfold(x, size).transpose(1, 2).flatten(0, 1)


def test_the_strongest_directions_are_told_apart_and_alike_in_size(tmp_path, monkeypatch):
    """In the eigenbasis of the patches' covariance, by numpy; without a floor every output has variance one."""
    job, net = tiny.job(tmp_path), network(8)
    monkeypatch.setattr(whitening, "_FLOOR", 0.0)
    whitening.begin(net, job.feed, job.splits.train, fresh=True)
    w, seen = first(net).weight.detach().flatten(1), patches(job)
    answers = seen @ w.T
    np.testing.assert_allclose(answers[:, :4].T @ answers[:, :4] / len(answers), np.eye(4), atol=1e-3)
    torch.testing.assert_close(w[4:], -w[:4])  # one of each sign
    values, vectors = np.linalg.eigh((seen.T @ seen / len(seen)).double().numpy())
    for k in range(4):
        along = abs(w[k].double().numpy() @ vectors[:, -1 - k]) / np.linalg.norm(w[k])
        assert along == pytest.approx(1, abs=1e-4)
        assert np.linalg.norm(w[k]) == pytest.approx(values[-1 - k] ** -0.5, rel=1e-3)


def test_weak_directions_are_not_blown_up(tmp_path):
    job, net = tiny.job(tmp_path), network(18)
    whitening.begin(net, job.feed, job.splits.train, fresh=True)
    sizes = first(net).weight.detach().flatten(1).norm(dim=1)
    assert sizes.max() < 10.1 * sizes.min()  # the root of a hundred: the floor is a hundredth of the largest variance


def test_more_filters_than_two_per_direction_are_mixtures(tmp_path):
    job, net = tiny.job(tmp_path), network(40)
    whitening.begin(net, job.feed, job.splits.train, fresh=True)
    w = first(net).weight.detach().flatten(1)
    assert len(torch.unique(w.round(decimals=6), dim=0)) == 40 and torch.isfinite(w).all()
    again = network(40)
    whitening.begin(again, job.feed, job.splits.train, fresh=True)
    assert torch.equal(first(again).weight, first(net).weight)


def test_what_comes_before_the_convolution_counts(tmp_path):
    job, net, plain = tiny.job(tmp_path), network(before=[nn.AvgPool2d(2)]), network()
    for one in (net, plain):
        whitening.begin(one, job.feed, job.splits.train, fresh=True)
    assert not torch.allclose(first(net).weight, first(plain).weight, rtol=0.05)


def test_the_filters_stay_while_the_rest_learns_and_may_learn_afterwards(tmp_path):
    job, net = tiny.job(tmp_path), network()
    recipe = Recipe(epochs=1, batch=16, augment="light")
    with whitening.held(net, job.feed, job.splits.train, fresh=True):
        white, rest = first(net).weight.clone(), net[-1].weight.clone()
        train_network(net, None, recipe, job.feed, job.splits, job.run, "white")
    assert torch.equal(first(net).weight, white) and not torch.equal(net[-1].weight, rest)
    assert first(net).weight.requires_grad


def test_filters_that_a_search_has_set_are_held_and_others_learn(tmp_path):
    job, known, other = tiny.job(tmp_path), network(), network()
    whitening.begin(known, job.feed, job.splits.train, fresh=True)
    inherited = network()
    inherited.load_state_dict(known.state_dict())
    assert whitening.begin(inherited, job.feed, job.splits.train, fresh=False) is first(inherited)
    before = first(other).weight.clone()
    assert whitening.begin(other, job.feed, job.splits.train, fresh=False) is None
    assert torch.equal(first(other).weight, before) and first(other).weight.requires_grad


def test_a_network_without_such_a_layer_is_left_alone(tmp_path):
    job = tiny.job(tmp_path)
    assert whitening.begin(nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), job.feed, job.splits.train, True) is None


def test_trials_and_the_training_after_them_hold_the_same_filters(tmp_path):
    job = tiny.job(tmp_path, space="edge")
    bench, arch = Bench.of(job, replace(Trials(epochs=1).recipe(1), whiten=True)), Arch((0,) * len(job.space.choices))
    trial = bench.measure(Work(arch, 0, "drawn", "", None, 1.0, None, False))
    net = job.space.network(arch, job.task)
    net.load_state_dict(checkpoint.load(trial_file(job.run.path, trial.picks, 0))["net"])
    assert whitening.begin(net, job.feed, job.splits.train, fresh=False) is first(net)
