"""Weights from elsewhere: what matches is taken, sliced where widths differ; the head stays new."""

import re
from types import SimpleNamespace

import pytest
import tiny
import torch
from safetensors.torch import save_file
from torch import nn

from sartor.core.arch import Choice
from sartor.core.errors import BadInput
from sartor.engine.network import train_network
from sartor.engine.origin import Origin
from sartor.engine.recipe import ELSEWHERE
from sartor.pipeline import order, training
from sartor.pipeline.final import Final, from_elsewhere
from sartor.runs.codec import encode
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.runs.schema import ModelFile
from sartor.spaces.base import Space


def net(width=8, kernel=3, classes=3):
    return nn.Sequential(
        nn.Conv2d(3, width, kernel),
        nn.BatchNorm2d(width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )


def saved(path, given):
    save_file({n: t.contiguous() for n, t in given.state_dict().items()}, path)
    return Origin(str(path))


def test_all_but_the_head_is_taken(tmp_path):
    source, target = net(classes=5), net(classes=5)
    source[1].running_mean += 3.0
    head = target[4].weight.clone()
    taken = saved(tmp_path / "a.safetensors", source).into(target, 5)
    for name in ("0.weight", "0.bias", "1.weight", "1.running_mean"):
        assert torch.equal(target.state_dict()[name], source.state_dict()[name])
    assert torch.equal(target[4].weight, head)
    own = sum(p.numel() for p in target.parameters())
    assert (taken.weights, taken.of, taken.sliced) == (own - 5 * 9, own, 0)
    assert str(taken) == f"{100 * taken.weights / own:.0f} % of {own} weights from a.safetensors"


@pytest.mark.parametrize("width", [4, 12])
def test_of_other_widths_the_first_channels_are_taken(tmp_path, width):
    source, target, both = net(8), net(width), min(8, width)
    before = target[0].weight.clone()
    taken = saved(tmp_path / "a.safetensors", source).into(target, 3)
    assert torch.equal(target[0].weight[:both], source[0].weight[:both])
    assert torch.equal(target[0].weight[both:], before[both:])
    assert taken.sliced == (0 if width == 4 else 6)


@pytest.mark.parametrize(("mine", "theirs"), [(5, 3), (3, 5)])
def test_of_other_kernels_the_middle_is_taken(tmp_path, mine, theirs):
    source, target = net(kernel=theirs), net(kernel=mine)
    saved(tmp_path / "a.safetensors", source).into(target, 3)
    middle = slice(1, 4) if mine == 5 else slice(None), slice(1, 4) if theirs == 5 else slice(None)
    assert torch.equal(target[0].weight[..., middle[0], middle[0]], source[0].weight[..., middle[1], middle[1]])


def test_of_a_run_the_network_that_has_most_is_taken_from(finished):
    origin = Origin(str(finished.run))
    assert {"model/weights.safetensors", "search/supernet.safetensors", "search/teacher.safetensors"} <= set(
        origin.networks
    )
    held = {n: t for n, t in origin.networks["search/teacher.safetensors"].items() if t.is_floating_point()}

    class Like(nn.Module):
        def state_dict(self):
            return {n: torch.zeros_like(t) for n, t in held.items()}

    assert origin.into(Like(), 3).source == "search/teacher.safetensors"


def test_its_own_network_is_found_in_a_space_that_has_it(finished):
    (told,) = Origin(str(finished.run)).told
    assert told == Run(finished.run).load(ModelFile).architecture
    choices = [Choice(name, ("other", option)) for name, option in told.items()]
    (arch,) = Space.alike(SimpleNamespace(choices=choices), told)
    assert arch.picks == (1,) * len(choices)
    assert not Space.alike(SimpleNamespace(choices=choices[1:]), told)
    assert not Space.alike(SimpleNamespace(choices=[Choice(c.name, ("other", "another")) for c in choices]), told)


@pytest.mark.parametrize("given", ["nowhere", "empty"])
def test_what_is_no_origin_is_refused(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="safetensors"):
        Origin(given)


def test_a_fit_starts_from_a_run_and_compares_with_a_fresh_start(finished, tmp_path, monkeypatch):
    seen, held = {}, {}

    def spied(net, teacher, recipe, feed, splits, run, name, *rest):
        held[name.partition("-")[0]] = not next(net.parameters()).requires_grad
        seen[name.partition("-")[0]] = {option: getattr(recipe, option) for option in ELSEWHERE}
        return train_network(net, teacher, recipe, feed, splits, run, name, *rest)

    monkeypatch.setattr(training, "train_network", spied)
    chosen = tiny.given(
        finished.data,
        {"params": "150K"},
        start=str(finished.run),
        method="random",
        train={"epochs": 1, "whiten": True},
        costs={},
    )
    assert encode(chosen.start) == str(finished.run)
    path = order.fit(chosen, tmp_path / "run", Reporter(silent=True))
    log = (path / "log.txt").read_text()
    assert "the network starts with" in log
    start, fresh = map(float, re.findall(r"([\d.]+) % (?:of the validation images|with fresh ones)", log))
    assert seen["start"] == ELSEWHERE
    assert seen["fresh"] == {"first_rate": 1.0, "head_first": 0.0}
    assert seen["network"] == seen["start" if start >= fresh else "fresh"]
    assert held == {"start": False, "fresh": True, "network": start < fresh}  # what was learnt is not whitened away
    assert f'start = "{finished.run}"' in (path / "config.toml").read_text()


def test_what_was_given_by_hand_stays_wherever_weights_come_from():
    assert from_elsewhere(Final(epochs=1)).first_rate == ELSEWHERE["first_rate"]
    assert from_elsewhere(Final(epochs=1, fixed=("first_rate",))).first_rate == 1.0
