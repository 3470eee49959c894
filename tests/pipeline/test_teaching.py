"""A wide network that teaches the one that comes out: trained once, heeded only where it knows more."""

import json
from dataclasses import replace

import pytest
import tiny
import torch

from sartor.core.errors import BadInput
from sartor.engine.device import Engine
from sartor.engine.network import train_network
from sartor.engine.recipe import Recipe
from sartor.pipeline import teaching, training
from sartor.pipeline.context import open_context
from sartor.pipeline.final import Final, preset
from sartor.pipeline.options import from_mapping
from sartor.pipeline.order import fit
from sartor.runs.progress import Reporter


def asked(folder, **train):
    """A fit in a time, with these options of its training."""
    given = {"data": str(tiny.npz(folder)), "budgets": {"params": "20K"}, "method": "random", "space": "edge"}
    return from_mapping({**given, "time": "20s", "train": train})


def context(folder, **train):
    return open_context(asked(folder, **train), folder / "run", Reporter(silent=True), Engine())


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A context, the teacher that it made in two seconds, and a small network."""
    c = context(tmp_path_factory.mktemp("taught"), batch=32)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    return c, net, teaching.wide_teacher(c, net, 2.0, None)


def test_a_wide_network_is_trained_once_and_imitated_where_it_knows_more(taught, monkeypatch):
    c, net, teacher = taught
    assert teacher.told.startswith("resnet14-w64-s1, ")
    assert not teacher.net.training and not any(p.requires_grad for p in teacher.net.parameters())
    monkeypatch.setattr(teaching, "train_network", None)  # from here on none is trained
    again = teaching.wide_teacher(c, net, 2.0, 0.0)
    assert again.told == teacher.told
    for mine, theirs in zip(teacher.net.state_dict().values(), again.net.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)
    assert teaching.wide_teacher(c, net, 2.0, 100.0) is None  # no more than the network knows already
    assert teaching.wide_teacher(c, teacher.net, 2.0, None) is None  # no wider than that


def test_a_student_learns_from_a_teacher_alone(taught):
    """Labels count for nothing here: what is right comes from the teacher."""
    c, _, teacher = taught
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 3))
    recipe = Recipe(epochs=6, batch=8, lr=0.1, augment="none", weight_decay=0.0)
    alone = replace(teacher, labels=0.0)
    history = train_network(net, alone, recipe, c.feed, c.splits, c.run, "student")
    assert history[-1]["imitation"] < 0.8 * history[0]["imitation"]
    assert history[-1]["loss"] == pytest.approx(teacher.weight * history[-1]["imitation"], rel=1e-5)


def test_where_time_is_the_budget_a_gpu_teaches_and_the_run_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "_left", lambda cut: 2.0)
    told = {name: preset("standard", name, {}, 8000).get("teaching", 0.0) for name in ("cpu", "cuda")}
    assert told["cpu"] == 0 and 0 < told["cuda"] < 0.5
    assert "teaching" not in preset("thorough", "cuda", {}, 8000)  # the papers have no such network
    run = fit(asked(tmp_path, teaching=0.3, batch=32), tmp_path / "run", Reporter(silent=True))
    assert json.loads((run / "training.json").read_text())["teacher"].startswith("resnet14-w64-s1, ")
    assert "imitated a wider network" in (run / "report.html").read_text()
    with pytest.raises(BadInput, match=r"train\.teaching"):
        Final(epochs=1, teaching=1.0)


def test_another_budget_on_the_same_search_follows_its_own_length(tmp_path):
    """What a run wrote down of its recipe is not what somebody set by hand."""
    c = context(tmp_path, augment="none")
    assert c.train.fixed == ("augment",)
    assert from_mapping(c.config()).train_options["fixed"] == ["augment"]
    again = open_context(from_mapping(c.config()), tmp_path / "run", Reporter(silent=True), Engine())
    assert again.train == c.train
