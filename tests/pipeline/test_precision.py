"""Which precision is deployed: as asked, or int8 only where it is faster and as accurate; and verify covers it."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import sartor
from sartor.core.errors import BadInput, Infeasible
from sartor.core.task import Task
from sartor.costs.base import CostTable, Measured, as_priced
from sartor.costs.flash import Flash
from sartor.costs.latency.cost import Int8Latency, Latency
from sartor.costs.memory import Memory
from sartor.data.open import open_data
from sartor.deploy.export import OnnxModel
from sartor.deploy.module import onnx_graph
from sartor.deploy.quantise import farthest
from sartor.deploy.targets.profile import Profile
from sartor.pipeline import decision, precision, quantising, training
from sartor.pipeline.context import reopened
from sartor.pipeline.cut import FitCut, chosen
from sartor.runs.directory import Run, read_file, read_json, write_json
from sartor.runs.progress import Reporter
from sartor.runs.schema import QuantisedFile, SplitsFile, TrainingFile
from sartor.spaces.mobile.space import Mobile


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
        tiny = Mobile(preset="tiny")
        least = Memory().table(tiny, Task(3, 8, 1)).form(tiny.smallest)
        bytes_ = {"memory": 0.5 * least, "size": 1.2 * least}
        return sartor.solve(run, latency="50ms", params="150K", budgets=bytes_, precision="int8", quiet=True)


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
    judged = small.evaluation  # of the file that is deployed, again by hand
    splits, images = Run(small.path.parents[1]).load(SplitsFile), open_data(finished.data)
    model = OnnxModel(folder / "model_int8.onnx")
    right = model.logits_of(images, np.array(splits.test)).argmax(1) == images.labels[list(splits.test)]
    assert judged.value == pytest.approx(100 * right.mean()) and judged.value == both["int8"]["test_accuracy"]
    assert judged.reliability.temperature == pytest.approx(model.temperature, rel=1e-5)
    assert "int8:" in (small.path / "report.html").read_text()


def test_bytes_are_solved_for_as_they_are_deployed(run, small):
    """What is far too small for any network in 32 bits has room for one in 8."""
    told, file = small.certificate["budgets"], small.path / "model/model_int8.onnx"
    with pytest.raises(Infeasible):
        sartor.solve(run, memory=told["memory"]["limit"], quiet=True)
    assert told["size"]["measured"] == file.stat().st_size <= told["size"]["limit"]
    assert told["memory"]["measured"] == Flash().of(small.model, (1, 8, 8)) == told["memory"]["predicted"]
    assert told["memory"]["device"] == {"precision": "int8"}


def test_a_forged_precision_is_found(small, tmp_path):
    path = shutil.copytree(small.path.parents[1], tmp_path / "run") / "cuts" / small.path.name
    told = read_json(path / "quantised.json")
    told["asked"], told["compared"]["latency"]["int8"]["value"] = "auto", 1e9
    write_json(path / "quantised.json", told)
    found = {line.what for line in sartor.verify(path).lines if line.state == "differs"}
    assert "quantised.json: int8 only where it is faster and as accurate, or asked for" in found


@pytest.fixture
def cut(run, small, tmp_path):
    """The same budget once more, about to decide its precision by itself."""
    limits = {"latency": "50ms", "params": "150K"}
    context, asked = reopened(run, Reporter(silent=True), limits, precision="auto")
    return FitCut(context, Run(Path(shutil.copytree(small.path, tmp_path / "cut")), Reporter(silent=True)), asked)


def took(middle, spread=0.05):
    return Measured(middle, middle + spread, lower=middle - spread)


def clock(ms):
    """Both forms take `ms`; what is timed is what it says it is."""

    def compare(self, net, files, shape):
        assert [b"QuantizeLinear" in files[name].read_bytes() for name in ("float32", "int8")] == [False, True]
        return {name: took(value) for name, value in ms[self.target if self.target in ms else "local"].items()}

    return compare


BOTH = {"float32": 1.0, "int8": 0.5}


def test_what_judges_8_bits_is_not_trained_on(cut, monkeypatch):
    """And is kept back for them alone: a network in 32 bits is trained on all images but the test's."""
    seen, deciding, c = [], [], cut.context
    monkeypatch.setattr(training, "train_network", lambda *given: seen.append(given[4]) or [])
    monkeypatch.setattr(training, "_trained_before", lambda cut, arch: None)
    monkeypatch.setattr(quantising, "as_int8", lambda c, source, bits, choosing: deciding.append(choosing))
    for bits, kept in (("float32", 0), ("int8", len(c.splits.val) // 4)):
        monkeypatch.setattr(FitCut, "precision", bits)
        training.train(cut)
        every, left = {*c.splits.train, *c.splits.val}, {*quantising.held_out(cut)}
        assert (len(left) == kept and left < {*c.splits.val}) or not kept
        assert {*seen[-1].train} == every - left
        quantising.make(cut, tune=False)
        assert ({*deciding[-1]} == left and quantising.deciding(cut)[1]) == (kept > 0)
    monkeypatch.setattr(FitCut, "precision", "int8")
    told = cut.run.load(TrainingFile)  # of another budget, which was trained on all
    cut.run.save(replace(told, held_out=None))
    assert not quantising.deciding(cut)[1]


DECISIONS = {
    "faster at both targets": ({"local": BOTH, "ssh://pi": BOTH}, 1.0, "int8"),
    "slower at one": ({"local": BOTH, "ssh://pi": {"float32": 1.0, "int8": 1.2}}, 1.0, "float32"),
    "nobody can tell at one": ({"local": BOTH, "ssh://pi": {"float32": 1.0, "int8": 0.95}}, 1.0, "float32"),
    "a worse network": ({"local": BOTH, "ssh://pi": BOTH}, 0.9, "float32"),
}


@pytest.mark.parametrize("case", DECISIONS)
def test_8_bits_are_decided_on_where_they_are_faster_at_every_target(cut, monkeypatch, case):
    ms, worth, wanted = DECISIONS[case]
    (cut.run.path / "quantised.json").unlink()
    monkeypatch.setattr(Latency, "compare", clock(ms))
    monkeypatch.setattr(quantising, "weight_bits", lambda cut: 8)
    times = {f"latency@{n}": Latency(target=n) for n in ms}
    cut = replace(cut, context=replace(cut.context, costs={**cut.context.costs, **times}), limited=dict.fromkeys(times))
    bits, why, compared = precision.decided(cut, {"float32": 1.0, "int8": worth}, chosen(cut.run))
    assert bits == wanted
    assert compared.keys() == (times.keys() if worth == 1 else set())
    assert ("ssh://pi" in why) == (wanted == "float32" and worth == 1)


@pytest.mark.parametrize("why", ["a profile", "a runtime"])
def test_auto_is_float32_where_8_bits_cannot_be_compared(cut, monkeypatch, why, tmp_path):
    monkeypatch.setattr(Profile, "identity", lambda self, runtime: {})
    away = Latency(target="board.json") if why == "a profile" else Latency(runtime="litert")
    here = replace(cut, context=replace(cut.context, costs={**cut.context.costs, "latency": away}))
    (cut.run.path / "quantised.json").unlink()
    assert precision.considered(cut) == ("float32", "int8")
    assert precision.considered(here) == ("float32",)
    assert precision.export(here) == []  # nor is it quantised and timed on another machine
    assert not (cut.run.path / "model/model_int8.onnx").exists()
    if why == "a profile":  # int8 is what was asked for: it is deployed, and nobody claims to have timed it
        options = replace(cut.context.options, precision="int8")
        precision.export(replace(here, context=replace(here.context, options=options)))
        both = cut.run.load(QuantisedFile)
        assert both.used and both.compared == {} and both.int8.timing is None


CASES = [(False, True, False), (True, False, False), (True, True, False), (True, False, True)]


@pytest.mark.parametrize(("faster", "accurate", "mended"), CASES)
def test_what_was_decided_stays_only_where_the_trained_network_is_faster_and_as_good(
    cut, monkeypatch, faster, accurate, mended
):
    """Or, where it is not as good, becomes so by training in 8 bits."""
    tuned = cut.run.path / "model/tuned.onnx"

    def share(c, model, index):
        lost = isinstance(model, bytes) and not accurate and not (mended and tuned.is_file())
        return 80.0 - (5.0 if lost else 0.0)  # what one epoch on 60 images really changes is luck

    monkeypatch.setattr(Latency, "compare", clock({"local": {"float32": 1.0, "int8": 0.5 if faster else 2.0}}))
    monkeypatch.setattr(quantising, "share", share)
    monkeypatch.setattr(quantising, "WAYS", quantising.WAYS[:2])
    files, both = precision.export(cut), cut.run.load(QuantisedFile)
    small, good = cut.run.path / "model/model_int8.onnx", accurate or mended
    assert both.used == small.is_file() == (faster and good)
    assert ("model/model_int8.onnx" in files) == both.used
    assert ("model/tuned.onnx" in files) == tuned.is_file() == (faster and mended)
    assert both.why.startswith("slower" if not faster else "as accurate" if good else "5.00 points")
    if faster and mended:
        assert farthest(tuned, small) <= 0.51 < farthest(cut.run.path / "model/model.onnx", small)
        assert both.way.endswith("fine-tuned")
    assert precision.considered(cut) == (("float32", "int8") if both.used else ("float32",))  # not tried twice
    assert precision.refused(cut) is not both.used


def binding(run):
    """A latency that the best network of all keeps in 8 bits alone."""
    return 0.75 * read_file(run / "costs/latency.json", CostTable).form(chosen(Run(run)))


@pytest.mark.parametrize("another", [True, False])
def test_a_network_that_8_bits_spoil_is_followed_by_the_optimum_in_float32(run, small, monkeypatch, another):
    """Trained anew only where that is another network; all files then speak of float32."""
    budget, trainings = (binding(run), []) if another else (51.0, [])
    limits = {"latency": budget, **({} if another else {"params": "150K"})}
    train, share = training.train, quantising.share
    monkeypatch.setattr(training, "train", lambda cut: (trainings.append(chosen(cut.run)), train(cut))[1])
    monkeypatch.setattr(decision, "built", lambda cut, arch, t: {n: took(t[n].form(arch), 0) for n in cut.measured})
    monkeypatch.setattr(Latency, "measure", lambda *args: took(0.9 * budget))
    monkeypatch.setattr(Latency, "compare", clock({"local": BOTH}))
    monkeypatch.setattr(quantising, "share", lambda c, m, i: share(c, m, i) if isinstance(m, Path) else -10.0)
    monkeypatch.setattr(quantising, "_TUNING", 0.0)
    monkeypatch.setattr(quantising, "WAYS", quantising.WAYS[:1])
    plain = sartor.solve(run, **limits, precision="float32", train=False, quiet=True).arch
    found = sartor.solve(run, **limits, precision="auto", quiet=True)
    assert found.arch == plain
    assert trainings == ([trainings[0], plain] if another else [plain])
    assert (trainings[0] != plain) == another
    told = found.certificate
    assert not told["precision"]["used"] and "points less accurate" in told["precision"]["why"]
    assert "precision" not in told["device"]
    assert told["costs"]["latency"]["predicted"] == pytest.approx(found.tables["latency"].form(plain))


def test_a_slower_int8_is_not_trained_for_and_float32_has_its_optimum(run, small, monkeypatch):
    limits = {"latency": 0.97 * binding(run)}
    monkeypatch.setattr(decision, "built", lambda cut, arch, t: {n: took(t[n].form(arch), 0) for n in cut.measured})
    monkeypatch.setattr(Latency, "compare", clock({"local": {"float32": 0.5, "int8": 1.0}}))
    solved = {
        bits: sartor.solve(run, **limits, precision=bits, train=False, quiet=True)
        for bits in ("float32", "int8", "auto")
    }
    assert solved["int8"].arch != solved["float32"].arch == solved["auto"].arch
    told = solved["auto"].solution
    assert told.precision == "float32" and "int8 is not faster by latency" in told.why
    assert told.compared["latency"].int8.value == 1.0
    assert told.predicted == solved["float32"].solution.predicted


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
    """Before it is trained; where it was, nothing is lost: it is still there, for another precision."""
    net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    (cut.run.path / "model/model.onnx").write_bytes(onnx_graph(net, (1, 8, 8)))
    monkeypatch.setattr(FitCut, "network", lambda self, arch: net)
    monkeypatch.setattr(FitCut, "precision", "float32" if asked == "auto" else "int8")
    cut = replace(cut, context=replace(cut.context, options=replace(cut.context.options, precision=asked)))
    monkeypatch.setattr(quantising, "share", lambda c, model, index: 50.0)
    worth = {"int8": 1.0} if asked == "int8" else {"float32": 1.0, "int8": 1.0}
    if asked == "int8":
        with pytest.raises(BadInput, match="nothing to quantise"):
            precision.decided(cut, worth, chosen(cut.run))
        with pytest.raises(BadInput, match=r"nothing to quantise.* --precision float32: what was trained is not lost"):
            precision.export(cut)
    else:
        assert precision.decided(cut, worth, chosen(cut.run))[0] == "float32"
        assert precision.export(cut) == []
        assert precision.considered(cut) == ("float32", "int8")
    assert cut.run.done("train")


def test_what_cannot_be(finished, run):
    for given, words in (
        ({"precision": "int9"}, "float32, int8, auto"),
        ({"precision": "int8", "runtime": "torch"}, "torch"),
        ({"precision": "int8", "costs": {"latency": {"runtime": "litert"}}}, "its runtime does not compute in int8"),
    ):
        with pytest.raises(BadInput, match=words):
            sartor.fit(finished.data, out=run.parent / "none", **given)
    assert not (run.parent / "none").exists()
