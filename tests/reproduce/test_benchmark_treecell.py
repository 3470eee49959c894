"""The proxyless benchmark, at its smallest: all that it says it writes, and nothing is done twice."""

import json
import sys
from pathlib import Path

import pytest
import tiny

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    made = __import__("bayesnas_treecell")
    monkeypatch.setattr(sys.modules["_record"], "ROOT", tmp_path)
    monkeypatch.setattr(made, "PROBE", 1)
    return made


def test_searches_trains_records_and_goes_on_where_it_stopped(script, tmp_path, monkeypatch):
    options = {
        "data": tiny.npz(tmp_path), "out": tmp_path / "run", "device": "cpu", "minutes": 0.01, "blocks": 1, "alpha": 6,
        "rounds": 0, "batch": 16, "beside": "", "strength": 0.01,
    }  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["x", *(f"--{name}={value}" for name, value in options.items())])
    script.main()
    results = json.loads((tmp_path / "results" / "bayesnas_treecell.json").read_text())["results"]
    assert results["space"]["switches"] == 3 * 15 == len(results["search"]["posterior"])
    assert set(results["networks"]) == {"found"}
    found = results["networks"]["found"]
    assert found["parameters"] <= results["space"]["whole"]["parameters"]
    assert 0 <= found["test_error"] <= 100
    assert len(found["cells"].split()) == 3

    def again(*args):
        raise AssertionError("what is there is not made again")

    for name in ("speed", "train_network"):
        monkeypatch.setattr(script, name, again)
    monkeypatch.setattr(script.BayesNAS, "search", again)
    script.main()
    assert json.loads((tmp_path / "results" / "bayesnas_treecell.json").read_text())["results"] == results


def test_what_is_given_is_not_measured(script, tmp_path, monkeypatch):
    def speed(*args):
        raise AssertionError("no speed is needed where images and epochs are given")

    monkeypatch.setattr(script, "speed", speed)
    options = {
        "data": tiny.npz(tmp_path), "out": tmp_path / "run", "device": "cpu", "blocks": 1, "alpha": 6, "rounds": 1,
        "batch": 16, "images": 32, "train-epochs": 1,
    }  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["x", *(f"--{name}={value}" for name, value in options.items())])
    script.main()
    results = json.loads((tmp_path / "results" / "bayesnas_treecell.json").read_text())["results"]
    assert results["search"]["images"] == 32
    assert results["train_epochs"] == 1
