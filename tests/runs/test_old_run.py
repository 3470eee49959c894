"""A run directory made by the code before files had types and formats (0.1.0, November 2026) still serves."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import sartor
from sartor.cli.main import app
from sartor.report.build import build

ARCHIVE = Path(__file__).parents[1] / "golden/old_run.zip"


@pytest.fixture
def old(tmp_path):
    shutil.unpack_archive(ARCHIVE, tmp_path / "old")
    assert "format" not in json.loads((tmp_path / "old/score.json").read_text())
    return tmp_path / "old"


def test_its_report(old):
    page = build(old).read_text(encoding="utf-8")
    sections = ("headline", "frontier", "network", "decisions", "why", "timing", "training", "data", "usage")
    assert [s for s in sections if f'id="{s}-section"' not in page] == []
    assert "avg_pool_3x3" in page


def test_its_predictions(old):
    result = sartor.load(old)
    pixels = np.random.default_rng(0).uniform(0, 255, (3, 1, 8, 8)).astype(np.float32)
    found = result.predict(pixels)
    assert [sum(f["probabilities"].values()) for f in found] == pytest.approx([1.0] * 3, abs=1e-5)
    assert result.certificate["fits"]
    import torch

    with torch.no_grad():
        spec = result.preprocessing.normalisation
        mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (spec.mean, spec.std))
        logits = result.model((torch.from_numpy(pixels) - mean) / std)
    assert [result.labels[k] for k in logits.argmax(1)] == [f["label"] for f in found]


def test_another_budget_on_its_search(old):
    result = sartor.solve(old, params=20e3)
    assert result.certificate["budgets"]["params"]["measured"] <= 20e3
    assert json.loads((result.path / "solution.json").read_text())["budgets"] == {"params": 20e3}
    assert (result.path / "report.html").is_file()


def test_its_frontier_in_a_terminal(old, capsys):
    app(["frontier", str(old)], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["latency", "score", "macs", "memory", "params", "architecture"]
