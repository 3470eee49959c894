"""Several labels an image, from a CSV to a report: what differs from one label each is the task alone."""

import csv

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from typer.testing import CliRunner

import sartor
from sartor.cli.main import app
from sartor.core.seeds import Seeds
from sartor.core.task import MultiLabel
from sartor.data.open import open_data
from sartor.engine.curvature.hessian import Bernoulli, diagonal, likelihood_of, sampled_diagonal
from sartor.runs.directory import read_json

LABELS = {"even": lambda y: y % 2 == 0, "big": lambda y: y >= 5, "round": lambda y: y in (0, 6, 8, 9)}


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    """300 of scikit-learn's digits as files; 1 and 3 are none of the three, so that 'odd' is a label too."""
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    folder = tmp_path_factory.mktemp("digits")
    with (folder / "labels.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("file", "labels"))
        for k, (pixels, y) in enumerate(zip(digits.images[:300], digits.target[:300], strict=True)):
            Image.fromarray(np.rint(pixels * 255 / 16).astype(np.uint8)).save(folder / f"{k:03}.png")
            rows.writerow((f"{k:03}.png", ";".join(n for n, holds in LABELS.items() if holds(y)) or "odd"))
    return folder / "labels.csv"


@pytest.fixture(scope="module")
def result(labels, tmp_path_factory):
    out = tmp_path_factory.mktemp("run")
    more = {"method": {**tiny.QUICK["method"], "heaviest_epochs": 2}, "train": {**tiny.QUICK["train"], "epochs": 8}}
    words = tiny.arguments(labels, out, "--params=60k", "--quiet", "--json", costs={}, **more)
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    return sartor.load(out)


def test_the_network_finds_several_labels(labels, result):
    assert result.task == MultiLabel(4, 8)
    accuracy, images = result.certificate["accuracy"], open_data(labels)
    chance = 100 * images.labels.mean()
    assert accuracy["metric"] == "mean average precision"
    assert accuracy["test"] > chance + 20
    assert read_json(result.path / "score.json")["unit"] == "% right decisions"
    assert result.certificate["budgets"]["params"]["holds"]


def test_a_prediction_is_a_probability_for_every_label(labels, result):
    found = result.predict(sorted(labels.parent.glob("*.png"))[:20])
    assert all(set(entry["probabilities"]) == {"even", "big", "round", "odd"} for entry in found)
    sums = [sum(entry["probabilities"].values()) for entry in found]
    assert max(sums) - min(sums) > 1e-3  # no softmax
    for entry in found:
        assert entry["labels"] == [label for label, p in entry["probabilities"].items() if p > 0.5]
    net, pixels = result.model, open_data(labels).pixels(np.arange(4)).float()
    shift = result.preprocessing.normalisation
    mean, std = (torch.tensor(v)[:, None, None] for v in (shift.mean, shift.std))
    with torch.no_grad():
        expected = (net((pixels - mean) / std) / result.evaluation.reliability.temperature).sigmoid()
    for row, entry in zip(expected, found, strict=False):
        assert [entry["probabilities"][n] for n in result.labels] == pytest.approx(row.tolist(), abs=1e-4)


def test_the_report_and_another_budget(result):
    assert (result.path / "report.html").stat().st_size > 10_000
    cut = sartor.solve(result.path, params="50k", quiet=True)
    assert cut.certificate["accuracy"]["metric"] == "mean average precision"


@pytest.mark.parametrize(
    ("space", "method", "options"),
    [
        ("mobile", "random_sharing", {"epochs": 1, "networks": 4, "held_out": 3}),
        ("nasbench201", "nasi", {"steps": 2, "images": "true", "labels": "true", "loss": "mse"}),
        ("nasbench201", "nasi", {"steps": 2}),
    ],
)
def test_other_methods_learn_from_several_labels(tmp_path, space, method, options):
    from sartor.core.registry import METHODS

    job = tiny.job(tmp_path, space=space, labels=(np.arange(180).reshape(60, 3) % 4 < 2).astype(np.float32))
    found = METHODS[method](**options).search(job)
    archs = [job.space.sample(np.random.default_rng(k)).picks for k in range(5)]
    values = found.score.batch(archs)
    assert np.isfinite(values).all() and np.ptp(values) > 0
    other = tiny.job(tmp_path / "other", space=space, labels=np.eye(3, dtype=np.float32)[np.arange(60) % 3])
    assert (METHODS[method](**options).search(other).score.batch(archs) != values).any()  # the labels are read


def test_the_sampled_curvature_of_yes_and_no_is_the_exact_one_on_average():
    task, generator = MultiLabel(3, 8), torch.Generator().manual_seed(0)
    w = torch.randn(3, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    x = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    y = torch.from_numpy(task.random_labels(Seeds(0).rng("y"), 6))
    assert isinstance(likelihood_of(task), Bernoulli)
    batches, likelihood = [(x, y)], likelihood_of(task)
    (exact,) = diagonal(lambda x: x @ w.T, [w], batches, "exact", likelihood=likelihood)
    (ggn,) = diagonal(lambda x: x @ w.T, [w], batches, "ggn", likelihood=likelihood)
    torch.testing.assert_close(exact, ggn)  # of a linear network
    (drawn,) = sampled_diagonal(x @ w.T, [w], likelihood, generator, draws=4000)
    assert ((drawn - exact).abs() < 0.15 * exact.abs() + 0.01).all()
