"""Whole compressions, small: files, resuming, budgets, rebuilding, and errors a person can act on."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from nets import Deciding, plain
from typer.testing import CliRunner

import sartor
from sartor.cli.main import app
from sartor.compression import given, rounds
from sartor.compression.options import from_mapping
from sartor.core.errors import BadInput, Infeasible, RunError
from sartor.engine import network
from sartor.runs.progress import Reporter

pytest.importorskip("torch_pruning")
HERE = Path(__file__).parent
QUICK = {
    "pretrain": 8, "rounds": 2, "epochs": 2, "batch": 16, "levels": 3, "hessian_images": 40,
    "structures": "filter,shape",
    "train": {"epochs": 6, "batch": 16, "augment": "none", "ema": 0.9},
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def importable():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        yield


@pytest.fixture(scope="module")
def bars(tmp_path_factory):
    return tiny.npz(tmp_path_factory.mktemp("bars"), count=90)


def compressed(bars, out):
    return sartor.compress("nets:plain", bars, out=out, quiet=True, macs="40%", params="60%", **QUICK)


@pytest.fixture(scope="module")
def done(bars, tmp_path_factory):
    torch.set_num_threads(1)
    return compressed(bars, tmp_path_factory.mktemp("compressed") / "run")


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
    probabilities = torch.softmax(logits / done.evaluation.reliability.temperature, 1).detach().numpy()
    for row, found in zip(probabilities, done.predict(x), strict=True):
        assert [found["probabilities"][n] for n in done.labels] == pytest.approx(row.tolist(), abs=1e-4)
    # all that it claims can be checked again; without trust in its code, all but the network
    trusted, found = sartor.verify(done.path, data=str(bars), trust_code=True), sartor.verify(done.path)
    assert [line for line in (*trusted.lines, *found.lines) if line.state == "differs"] == []
    rebuilt = {line.what: line.state for line in found.lines}["the rebuilt network"]
    assert rebuilt == "cannot be checked" and not any(line.what == "the rebuilt network" for line in trusted.lines)
    # finished: the same call changes nothing; other options are refused
    stamp = (done.path / "certificate.json").read_bytes()
    compressed(bars, done.path)
    assert (done.path / "certificate.json").read_bytes() == stamp
    with pytest.raises(RunError, match="macs"):
        sartor.compress("nets:plain", bars, out=done.path, quiet=True, macs="30%", params="60%", **QUICK)


class Stop(Exception):
    pass


@pytest.mark.parametrize("place", [rounds, network], ids=["rounds", "finetune"])
def test_resumed_equals_uninterrupted(done, bars, tmp_path, monkeypatch, place):
    """Killed in the second epoch of a training: the weights at the end are the same to the last bit."""
    exact = place.fit

    def dies(training):
        def stop(*moment):
            if training.after is not None:
                training.after(*moment)
            if moment[2] == 1:
                raise Stop

        return exact(replace(training, after=stop))

    with monkeypatch.context() as patch:
        patch.setattr(place, "fit", dies)
        with pytest.raises(Stop):
            compressed(bars, tmp_path / "run")
    again = compressed(bars, tmp_path / "run")
    assert again.certificate["string"] == done.certificate["string"]
    weights = "model/weights.safetensors"
    assert (again.path / weights).read_bytes() == (done.path / weights).read_bytes()


def test_a_module_of_ones_own_and_a_measured_latency(bars, tmp_path):
    torch.manual_seed(0)
    net = plain()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    more = {**QUICK, "costs": {"latency": tiny.COARSE}}
    result = sartor.compress(net, bars, out=tmp_path / "run", quiet=True, latency="50ms", params="70%", **more)
    assert result.certificate["budgets"]["latency"]["measured"] <= 50
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())  # the given network is untouched
    small = given.reopen(result.path, plain())
    assert sum(p.numel() for p in small.parameters()) == result.certificate["costs"]["params"]["measured"]
    with pytest.raises(BadInput):  # nothing importable is named
        given.reopen(result.path, trusted=True)


def test_a_run_directory(finished, tmp_path):
    """A network of `sartor fit`, on its own data and splits."""
    out = tmp_path / "run"
    train = {**QUICK["train"], "epochs": 1}
    options = {**QUICK, "pretrain": 0, "rounds": 1, "epochs": 1, "train": train}
    result = sartor.compress(finished.run, out=out, quiet=True, macs="60%", **options)
    mine, theirs = (json.loads((p / "splits.json").read_text()) for p in (out, finished.run))
    assert {k: mine[k] for k in ("train", "val", "test", "mean")} == {
        k: theirs[k] for k in ("train", "val", "test", "mean")
    }
    assert result.certificate["fits"]
    assert result.model(torch.zeros(1, 1, 8, 8)).shape == (1, 3)


@pytest.mark.parametrize(
    ("structures", "strength", "whole"), [("row-column,shape", 5e-3, True), ("shape", 3e-3, False)]
)
def test_without_a_budget_the_prior_decides(bars, tmp_path, structures, strength, whole):
    """Whole channels that die go; weights inside kernels that stay become zeros, stay zero and are counted."""
    options = {**QUICK, "structures": structures, "strength": strength, "rate": 0.1, "rounds": 3, "epochs": 40}
    result = sartor.compress("nets:plain", bars, out=tmp_path / "run", quiet=True, **options)
    totals = json.loads((result.path / "compression.json").read_text())["totals"]
    layers = ("0.weight", "4.weight", "9.weight")
    zeros = sum(int((p == 0).sum()) for n, p in result.model.named_parameters() if n in layers)
    assert result.certificate["budgets"] == {}
    assert result.certificate["accuracy"]["test"] > 60
    assert totals["after"]["weights"] - totals["after"]["nonzero"] == zeros
    assert totals["after"]["weights"] < totals["before"]["weights"] if whole else zeros > 0


def test_a_prior_that_kills_everything_says_so(bars, tmp_path):
    options = {**QUICK, "strength": 1.0, "rate": 0.1, "epochs": 20}
    with pytest.raises(BadInput, match="have died: the prior is too strong"):
        sartor.compress("nets:plain", bars, out=tmp_path / "run", quiet=True, **options)


def test_a_later_round_that_leaves_no_network_is_undone_and_the_rounds_end(bars, tmp_path, monkeypatch):
    options = from_mapping({"model": "nets:plain", "data": str(bars), **QUICK, "rounds": 4, "strength": 1e-3})
    job = given.open_given(options, tmp_path, Reporter(silent=True), plain())
    sparse, filters = rounds.Sparse(job, job.net).place(), iter([2, 1, 0])

    def training(made):
        """As if the prior had driven all filters but so many to zero."""
        with torch.no_grad():
            made.net[0].weight[next(filters) :] = 0
        return [{"loss": 1.0}]

    monkeypatch.setattr(rounds, "fit", training)
    history = rounds.run_rounds(job, sparse, {}, {})
    assert [h["groups_left"]["0"]["filter"] for h in history] == [2, 1]
    assert [bool((w != 0).any()) for w in sparse.net[0].weight] == [True] + [False] * (len(sparse.net[0].weight) - 1)
    assert (
        "round 3 is undone, and the rounds end with what round 2 left: all channels"
        in (tmp_path / "log.txt").read_text()
    )


def test_networks_that_cannot_be_traced_get_sampled_hessians(bars, tmp_path):
    def diagonals(how):
        options = from_mapping({"model": "nets:Deciding", "data": str(bars), **QUICK, "hessian": how})
        job = given.open_given(options, tmp_path, Reporter(silent=True), Deciding())
        return rounds.hessians(job, job.net)

    found = diagonals("auto")
    assert "Sampled Gauss-Newton is used" in (tmp_path / "log.txt").read_text()
    assert set(found) == {f"{n}.weight" for n in ("stem", "a.c1", "a.c2", "b.c1", "b.c2", "b.short.0", "fc")}
    assert all((h >= 0).all() and h.sum() > 0 for h in found.values())
    with pytest.raises(BadInput, match=r"torch\.fx can trace"):
        diagonals("diagonal")


def test_an_impossible_budget_is_refused_before_the_rounds(bars, tmp_path):
    with pytest.raises(Infeasible, match="the least any narrower form of this network needs"):
        sartor.compress("nets:plain", bars, out=tmp_path / "run", quiet=True, params="20", **QUICK)
    assert not (tmp_path / "run/rounds.json").exists()


@pytest.mark.parametrize(("arguments", "words"), [
    (["nets.plain", "--data", "BARS"], "package.module:function or a run directory"),
    (["nets:missing", "--data", "BARS"], "nets has no missing"),
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


def test_without_a_budget_lambda_decides_and_a_run_that_prunes_nothing_says_so(bars, tmp_path, monkeypatch):
    made = from_mapping({"model": "nets:plain", "data": str(bars)}).completed(200)
    assert made.strength == 1 / 200
    assert made.training.teacher
    paper = from_mapping({"model": "nets:plain", "data": str(bars), "effort": "thorough"}).completed(60_000)
    assert (paper.rounds, paper.epochs, paper.training.teacher) == (10, 10, False)  # B.2.1
    assert (
        from_mapping({"model": "nets:plain", "data": str(bars), "budgets": {"params": "50%"}}).completed(200).strength
        == 1e-5
    )
    said, left = [], iter([10, 10, 10, 7])
    facts = {"of_weights": 10, "channels": 3, "val_trained": 90.0, "val_pruned": 90.0}
    monkeypatch.setattr(rounds, "_round", lambda *_: {**facts, "weights": next(left)})
    monkeypatch.setattr(rounds.checkpoint, "save", lambda *_: None)
    run = SimpleNamespace(path=tmp_path, log=said.append)
    job = SimpleNamespace(options=replace(made, rounds=2), run=run)
    sparse = SimpleNamespace(state=dict)
    rounds.run_rounds(job, sparse, {}, {})
    assert "warning: nothing was pruned" in said[-1] and "0.005" in said[-1]
    rounds.run_rounds(job, sparse, {}, {})
    assert "warning" not in said[-1]
