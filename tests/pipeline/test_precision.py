"""Which precision is deployed: as asked, or int8 only where it is faster and as accurate; and verify covers it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

import sartor
from sartor.core.errors import BadInput
from sartor.costs.base import Measured
from sartor.deploy.timing import Timing
from sartor.pipeline import precision
from sartor.pipeline.context import reopened
from sartor.pipeline.cut import FitCut, chosen
from sartor.runs.directory import Run, read_json, write_json
from sartor.runs.progress import Reporter
from sartor.runs.schema import QuantisedFile


@pytest.fixture(scope="module")
def run(finished, tmp_path_factory):
    return finished.copy(tmp_path_factory.mktemp("precision") / "run")


@pytest.fixture(scope="module")
def small(run):
    return sartor.solve(run, latency="50ms", params="150K", precision="int8", quiet=True)


def test_int8_is_delivered_and_verified(finished, small):
    told, folder = small.certificate, small.path / "model"
    both = told["precision"]
    assert both["used"]
    assert both["int8"]["bytes"] == (folder / "model_int8.onnx").stat().st_size < both["float32"]["bytes"]
    assert told["accuracy"]["test"] == both["int8"]["test_accuracy"]
    assert set(told["weights"]) == {f"model/{n}" for n in ("model.onnx", "model_int8.onnx", "weights.safetensors")}
    lines = {line.what: line for line in sartor.verify(small.path, data=finished.data).lines}
    assert not [line for line in lines.values() if line.state == "differs"]
    assert lines["model_int8.onnx: every weight is that of model.onnx, rounded"].state == "verified"
    assert any("from model_int8.onnx" in what for what in lines)
    pixels = np.zeros((1, 1, 8, 8), np.float32)
    assert small.predict(pixels)
    assert "int8:" in (small.path / "report.html").read_text()


def test_a_forged_precision_is_found(small, tmp_path):
    path = shutil.copytree(small.path.parents[1], tmp_path / "run") / "cuts" / small.path.name
    told = read_json(path / "quantised.json")
    told["asked"], told["int8"]["timing"]["p50"] = "auto", 100 * told["float32"]["timing"]["p50"]
    write_json(path / "quantised.json", told)
    found = {line.what for line in sartor.verify(path).lines if line.state == "differs"}
    assert "quantised.json: int8 only where it is faster and as accurate, or asked for" in found


@pytest.fixture
def cut(run, small, tmp_path):
    """The same budget once more, about to decide its precision by itself."""
    limits = {"latency": "50ms", "params": "150K"}
    context, asked = reopened(run, Reporter(silent=True), limits, precision="auto")
    return FitCut(context, Run(Path(shutil.copytree(small.path, tmp_path / "cut")), Reporter(silent=True)), asked)


@pytest.mark.parametrize(("faster", "accurate"), [(False, True), (True, False), (True, True)])
def test_auto_takes_int8_where_it_is_faster_and_as_good(cut, monkeypatch, faster, accurate):
    measured = precision.shares

    class Clock:
        batch = 1

        def time(self, path, shape):
            ms = 1.0 if "int8" not in path.name else 0.5 if faster else 2.0
            return Timing.of([[ms] * 3] * 3, [1.0], None)

    def share(c, model, index):
        return measured(c, model, index) - (5.0 if isinstance(model, bytes) and not accurate else 0.0)

    monkeypatch.setattr(precision, "_clock", lambda c: Clock())
    monkeypatch.setattr(precision, "shares", share)
    monkeypatch.setattr(precision, "WAYS", precision.WAYS[:2])
    files, both = precision.export(cut), cut.run.load(QuantisedFile)
    assert both.used == (cut.run.path / "model/model_int8.onnx").is_file() == (faster and accurate)
    assert ("model/model_int8.onnx" in files) == both.used
    assert both.why.startswith("slower" if not faster else "as accurate" if accurate else "5.00 points")
    assert precision._asked(cut) == ("auto" if both.used else "float32")  # not tried twice


@pytest.mark.parametrize("ms", [0.5, 2.0])
def test_a_candidate_counts_as_what_would_be_deployed(cut, monkeypatch, ms):
    def measure(cut, name, net, table=None, file=None):
        return Measured.exact(1.0 if file is None else ms)

    monkeypatch.setattr(FitCut, "measure", measure)
    (cut.run.path / "quantised.json").unlink()
    found = precision.candidate(cut, cut.network(chosen(cut.run)), cut.tables())
    assert found == {"latency": Measured.exact(min(ms, 1.0))}


def test_what_cannot_be(finished, run):
    for given, words in (
        ({"precision": "int9"}, "float32, int8, auto"),
        ({"precision": "int8", "runtime": "torch"}, "torch"),
    ):
        with pytest.raises(BadInput, match=words):
            sartor.fit(finished.data, out=run.parent / "none", **given)
    assert not (run.parent / "none").exists()
