"""Which precision is deployed: as asked, or int8 only where it is faster and as accurate; and verify covers it."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import sartor
from sartor.core.errors import BadInput
from sartor.costs.base import CostTable, as_priced
from sartor.costs.latency.cost import Int8Latency
from sartor.deploy.module import onnx_graph
from sartor.deploy.quantise import farthest
from sartor.deploy.timing import Timing
from sartor.pipeline import precision
from sartor.pipeline.context import reopened
from sartor.pipeline.cut import FitCut, chosen
from sartor.runs.directory import Run, read_file, read_json, write_json
from sartor.runs.progress import Reporter
from sartor.runs.schema import QuantisedFile


@pytest.fixture(scope="module")
def run(finished, tmp_path_factory):
    return finished.copy(tmp_path_factory.mktemp("precision") / "run")


@pytest.fixture(scope="module")
def small(run):
    """With prices in 8 bits that are half of those in 32: how they are measured is `tests/costs`' matter."""

    def halved(cost, space, task, tick, cache):
        made = read_file(run / "costs/latency.json", CostTable)
        prices, device = {k: p * 0.5 for k, p in made.prices.items()}, {**made.device, "precision": "int8"}
        start = made.calibration["intercept_ms"] / 2
        return replace(
            made, prices=prices, form=made.form * 0.5, device=device,
            calibration={**made.calibration, "intercept_ms": start},
        )  # fmt: skip

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Int8Latency, "table", halved)
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


CASES = [(False, True, False), (True, False, False), (True, True, False), (True, False, True)]


@pytest.mark.parametrize(("faster", "accurate", "mended"), CASES)
def test_auto_takes_int8_where_it_is_faster_and_as_good(cut, monkeypatch, faster, accurate, mended):
    """Or, where it is not as good, becomes so by training in 8 bits."""
    tuned = cut.run.path / "model/tuned.onnx"

    class Clock:
        batch = 1

        def times(self, files, shape):
            assert "int8" in files["int8"].name and "int8" not in files["float32"].name
            ms = {"float32": 1.0, "int8": 0.5 if faster else 2.0}
            return {name: Timing.of([[ms[name]] * 3] * 3, [1.0], None) for name in files}

    def share(c, model, index):
        lost = isinstance(model, bytes) and not accurate and not (mended and tuned.is_file())
        return 80.0 - (5.0 if lost else 0.0)  # what one epoch on 60 images really changes is luck

    monkeypatch.setattr(precision, "_clock", lambda c: Clock())
    monkeypatch.setattr(precision, "shares", share)
    monkeypatch.setattr(precision, "WAYS", precision.WAYS[:2])
    files, both = precision.export(cut), cut.run.load(QuantisedFile)
    small, good = cut.run.path / "model/model_int8.onnx", accurate or mended
    assert both.used == small.is_file() == (faster and good)
    assert ("model/model_int8.onnx" in files) == both.used
    assert ("model/tuned.onnx" in files) == tuned.is_file() == mended
    assert both.why.startswith("slower" if not faster else "as accurate" if good else "5.00 points")
    if mended:
        assert farthest(tuned, small) <= 0.51 < farthest(cut.run.path / "model/model.onnx", small)
        assert both.way.endswith("fine-tuned")
    assert precision.considered(cut) == (("float32", "int8") if both.used else ("float32",))  # not tried twice


def test_parts_are_priced_in_both_and_the_budget_has_the_table_that_it_was_solved_with(run, cut):
    both = [read_file(run / f"costs/{name}latency.json", CostTable) for name in ("", "int8/")]
    assert [table.precision for table in both] == ["float32", "int8"]
    assert both[1].form(chosen(cut.run)) == pytest.approx(both[0].form(chosen(cut.run)) / 2)
    assert cut.tables()["latency"].precision == cut.tables("int8")["latency"].precision == "int8"
    assert cut.tables("float32")["latency"].precision == "float32"
    assert [as_priced(run / "costs", at)["latency"].precision for at in (cut.run.path, run)] == ["int8", "float32"]


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_the_search_learns_about_the_networks_that_the_faster_precision_allows(cut, monkeypatch, factor):
    (cut.run.path / "quantised.json").unlink()
    plain = FitCut.tables(cut, "float32")
    small = {**plain, "latency": replace(plain["latency"], form=plain["latency"].form * factor)}
    budget = float(np.median(plain["latency"].form.batch([cut.space.heaviest.picks, cut.space.smallest.picks])))
    monkeypatch.setattr(FitCut, "tables", lambda cut, precision=None: small if precision == "int8" else plain)
    monkeypatch.setattr(precision, "considered", lambda cut: ("float32", "int8"))
    tight = replace(cut, limited={"latency": budget})
    assert precision.roomier(tight) == ("int8" if factor < 1 else "float32")


@pytest.mark.parametrize("asked", ["int8", "auto"])
def test_a_network_with_nothing_to_quantise_is_refused_or_stays_as_it_is(cut, monkeypatch, asked):
    """With nothing lost: the trained network is still there, for another precision."""
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    (cut.run.path / "model/model.onnx").write_bytes(onnx_graph(net, (1, 8, 8)))
    options = replace(cut.context.options, precision=asked)
    cut = replace(cut, context=replace(cut.context, options=options))
    monkeypatch.setattr(precision, "shares", lambda c, model, index: 50.0)
    if asked == "int8":
        with pytest.raises(BadInput, match=r"nothing to quantise.* --precision float32: what was trained is not lost"):
            precision.export(cut)
    else:
        assert precision.export(cut) == []
        assert precision.considered(cut) == ("float32", "int8")
    assert cut.run.done("train")


def test_what_cannot_be(finished, run):
    for given, words in (
        ({"precision": "int9"}, "float32, int8, auto"),
        ({"precision": "int8", "runtime": "torch"}, "torch"),
    ):
        with pytest.raises(BadInput, match=words):
            sartor.fit(finished.data, out=run.parent / "none", **given)
    assert not (run.parent / "none").exists()
