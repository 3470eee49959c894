"""Budgets that a network leaves unused go to further views of each image."""

from dataclasses import dataclass

import numpy as np
import pytest

import sartor
from sartor.core.registry import SPACES
from sartor.core.task import Task
from sartor.costs.base import Measured, Price, distinct, priced
from sartor.costs.macs import Macs
from sartor.deploy.export import OnnxModel
from sartor.methods.base import Found, Method
from sartor.runs.directory import Run
from sartor.runs.schema import EvaluationFile, Preprocessing, SolutionFile, TrainingFile
from sartor.solvers import cheapest

SIDE = 16
SPACE = {"name": "edge", "widths": (8,), "heads": (0,), "frames": ("r16_s1_x3", "r16_s2_x3")}


@dataclass(frozen=True, kw_only=True)
class Smallest(Method):
    """The fewer multiply-accumulates, the better: what a budget leaves is then plain to see."""

    def search(self, job):
        parts = list(job.space.parts(job.task))
        macs = Macs().table(job.space, job.task).prices
        return Found(priced(job.space, parts, {k: Price.exact(-macs[k].value) for k in distinct(parts)}), "made up")


def images(channels=3):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = rng.integers(0, 90, (60, SIDE, SIDE, channels))
    for n, k in enumerate(y):
        x[n, 4 * k : 4 * k + 5, :8] += 150
    return x.astype(np.uint8), y


def fitted(out, channels=3, views=6, **budgets):
    return sartor.fit(
        images(channels), out=out, method=Smallest(), space=SPACE, effort="thorough", device="cpu", quiet=True,
        train={"epochs": 1, "batch": 16, "views": views}, **budgets,
    )  # fmt: skip


@pytest.fixture(scope="module")
def least():
    """The multiply-accumulates of the smallest network."""
    task = Task(3, SIDE)
    space = SPACES.make("edge", {k: v for k, v in SPACE.items() if k != "name"}).fitted(task)
    form = Macs().table(space, task).form
    return form(cheapest(form, space.rules).arch)


@pytest.mark.parametrize(("room", "views"), [(6.5, 6), (5.5, 2), (1.5, 1)])
def test_as_many_views_as_fit(tmp_path, least, room, views):
    result = fitted(tmp_path / "run", macs=room * least)
    run, c = Run(tmp_path / "run"), result.certificate
    found, told = run.load(SolutionFile), run.load(TrainingFile)
    assert (found.views, c.get("views", 1), run.load(Preprocessing).views) == (views,) * 3
    assert c["budgets"]["macs"]["measured"] == c["budgets"]["macs"]["predicted"] <= room * least
    assert (found.times.get("macs", 1.0), found.times.get("params", 1.0)) == (views, 1.0)
    assert (told.one_view_accuracy is None) == (views == 1)
    assert run.load(EvaluationFile).value == told.test_accuracy == c["accuracy"]["test"]
    # The exported file looks as often as is certified, and the accuracy is its own.
    x, y = images()
    index = np.asarray(run.read("splits.json")["test"])
    logits = OnnxModel(run.path / "model/model.onnx").logits(x[index].transpose(0, 3, 1, 2))
    assert 100 * np.mean(logits.argmax(1) == y[index]) == pytest.approx(told.test_accuracy)
    lines = {line.state for line in sartor.verify(tmp_path / "run").lines}
    assert "differs" not in lines


def test_grey_images_other_budgets_and_the_option_leave_one_view(tmp_path, least):
    for name, options in {
        "grey": {"channels": 1, "macs": 9 * least},
        "params": {"params": "9M"},
        "none": {},
        "option": {"views": 1, "macs": 9 * least},
    }.items():
        fitted(tmp_path / name, **options)
        assert Run(tmp_path / name).load(SolutionFile).views == 1, name


def test_another_budget_of_the_same_network_is_judged_with_its_own_views(tmp_path, least):
    fitted(tmp_path / "run", macs=2.5 * least)
    sartor.solve(tmp_path / "run", macs=9 * least, data=images(), quiet=True, trust_code=True)
    (path,) = (tmp_path / "run/cuts").iterdir()
    base, more = Run(tmp_path / "run"), Run(path)
    assert (base.load(SolutionFile).views, more.load(SolutionFile).views) == (2, 6)
    assert base.load(SolutionFile).arch == more.load(SolutionFile).arch
    one = "model/trained.safetensors"
    assert (base.path / one).read_bytes() == (more.path / one).read_bytes()  # it was not trained again
    assert more.load(EvaluationFile).value == more.load(TrainingFile).test_accuracy
    assert "differs" not in {line.state for line in sartor.verify(path).lines}


def test_views_that_do_not_fit_as_deployed_become_fewer(tmp_path, least, monkeypatch):
    """The file measures over with six, though built it fitted: it gets two, and is not trained again."""
    from sartor.pipeline import training
    from sartor.pipeline.cut import Cut

    real, trained = Cut.measure, []
    monkeypatch.setattr(training, "train_network", _counting(training.train_network, trained))

    def measure(self, name, net, table=None, file=None, views=1):
        found = real(self, name, net, table, file, views)
        over = name == "macs" and file is not None and views == 6
        return Measured.exact(found.value * 9) if over else found

    monkeypatch.setattr(Cut, "measure", measure)
    fitted(tmp_path / "run", macs=7 * least)
    run = Run(tmp_path / "run")
    assert run.load(SolutionFile).views == 2
    assert "as deployed with 6 views" in (run.path / "log.txt").read_text()
    assert len(set(trained)) == 1  # one network, whose finished training is taken up


def _counting(function, names):
    def counted(*args, **more):
        names.append(args[6])
        return function(*args, **more)

    return counted
