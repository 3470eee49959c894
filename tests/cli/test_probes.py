"""What a hostile test found: command lines that ended in a traceback, in silence, or late. Each is refused at once."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
import tiny
from PIL import Image

from sartor.runs.directory import sha256, write_json

LETTERS = "pqr"
SPACE = "".join(f'[[choices]]\nname="c{n}"\noptions=["p","q","r"]\n' for n in range(3))
PRICES = {"unit": "ms", "options": {f"c{n}": {"p": 1, "q": 2, "r": 3} for n in range(3)}}
ROWS = [f"{','.join(picks)},{n}" for n, picks in enumerate(itertools.product(LETTERS, repeat=3))]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Tables of one's own with a score fitted to them."""
    from sartor.tables.files import read_samples, read_space, write_score
    from sartor.tables.fit import fit_tables

    folder = tmp_path_factory.mktemp("tables")
    (folder / "space.toml").write_text(SPACE)
    (folder / "s.csv").write_text("\n".join(["c0,c1,c2,acc", *ROWS]))
    choices = read_space(folder / "space.toml")
    samples = read_samples(folder / "s.csv", choices, "acc")
    write_score(folder / "score.json", fit_tables(choices, samples, predictor="linear", scale="value"), choices)
    return folder


FIT = ("tables", "fit", "--space=space.toml", "--samples=s.csv", "--target=acc", "--out=new.json", "--predictor=linear")
CHECK = ("tables", "check", "--space=space.toml", "--samples=s.csv", "--target=acc", "--score=score.json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*FIT, "--seed=-1"), "a seed at least 0"),
        ((*CHECK, "--seed=-1"), "a seed at least 0"),
        ((*FIT, "--repeats=nope"), "repeats must be error or mean"),
        ((*FIT, "--unit=parsec"), "the unit must be one of us"),
        ((*FIT, "--out=/proc/x.json"), "/proc/x.json must be writable"),
        (("score", "noise", "--seed=-1"), "a seed at least 0"),
        (("score", "noise", "--plot=x.exe"), "--plot must end in .png"),
        (("score", "noise", "--plot=/proc/no/x.png"), "/proc/no/x.png must be writable"),
        (("score", "noise", "--proxy=snip", "--set=proxy.foo=1"), "have no option foo"),
        (("measure", "--classes=99999999999999"), "classes must be 1 to 1000000"),
        (("measure", "--out=/proc/x.json"), "/proc/x.json must be writable"),
        (("measure", "--out=."), "it is a folder"),
        (("measure", "--threads=100000"), "the cores of this machine"),
        (("fit", "digits", "--threads=100000"), "the cores of this machine"),
        (("fit", "digits", "--devices=100000"), "the cores of this machine"),
        (("score", "noise", "--workers=100000"), "the cores of this machine"),
        (("fit", "", "--params=1M"), "the name is empty"),
        (("compress", "torch.nn:Identity", "--data=bars.npz", "--params=50%"), "network with weights"),
    ],
    ids=lambda value: " ".join(value)[-60:] if isinstance(value, tuple) else "",
)
def test_options_that_were_taken_or_ended_in_a_traceback(refused, fitted, tmp_path, arguments, message):
    for name in os.listdir(fitted):
        (tmp_path / name).write_bytes((fitted / name).read_bytes())
    tiny.npz(tmp_path)
    before = {p.name for p in tmp_path.iterdir()}
    assert message in refused(*arguments)
    assert {p.name for p in tmp_path.iterdir()} == before


def test_weights_for_a_run_that_has_its_own_are_refused(refused, finished):
    assert "--weights are for" in refused("compress", finished.run, "--weights=/nope", "--params=50%")


FRONTIER = ("tables", "frontier", "--space=space.toml", "--score=score.json", "--cost=lat=lut.json", "--out=f.json")


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        ("[" * 100_000, "not valid JSON"),
        ("1" * 10_000, "not valid JSON"),
        ({"pairs": 5}, "pairs must be a list"),
        ({"constant": 1e308}, "at most 1e+15"),
        ({"constant": 10**400}, "at most 1e+15"),
        ({"constant": -99}, "comes to less than zero"),
    ],
    ids=["deep", "long number", "pairs", "1e308", "10**400", "negative"],
)
def test_prices_that_are_none(refused, fitted, monkeypatch, prices, message):
    monkeypatch.chdir(fitted)
    Path("lut.json").write_text(prices if isinstance(prices, str) else json.dumps(PRICES | prices))
    assert message in refused(*FRONTIER)


@pytest.mark.parametrize(
    ("name", "value"),
    [("scale", [1]), ("scale", 3), ("scale", [[1, 0], [1, 2]]), ("quadratic", {}), ("quadratic", "wrong sizes")],
)
def test_a_damaged_score_is_refused_by_name(refused, fitted, monkeypatch, tmp_path, name, value):
    monkeypatch.chdir(fitted)
    score = json.loads(Path("score.json").read_text())
    if value == "wrong sizes":
        value = score["quadratic"] | {"sizes": [3, 3, 3, 3]}
    (tmp_path / "score.json").write_text(json.dumps(score | {name: value}))
    Path("lut.json").write_text(json.dumps(PRICES))
    assert "score.json" in refused(*FRONTIER, f"--score={tmp_path / 'score.json'}")


def test_networks_cheaper_than_nothing_are_neither_shown_nor_proven(sartor, fitted, monkeypatch):
    monkeypatch.chdir(fitted)
    Path("lut.json").write_text(json.dumps(PRICES | {"constant": -4}))
    code, out, err = sartor(*FRONTIER)
    assert code == 0, err
    assert "proven" not in out
    assert "1 left out: their lat comes to less than zero" in out
    found = json.loads(Path("f.json").read_text())
    assert not found["complete"]
    assert found["points"]
    assert all(point["costs"]["lat"] >= 0 for point in found["points"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["a"]}, "labels must be 3"),
        ({"labels": ["a", "b"], "task": None}, "2 labels do not fit"),
        ({"image": None}, "image is missing"),
        ({"image": -3}, "image must be 1 to"),
        ([], "must be a JSON object"),
    ],
    ids=["few labels", "few labels, old run", "no image", "image", "list"],
)
def test_predict_refuses_a_preprocessing_that_is_none(refused, mine, tmp_path, changes, message):
    file, name = mine / "model/preprocessing.json", "model/preprocessing.json"
    data = json.loads(file.read_text()) | dict(changes)
    write_json(file, {k: v for k, v in data.items() if v is not None} if changes else [data])
    stages = json.loads((mine / "stages.json").read_text())
    stages["export"]["files"][name] = sha256(file)  # as one who means it would
    write_json(mine / "stages.json", stages)
    Image.new("L", (8, 8)).save(tmp_path / "x.png")
    assert message in refused("predict", mine, "x.png")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.zeros((60, 8, 8), np.uint8)}, "are one plain colour (0 of 255)"),
        ({"classes": np.array(["a", "a", "a"])}, "3 classes are called 'a'"),
    ],
    ids=["black images", "class names"],
)
def test_data_that_nothing_can_be_learnt_from(refused, tmp_path, changes, message):
    x, y = tiny.arrays()
    np.savez(tmp_path / "data.npz", **({"x": x, "y": y} | changes))
    assert message in refused("fit", "data.npz", "--params=1M", "--out=run")
    assert not (tmp_path / "run").exists()
