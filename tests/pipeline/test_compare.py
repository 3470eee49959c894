"""A comparison end to end: rivals inside the budgets, resumed, told in the report."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import tiny
from torch import nn

import sartor
from sartor.core.errors import BadInput, MissingDependency, RunError
from sartor.core.task import Task
from sartor.pipeline import compare as order
from sartor.pipeline import rivals, training
from sartor.pipeline.compare import compare
from sartor.pipeline.final import suited
from sartor.pipeline.rivals import Listed
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.runs.schema import CompareFile
from sartor.spaces.plain.space import Plain
from sartor.spaces.whole import Entry

FEW = ("mobilenetv2-x0.25", "resnet8-w8-s1", "resnet14-w12-s1", "resnet32-w16-s1")


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Four plain networks of two kinds: seventy take a while to be priced."""

    class Few:
        entries = tuple(e for e in Plain().entries if e.name in FEW)

    monkeypatch.setattr(rivals, "Plain", Few)
    monkeypatch.setattr(rivals, "_FAMILIES", {"ResNet": ("resnet", "-s1"), "MobileNetV2": ("mobilenetv2", "")})


@pytest.fixture
def two(monkeypatch):
    """Two rivals only."""
    monkeypatch.setattr(rivals, "_FAMILIES", {"ResNet": ("resnet", "-s1")})
    monkeypatch.setattr(rivals, "_RANDOM", 0)


def start(run, time="1s", **more):
    return compare(run, time, reporter=Reporter(silent=True), **more)


def test_everything_is_trained_inside_the_budgets_and_told(finished, tmp_path):
    run = finished.copy(tmp_path / "mine")
    found = Run(start(run)).load(CompareFile)
    trained = {e.name: e for e in found.rivals if e.missing is None}
    assert set(trained) == {
        "ResNet",
        "ResNet by a plain loop",
        *(f"{n} of the space" for n in ("smallest", "heaviest", "random 1", "random 2")),
    }
    assert trained["ResNet"].network == "resnet14-w12-s1"  # the largest of at most 150 K parameters
    for e in (*trained.values(), found.own):
        assert e.costs["params"] <= 150_000
        assert e.costs["latency"] <= 50
        assert 0 <= e.accuracy <= 100
        assert e.seconds > 0
    assert found.budgets == {"latency": 50, "params": 150_000}
    assert found.seconds == pytest.approx(1 / 6)
    assert trained["smallest of the space"].costs["macs"] < trained["random 1 of the space"].costs["macs"]
    heaviest = trained["heaviest of the space"].costs
    assert heaviest["macs"] >= max(trained[f"random {k} of the space"].costs["macs"] for k in (1, 2))
    assert heaviest["params"] > 0.85 * 150_000
    assert trained["random 1 of the space"].costs != trained["random 2 of the space"].costs
    (gone,) = {e.missing for e in found.rivals if e.name == "MobileNetV2"}
    assert "params <= 150 K cannot be met" in gone
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Was it worth it?" in page
    assert all(text in page for text in ("resnet14-w12-s1", "smallest of the space", "points", "150 K cannot be met"))


def test_what_was_trained_before_an_interruption_is_kept(finished, tmp_path, monkeypatch, two):
    run, seen = finished.copy(tmp_path / "mine"), []
    real = order.until_it_fits

    def interrupted(rival):
        if seen:
            raise KeyboardInterrupt
        seen.append(rival.group.name)
        real(rival)

    monkeypatch.setattr(order, "until_it_fits", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start(run)
    assert not (run / CompareFile.NAME).exists()
    files = {p: p.stat().st_mtime_ns for p in run.glob("compare/*/*/training.json")}
    assert len(files) == 1
    prices = (run / "compare/macs.json").stat().st_mtime_ns
    monkeypatch.setattr(order, "until_it_fits", real)
    start(run)
    assert (run / CompareFile.NAME).exists()
    assert all(p.stat().st_mtime_ns == t for p, t in files.items())
    assert (run / "compare/macs.json").stat().st_mtime_ns == prices


def test_one_is_trained_by_a_plain_loop(finished, tmp_path, monkeypatch, two):
    """What stands in forty lines of PyTorch; all others have the run's recipe."""
    run, recipes = finished.copy(tmp_path / "mine"), {}
    real = training.train_network

    def spied(net, teacher, recipe, feed, splits, run, *more):
        recipes[run.path.name] = recipe
        return real(net, teacher, recipe, feed, splits, run, *more)

    monkeypatch.setattr(training, "train_network", spied)
    start(run)
    plain, usual = recipes["resnet-by-a-plain-loop"], recipes["resnet"]
    assert usual.muon > 0 and usual.whiten and usual.mixed
    assert not (plain.muon or plain.whiten or plain.mixed or plain.mix) and plain.augment == "light"
    assert (plain.lr, plain.batch, plain.weight_decay) == (usual.lr, usual.batch, usual.weight_decay)
    assert suited(plain, 500, 1000).augment == "light"  # however long it is


def test_a_run_without_a_budget_is_compared_at_its_own_costs(tmp_path, two):
    data = tiny.npz(tmp_path)
    result = sartor.fit(data, out=tmp_path / "free", method="random", quiet=True, train=tiny.QUICK["train"])
    own = json.loads((result.path / "verify.json").read_text())["costs"]
    found = sartor.compare(result.path, time=0.5, quiet=True)
    assert found.budgets == {n: e["measured"] for n, e in own.items()}
    assert all(e.costs["macs"] <= own["macs"]["measured"] for e in found.rivals if e.missing is None)
    assert any(e.missing is None for e in found.rivals)


def test_what_cannot_be_compared_is_said(finished, tmp_path):
    run = finished.copy(tmp_path / "mine")
    with pytest.raises(BadInput, match="the time"):
        start(run, "5 parsecs")
    with pytest.raises(MissingDependency, match="timm is needed here"):
        start(run, timm=["resnet18"])
    stages = json.loads((run / "stages.json").read_text())
    del stages["certificate"]
    (run / "stages.json").write_text(json.dumps(stages))
    with pytest.raises(RunError, match="must be a finished run"):
        start(run)
    shutil.rmtree(run)
    with pytest.raises(RunError, match="no such folder"):
        start(run)


def test_a_list_of_networks_prices_each_whole():
    task = Task(3, 8, 1)
    made = Listed((Entry("a", partial(_net, 4)), Entry("b", partial(_net, 6))))
    parts = list(made.parts(task))
    assert [p.when for p in parts] == [((0, 0),), ((0, 1),)]
    assert [sum(q.numel() for q in p.build().parameters()) for p in parts] == [4 * 9 + 4, 6 * 9 + 6]
    assert np.prod(made.sizes) == 2
    assert "0x" not in repr(made)  # where a function lies in memory is no part of a price's name


def _net(width, task):
    return nn.Conv2d(task.channels, width, 3)
