"""Every script reads its command line; those that no other test runs, run here at their smallest."""

import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import sartor
from sartor.pipeline import order
from sartor.spaces.cells.nets import Frame

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [
    p for f in ("benchmarks", "reproduce") for p in sorted((ROOT / f).glob("*.py")) if "__main__" in p.read_text()
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_asked_for_help_a_script_does_nothing_else_and_what_it_does_not_know_it_refuses(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [str(path.parent), *sys.path])
    for argument, code in (("--help", 0), ("--nonsense", 2)):
        monkeypatch.setattr(sys, "argv", [str(path), argument])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(path), run_name="__main__")
        assert ended.value.code == code
    assert "usage:" in capsys.readouterr().out


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Run a script with these words and give back what it recorded; results, figures and parts go to a folder."""
    (tmp_path / "reproduce/figures").mkdir(parents=True)
    monkeypatch.setattr(importlib.import_module("_record"), "ROOT", tmp_path)

    def run(name, *words, **constants):
        made = importlib.import_module(name)
        for constant, value in {"ROOT": tmp_path, **constants}.items():
            monkeypatch.setattr(made, constant, value, raising=constant != "ROOT")
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        made.main()
        return {p.stem: json.loads(p.read_text())["results"] for p in (tmp_path / "results").glob("*.json")}

    return run


def npz(folder, side, channels, count=80, classes=4):
    rng = np.random.default_rng(0)
    np.savez(folder / "some.npz", x=rng.integers(0, 256, (count, side, side, channels), dtype=np.uint8),
             y=np.arange(count) % classes, classes=np.array([str(n) for n in range(classes)]))  # fmt: skip
    return folder / "some.npz"


def test_lenets_and_algorithm_3(script, tmp_path):
    pytest.importorskip("torch_pruning")
    data = npz(tmp_path, 28, 1, classes=10)
    small = ("--data", data, "--rounds", 1, "--epochs", 1, "--batch", 16)
    found = script("bayesnas_lenet", *small, "--out", tmp_path / "lenet", "--seeds", 1, "--nets", "300-100",
                   "--budgets", 1, "--pretrain", 1, "--finetune", 1, "--levels", 3)["bayesnas_lenet"]  # fmt: skip
    assert found["networks"]["300-100"]["curve"][0]["mflops_mean"] <= 0.0428
    script("bayesnas_algorithm3", "run", "300-100", *small, "--out", tmp_path / "a3", "--pretrain", 1)
    found = script("bayesnas_algorithm3", "record", "--out", tmp_path / "a3")["bayesnas_algorithm3"]
    assert len(found["300-100"][0]["rounds"]) == 1
    assert not found["5"]


def test_cells_of_cifar_10(script, tmp_path):
    data, out = npz(tmp_path, 8, 3), tmp_path / "out"
    search = ("--strengths", 0.01, "--rounds", 1, "--images", 32, "--batch", 16, "--cells", 3, "--channels", 4)
    train = ("--beside", "--network", 3, 4, "--train-images", 32, "--train-epochs", 1, "--order", "bn_relu_conv")
    some = ("--data", data, "--out", out, "--device", "cpu", *search, *train)
    found = script("bayesnas_cifar10", *some, EVALUATED=Frame(4, 3))["bayesnas_cifar10"]
    assert set(found["searches"]) == {"0.01"}
    assert found["alike"]["lambda-0.01"]["epochs"] == 1


def test_cells_of_xnas(script, tmp_path, monkeypatch):
    """A run that ends with its decision: what comes after it has tests of its own, and takes its time."""
    whole = sartor.fit

    def fit(*data, **options):
        with monkeypatch.context() as patch:
            patch.setattr("sartor.pipeline.order.finish", order.decide)
            whole(*data, **options, quiet=True)
        return SimpleNamespace(certificate={"accuracy": None})

    monkeypatch.setattr(sartor, "fit", fit)
    small = {"SIZE": {"cells": 2, "channels": 4}, "SEARCH": {"search_cells": 2, "search_channels": 4}, "RANDOM": 1}
    some = ("--data", npz(tmp_path, 8, 3), "--out", tmp_path / "xnas", "--device", "cpu", "--train-epochs", 1)
    for what in (("search", "xnas", "--epochs", 1, "--batch", 16), ("train",), ("record",)):
        found = script("xnas_cifar10", *what, *some, "--beside", **small)
    found = found["xnas_cifar10"]
    assert found["cells"]["random-0"]["epochs"] == found["cells"]["xnas"]["epochs"] == 1
    assert found["searches"]["xnas"]["epochs"] == len(found["searches"]["xnas"]["remaining"]) == 1


def test_nasi_on_reduced_cells(script, tmp_path):
    data = npz(tmp_path, 8, 3)
    few = {"steps": 1, "nu_networks": 1, "batch": 2}
    words = ("--device", "cpu", "--seeds", 1, "--network", 2, 4, "--images", 16, "--epochs", 1, "--batch", 16)
    found = script("nasi_darts", "--data", data, "--out", tmp_path / "out", *words, METHODS={"NASI": few})["nasi_darts"]
    assert found["random"]["runs"][0]["epochs"] == found["NASI"]["runs"][0]["epochs"] == 1


def test_predictors_of_binas(script, finished, tmp_path):
    few = ("--images", 18, "--networks", 20, "--passes", 1, "--epochs", 64)
    found = script("binas_predictors", finished.copy(tmp_path / "run"), *few)["binas_predictors"]
    assert set(found["theorem_3_1"]) == {"multi-path", "single-path"}
    last = {name: points[-1] for name, points in found["curves"].items()}
    assert last["learnt, bilinear (7, 8)"].keys() == {"epochs", "kendall", "spearman", "mse"}
    assert "mse" in last["figure 7: quadratic (9), 5 components"] and "mse" not in last["ours, likelihood"]


@pytest.mark.skipif("SARTOR_TEST_DATA" not in os.environ, reason="needs the benchmarks' tables")
def test_nasi_on_tabular_benchmarks(script, tmp_path):
    few = {"steps": 1, "nu_networks": 1, "batch": 2}
    names = {"NAMES": ("S1",), "VARIANTS": {"no data": {"images": "gaussian", **few}, "random labels": few}}
    found = script("nasi_search", "--seeds", 1, **names)["nasi_search_cpu"]["S1"]
    assert {"no data", "random labels", "beside"} <= set(found)
    study = script("nasi_study", KEPT=tmp_path / "kept", NAMES=("S1",), SEEDS=range(1), STEPS=1)["nasi_study"]
    assert study["settings"][0]["share_above"].keys() == {"S1"}
