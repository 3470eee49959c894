"""Whole compressions, small: files, resuming, budgets, rebuilding, and errors a person can act on."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from nets import plain
from typer.testing import CliRunner

import sartor
from sartor.cli import app
from sartor.compression import given, rebuild, stages
from sartor.errors import BadInput, Infeasible, RunError

pytest.importorskip("torch_pruning")
HERE = Path(__file__).parent
QUICK = {
    "pretrain": 8, "rounds": 2, "epochs": 2, "batch": 16, "levels": 3, "hessian_images": 40,
    "structures": "filter,shape",
    "train": {"epochs": 6, "batch": 16, "augment": "none", "ema": 0.9},
}  # fmt: skip


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Timing in a fraction of the usual time; tests run beside each other, so there is no calm moment to wait for."""
    exact = given.costs

    def costs(options):
        from dataclasses import replace

        made = exact(options)
        return {**made, "latency": replace(made["latency"], **tiny.COARSE)}

    monkeypatch.setattr(given, "costs", costs)
    monkeypatch.setattr(given, "replace", lambda cost, **_: cost)
    monkeypatch.setattr(stages, "_BUSY", math.inf)
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    return tiny.npz(tmp_path_factory.mktemp("bars"), count=90)


@pytest.fixture
def done(bars, tmp_path):
    torch.manual_seed(0)
    return sartor.compress("nets:plain", bars, out=tmp_path / "run", quiet=True, macs="40%", params="60%", **QUICK)


def test_a_smaller_certified_network_comes_out(done, bars):
    c = done.certificate
    before = json.loads((done.path / "baseline.json").read_text())["costs"]
    assert c["fits"]
    for name, share in (("macs", 0.4), ("params", 0.6)):
        assert c["budgets"][name]["measured"] <= share * before[name]["measured"]
        assert c["budgets"][name]["measured"] == c["budgets"][name]["predicted"]
    assert c["score"]["proven_optimal"]
    assert c["accuracy"]["test"] > 60
    table = json.loads((done.path / "compression.json").read_text())
    assert [r["layer"] for r in table["layers"]] == ["0", "4", "9"]
    assert table["totals"]["after"]["macs"] == c["costs"]["macs"]["measured"]
    assert all(r["after"]["ms"] >= 0 and r["before"]["macs"] >= r["after"]["macs"] for r in table["layers"])
    page = (done.path / "report.html").read_text()
    assert "Layer by layer" in page and "Left out" not in page
    # the rebuilt module, the exported file and its predictions agree
    x = np.random.default_rng(0).integers(0, 256, (3, 1, 8, 8)).astype(np.float32)
    net, pre = done.model, json.loads((done.path / "model/preprocessing.json").read_text())["normalisation"]
    logits = net((torch.from_numpy(x) - pre["mean"][0]) / pre["std"][0])
    probabilities = torch.softmax(logits, 1).detach().numpy()
    for row, found in zip(probabilities, done.predict(x), strict=True):
        assert [found["probabilities"][n] for n in done.labels] == pytest.approx(row.tolist(), abs=1e-4)
    # finished: the same call changes nothing; other options are refused
    stamp = (done.path / "certificate.json").read_bytes()
    sartor.compress("nets:plain", bars, out=done.path, quiet=True, macs="40%", params="60%", **QUICK)
    assert (done.path / "certificate.json").read_bytes() == stamp
    with pytest.raises(RunError, match="macs"):
        sartor.compress("nets:plain", bars, out=done.path, quiet=True, macs="30%", params="60%", **QUICK)


class Stop(Exception):
    pass


@pytest.mark.parametrize("moment", ["rounds", "train"])
def test_resumed_equals_uninterrupted(bars, tmp_path, monkeypatch, moment):
    """Killed in the second round, or in the fine-tuning: the weights at the end are the same to the last bit."""

    def run(name):
        return sartor.compress("nets:plain", bars, out=tmp_path / name, quiet=True, macs="40%", **QUICK)

    whole = run("whole")
    with monkeypatch.context() as patch:
        from sartor.compression import finetune, rounds

        calls, place = [], rounds if moment == "rounds" else finetune
        exact = place.fit

        def dies(training):
            calls.append(training.name)
            if len(calls) == (2 if moment == "rounds" else 1):
                exact_save = training.after

                def stop(*args):
                    if exact_save is not None:
                        exact_save(*args)
                    if args[2] == 1:
                        raise Stop

                from dataclasses import replace

                return exact(replace(training, after=stop))
            return exact(training)

        patch.setattr(place, "fit", dies)
        with pytest.raises(Stop):
            run("parts")
    run("parts")
    files = [tmp_path / name / "model/weights.safetensors" for name in ("whole", "parts")]
    assert whole.certificate["string"] == sartor.load(tmp_path / "parts").certificate["string"]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_module_of_ones_own_and_a_measured_latency(bars, tmp_path):
    torch.manual_seed(0)
    net = plain()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    result = sartor.compress(net, bars, out=tmp_path / "run", quiet=True, latency="50ms", params="70%", **QUICK)
    assert result.certificate["budgets"]["latency"]["measured"] <= 50
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())  # the given network is untouched
    small = rebuild(result.path, plain())
    assert sum(p.numel() for p in small.parameters()) == result.certificate["costs"]["params"]["measured"]
    with pytest.raises(BadInput):  # nothing importable is named
        rebuild(result.path)


def test_a_run_directory(finished, tmp_path):
    """A network of `sartor fit`, on its own data and splits."""
    out = tmp_path / "run"
    result = sartor.compress(finished.run, out=out, quiet=True, macs="60%", **{**QUICK, "pretrain": 0})
    mine, theirs = (json.loads((p / "splits.json").read_text()) for p in (out, finished.run))
    assert {k: mine[k] for k in ("train", "val", "test", "mean")} == {
        k: theirs[k] for k in ("train", "val", "test", "mean")
    }
    assert result.certificate["fits"]
    assert result.model(torch.zeros(1, 1, 8, 8)).shape == (1, 3)


def test_without_a_budget_the_prior_decides(bars, tmp_path):
    options = {**QUICK, "strength": 0.03, "rate": 0.1, "rounds": 3, "epochs": 6}
    result = sartor.compress("nets:matrix", bars, out=tmp_path / "run", quiet=True, **options)
    table = json.loads((result.path / "compression.json").read_text())
    assert result.certificate["budgets"] == {}
    assert table["totals"]["after"]["weights"] < table["totals"]["before"]["weights"]
    assert result.certificate["accuracy"]["test"] > 60


def test_zeros_inside_kernels_stay_and_are_counted(bars, tmp_path):
    options = {**QUICK, "structures": "row-column,shape", "strength": 2e-3, "rate": 0.1, "epochs": 4}
    result = sartor.compress("nets:plain", bars, out=tmp_path / "run", quiet=True, **options)
    totals = json.loads((result.path / "compression.json").read_text())["totals"]["after"]
    zeros = sum(
        int((p == 0).sum()) for n, p in result.model.named_parameters() if n in ("0.weight", "4.weight", "9.weight")
    )
    assert totals["weights"] - totals["nonzero"] == zeros > 0


def test_an_impossible_budget_is_refused_before_the_rounds(bars, tmp_path):
    with pytest.raises(Infeasible, match="the narrowest form of this network needs"):
        sartor.compress("nets:plain", bars, out=tmp_path / "run", quiet=True, params="20", **QUICK)
    assert not (tmp_path / "run/rounds.json").exists()


@pytest.mark.parametrize(("arguments", "words"), [
    (["nets.plain", "--data", "BARS"], "package.module:function or a run directory"),
    (["nets:missing", "--data", "BARS"], "can be imported"),
    (["nets:no_network", "--data", "BARS"], "must return an nn.Module, but returned a int"),
    (["model.pth", "--data", "BARS"], "is a pickle"),
    (["nets:plain"], "the images are missing"),
    ([], "what to compress is missing"),
    (["nets:plain", "--data", "BARS", "--structure", "cubes"], "must be one of shape (a)"),
    (["nets:plain", "--data", "BARS", "--macs", "140%"], "between 0% and 100%"),
    (["nets:plain", "--data", "BARS", "--latency", "3"], "has no unit"),
    (["nets:plain", "--data", "BARS", "--set", "rounds=0"], "rounds must be at least 1"),
    (["nets:plain", "--data", "BARS", "--set", "cuts=3"], "has no option cuts"),
    (["HERE", "--data", "BARS"], "not a run directory"),
])  # fmt: skip
def test_bad_input_says_what_must_hold(bars, tmp_path, arguments, words):
    known = {"BARS": str(bars), "HERE": str(tmp_path)}
    result = CliRunner().invoke(app, ["compress", *(known.get(a, a) for a in arguments), f"--out={tmp_path / 'run'}"])
    assert isinstance(result.exception, BadInput)
    assert result.exception.exit_code == 2
    assert words in str(result.exception)


def test_the_command_line_prints_the_certificate(bars, tmp_path):
    sets = [f"--set={k}={v}" for k, v in QUICK.items() if k not in ("train", "structures")]
    train = [f"--set=train.{k}={v}" for k, v in QUICK["train"].items()]
    out = tmp_path / "run"
    arguments = ["compress", "nets:plain", f"--data={bars}", "--macs=50%", f"--out={out}", "--quiet", "--json"]
    result = CliRunner().invoke(app, [*arguments, *sets, *train], catch_exceptions=False)
    assert json.loads(result.stdout)["fits"]
