import csv
import gzip
import importlib.util
import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sartor.cli.tables import app
from sartor.core.errors import BadInput, Infeasible
from sartor.predictors.bilinear import Bilinear
from sartor.predictors.features import Features, linear_terms
from sartor.predictors.quadratic import FullQuadratic
from sartor.tables.files import choices_from, cost_from, read_cost, read_samples, read_score, read_space, write_score
from sartor.tables.fit import check_tables, fit_tables, frontier_tables, limits_from, open_costs

SPACE = """
[[choices]]
name = "depth"
options = [2, 3]

[[choices]]
name = "block1"
options = ["e3_k3", "e3_k5", "e6_k3", "e6_k5"]

[[choices]]
name = "block3"
options = ["e3_k3", "e3_k5", "e6_k3", "e6_k5"]
active_when = {"depth" = [3]}
"""
PRICES = {"e3_k3": 1.0, "e3_k5": 1.5, "e6_k3": 2.0, "e6_k5": 3.0}
COST = {"unit": "ms", "constant": 0.5, "options": {"block1": PRICES, "block3": PRICES}}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    (tmp_path / "lut.json").write_text(json.dumps(COST))
    choices = read_space(tmp_path / "space.toml")
    features = Features((2, 4, 4), tuple(linear_terms(choices)))
    truth = features.quadratic(70.0, np.arange(10.0))
    networks = [(d, a, b) for d in range(2) for a in range(4) for b in range(4) if d or b == 0]
    write(tmp_path / "samples.csv", choices, networks, truth.batch(networks))
    return tmp_path


def write(path, choices, networks, values):
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*(c.name for c in choices), "note", "top1"])
        for picks, value in zip(networks, values, strict=True):
            labels = [c.options[p] for c, p in zip(choices, picks, strict=True)]
            table.writerow([*labels[:2], labels[2] if picks[0] else "", "x", value])


def test_space_and_samples_are_read(folder):
    choices = read_space(folder / "space.toml")
    assert choices[0].options == ("2", "3")
    assert choices[2].needs == ((0, (1,)),)
    samples = read_samples(folder / "samples.csv", choices, "top1")
    assert len(samples) == 20
    assert samples.picks[0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "must list its choices"),
        ("[[choices]]\nname = 'a'", "must list its options"),
        ("[[choices]]\nname = 'a'\noptions = ['x', 'x']", "must be different"),
        ("[[choices]]\nname = 'a'\noptions = ['x']\n[[choices]]\nname = 'a'\noptions = ['x']", "name of its own"),
        ("[[choices]]\nname = 'a'\noptions = ['x']\nactive_when = {b = ['x']}", "no other choice"),
        ("[[choices]]\nname = 'a'\noptions = ['x']\nwhen = 3", "no field 'when'"),
        (SPACE + "active_when = 3", "not valid TOML"),
        (SPACE.replace("[3]}", "[7]}"), "no option '7'"),
        (SPACE.replace('{"depth" = [3]}', "3"), "active_when of block3 must be"),
    ],
)
def test_bad_spaces(tmp_path, text, message):
    (tmp_path / "space.toml").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_space(tmp_path / "space.toml")
    with pytest.raises(BadInput, match="readable file"):
        read_space(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("depth,block1,top1\n2,e3_k3,1", "lacks block3"),
        ("depth,block1,block3,acc\n2,e3_k3,,1", "no target column 'top1'.*it has acc|besides the choices it has acc"),
        ("depth,block1,block3,top1\n2,e9,,1", "line 2: block1 has no option 'e9'; it has e3_k3, e3_k5, e6_k3, e6_k5"),
        ("depth,block1,block3,top1\n3,e3_k3,,1", "block3 is empty, but active with depth = 3"),
        ("depth,block1,block3,top1\n2,,,1", "block1 is empty, but needed"),
        ("depth,block1,block3,top1\n2,e3_k3,e3_k3,1", "block3 is 'e3_k3', but inactive with depth = 2"),
        ("depth,block1,block3,top1\n2,e3_k3,,much", "top1 must be a number, but is 'much'"),
        ("depth,block1,block3,top1\n2,e3_k3,,nan", "top1 must be a number"),
        ("depth,block1,block3,top1\n2,e3_k3,,1\n2,e3_k3,,2", "lines 2 and 3 are the same network"),
        ("depth,block1,block3,top1\n2,e3_k3,,1,7", "line 2 must have 4 cells"),
        ("depth,block1,block3,top1\n2,e3_k3", "line 2 must have 4 cells"),
        ("depth,block1,block3,top1,top1\n2,e3_k3,,1,7", "has 'top1' twice"),
        (f"depth,block1,block3,top1\n2,e3_k3,{'x' * 140_000},1", "this is no CSV: field larger"),
    ],
)
def test_bad_samples(folder, rows, message):
    (folder / "bad.csv").write_text(rows)
    with pytest.raises(BadInput, match=message):
        read_samples(folder / "bad.csv", read_space(folder / "space.toml"), "top1")


def test_a_broken_gzip_is_refused(folder):
    choices, packed = read_space(folder / "space.toml"), bytearray(gzip.compress((folder / "samples.csv").read_bytes()))
    for place in range(10, len(packed), 7):
        packed[place] ^= 0xFF
        (folder / "s.csv.gz").write_bytes(packed)
        with pytest.raises(BadInput, match=r"s\.csv\.gz"):
            read_samples(folder / "s.csv.gz", choices, "top1")
        packed[place] ^= 0xFF


def test_repeated_measurements_are_averaged_on_request(folder):
    choices = read_space(folder / "space.toml")
    (folder / "twice.csv").write_text("depth,block1,block3,top1\n2,e3_k3,,1\n2,e3_k3,,2\n2,e6_k3,,5\n2,e6_k3,,5\n")
    assert read_samples(folder / "twice.csv", choices, "top1", repeats="mean").values.tolist() == [1.5, 5.0]


def test_cost_is_due_only_while_active(folder):
    choices = read_space(folder / "space.toml")
    cost = read_cost(folder / "lut.json", choices, "latency")
    assert cost.kind == "time"
    np.testing.assert_allclose(cost.form.batch([[0, 0, 3], [1, 0, 3]]), [1.5, 4.5])
    seconds = cost_from({**COST, "unit": "s"}, choices, "latency")
    np.testing.assert_allclose(seconds.form.batch([[1, 0, 3]]), [4500.0])
    pair = {"choices": ["depth", "block3"], "table": {"3": PRICES}}
    paired = cost_from({"unit": "ms", "constant": 0.5, "options": {"block1": PRICES}, "pairs": [pair]}, choices, "x")
    every = [[d, a, b] for d in range(2) for a in range(4) for b in range(4)]
    np.testing.assert_allclose(paired.form.batch(every), cost.form.batch(every))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unit": "parsec"}, "must be one of us"),
        ({"price": {}}, "no field 'price'"),
        ({"options": {"block1": {"e3_k3": 1.0}}}, "block1 has options without a price: e3_k5, e6_k3, e6_k5"),
        ({"options": {"block1": {**PRICES, "e9": 1.0}}}, "block1 has no option 'e9'"),
        ({"options": {"blok": PRICES}}, "'blok', which is no choice"),
        ({"options": {"block1": {**PRICES, "e3_k3": "3 ms"}}}, "must be a number in the file's unit"),
        ({"pairs": [{"choices": ["depth"], "table": {}}]}, "must name two choices"),
        ({"pairs": [{"choices": ["depth", "block1"], "table": {"3": PRICES}}]}, "without a price: 2"),
        ({"pairs": [{"choices": ["depth", "block3"], "table": {"9": PRICES, "3": PRICES}}]}, "no option '9'"),
    ],
)
def test_bad_costs(folder, change, message):
    with pytest.raises(BadInput, match=message):
        cost_from({**COST, **change}, read_space(folder / "space.toml"), "latency")


def test_fit_frontier_and_check_recover_a_planted_score(folder):
    choices = read_space(folder / "space.toml")
    samples = read_samples(folder / "samples.csv", choices, "top1")
    score = fit_tables(choices, samples, predictor="linear", scale="value")
    assert check_tables(choices, score, samples)["kendall"]["value"] > 0.95
    write_score(folder / "score.json", score, choices)
    again = read_score(folder / "score.json", choices)
    assert again.form.to_json() == score.form.to_json()
    costs = open_costs([f"latency={folder}/lut.json"], choices)
    points = frontier_tables(choices, again, costs)
    assert points.complete
    named = points.to_json(choices, again, costs)["points"]
    assert named[0]["arch"] == {"depth": "2", "block1": "e3_k3"}
    assert named[-1]["arch"] == {"depth": "3", "block1": "e6_k5", "block3": "e6_k5"}
    limited = frontier_tables(choices, again, costs, limits_from(["latency=3000us"], costs))
    assert limited.front.cost.max() <= 3.0
    with pytest.raises(Infeasible, match=r"latency <= 1 ms cannot be met: the least .* 1.5 ms"):
        frontier_tables(choices, again, costs, limits_from(["latency=1ms"], costs))


def test_too_little_to_fit(folder):
    choices = read_space(folder / "space.toml")
    samples = read_samples(folder / "samples.csv", choices, "top1")
    few = type(samples)(samples.picks[:5], samples.values[:5], "top1")
    with pytest.raises(BadInput, match="5 different networks are too few"):
        fit_tables(choices, few)
    with pytest.raises(BadInput, match="no predictor named 'magic'; available: bilinear, linear, quadratic"):
        fit_tables(choices, samples, predictor="magic")
    with pytest.raises(BadInput, match="scale must be"):
        fit_tables(choices, samples, scale="log")
    with pytest.raises(BadInput, match="at least 3"):
        check_tables(choices, fit_tables(choices, samples), type(samples)(samples.picks[:2], samples.values[:2], "t"))


def test_options_that_no_network_has_are_guessed_with_a_wide_error_and_named(tmp_path):
    """Kernel 5 and expansion 6 are worth alike in all blocks: what was not seen in one is known from the others."""
    rng = np.random.default_rng(0)
    labels = [f"e{e}_k{k}" for e in (3, 4, 6) for k in (3, 5)]
    space = "".join(f'[[choices]]\nname = "s{i // 2}.block{i % 2}"\noptions = {labels}\n' for i in range(6))
    (tmp_path / "space.toml").write_text(space)
    choices = read_space(tmp_path / "space.toml")
    worth = np.array([0.0, 1.0, 0.5, 1.5, 2.0, 3.0])  # and a little of every block's own
    features = Features((6,) * 6, tuple(linear_terms(choices)))
    truth = features.quadratic(70.0, np.concatenate([worth + 0.1 * rng.normal(size=6) for _ in range(6)]))
    picks = rng.integers(6, size=(1000, 6))
    values = truth.batch(picks) + 0.2 * rng.normal(size=len(picks))
    seen = (picks[:, 2] != 5) & (picks[:, 4] != 0)
    with open(tmp_path / "samples.csv", "w", newline="") as file:
        rows = [[choices[i].options[p] for i, p in enumerate(row)] for row in picks[seen][:100]]
        csv.writer(file).writerows([[*(c.name for c in choices), "top1"]])
        csv.writer(file).writerows([[*row, value] for row, value in zip(rows, values[seen][:100], strict=True)])
    files = ("--space", tmp_path / "space.toml", "--samples", tmp_path / "samples.csv", "--target", "top1")
    out = run("fit", *files, "--scale", "value", "--out", tmp_path / "score.json")
    assert "no network has s1.block0 = e6_k5, s2.block0 = e3_k3" in out
    score = read_score(tmp_path / "score.json", choices)
    assert score.facts["unseen"] == ["s1.block0 = e6_k5", "s2.block0 = e3_k3"]
    assert score.facts["predictor"] == "linear"
    assert int(score.form.linear[2].argmax()) == 5  # not the mean of its choice, which least squares alone would say
    assert int(score.form.linear[4].argmin()) == 0
    errors = score.form.errors.linear
    assert errors[2][5] > 1.5 * errors[2][:5].max()
    for choice, option in ((2, 5), (4, 0)):
        others = np.delete(worth, option).mean()
        assert abs(score.form.linear[choice][option] - (worth[option] - others)) < 3 * errors[choice][option]
    assert check_tables(choices, score, _samples(picks, values))["kendall"]["value"] > 0.85
    # the others guess as well; they have no errors
    samples = read_samples(tmp_path / "samples.csv", choices, "top1")
    for predictor in (FullQuadratic(), Bilinear(hubs=("s0.block0",))):
        guessed = fit_tables(choices, samples, predictor=predictor, scale="value").form
        for choice, option in ((2, 5), (4, 0)):
            around = np.tile(picks[:300], (6, 1))
            around[:, choice] = np.repeat(np.arange(6), 300)
            mean = guessed.batch(around).reshape(6, 300).mean(1)  # over the other choices
            assert (
                abs(mean[option] - np.delete(mean, option).mean() - worth[option] + np.delete(worth, option).mean())
                < 0.7
            )


def test_ranks_withstand_networks_that_failed():
    """A tenth of the networks did not train: their values say little about the others."""
    rng = np.random.default_rng(0)
    choices = choices_from({"choices": [{"name": f"c{i}", "options": list("abcd")} for i in range(5)]})
    truth = Features((4,) * 5, tuple(linear_terms(choices))).quadratic(90.0, rng.normal(size=20))
    picks = np.unique(rng.integers(4, size=(700, 5)), axis=0)
    values = np.where(rng.random(len(picks)) < 0.1, 10.0, truth.batch(picks))
    samples = _samples(picks[::2], values[::2])
    score = fit_tables(choices, samples)
    assert score.facts["fitted_to"] == "rank"
    kendall = {k: v["kendall"]["value"] for k, v in score.facts["held_out"].items()}
    assert kendall["linear, rank"] > kendall["linear, value"] + 0.1
    held = score.values(picks[1::2])
    assert (np.diff(held[np.argsort(score.form.batch(picks[1::2]))]) >= 0).all()
    assert 10 <= held.min() <= held.max() <= values.max()
    assert fit_tables(choices, samples, unit="ms").facts["fitted_to"] == "value"


def _samples(picks, values):
    from sartor.tables.fit import Samples

    return Samples(picks, values, "top1")


def test_a_large_space_with_two_limits_is_swept():
    rng = np.random.default_rng(0)
    data = {"choices": [{"name": f"c{i}", "options": list("abcde")} for i in range(12)]}
    choices = choices_from(data)
    truth = Features((5,) * 12, tuple(linear_terms(choices))).quadratic(90.0, rng.normal(size=60))
    from sartor.tables.fit import Score

    tables = [{c.name: dict(zip(c.options, rng.gamma(3, 1, 5), strict=True)) for c in choices} for _ in range(2)]
    costs = {
        "latency": cost_from({"unit": "ms", "options": tables[0]}, choices, "latency"),
        "params": cost_from({"unit": "M", "options": tables[1]}, choices, "params"),
    }
    points = frontier_tables(choices, Score(truth, "top1", "", {}), costs, limits_from(["params=30M"], costs))
    assert points.axis == "latency"
    assert not points.complete
    assert len(points.front) > 10
    assert (costs["params"].form.batch(points.front.picks) <= 30e6).all()
    assert (np.diff(points.front.cost) > 0).all()
    with pytest.raises(BadInput, match="add --cost memory"):
        limits_from(["memory=3MB"], costs)
    with pytest.raises(BadInput, match="has no unit"):
        limits_from(["latency=3"], costs)


def test_a_score_for_another_space_is_refused(folder):
    choices = read_space(folder / "space.toml")
    write_score(
        folder / "score.json", fit_tables(choices, read_samples(folder / "samples.csv", choices, "top1")), choices
    )
    (folder / "space.toml").write_text(SPACE.replace("e6_k5", "e6_k7"))
    with pytest.raises(BadInput, match="another space"):
        read_score(folder / "score.json", read_space(folder / "space.toml"))
    with pytest.raises(BadInput, match="written by `sartor tables fit`"):
        read_score(folder / "lut.json", choices)


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if isinstance(result.exception, BadInput):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_command_line(folder):
    space, samples = ("--space", folder / "space.toml"), ("--samples", folder / "samples.csv", "--target", "top1")
    out = run("fit", *space, *samples, "--predictor", "linear", "--out", folder / "score.json")
    assert "written to" in out
    found = json.loads(run("check", *space, "--score", folder / "score.json", *samples, "--json"))
    assert found["networks"] == 20
    assert found["kendall"]["low"] <= found["kendall"]["value"] <= found["kendall"]["high"]
    cost = ("--cost", f"latency={folder}/lut.json", "--limit", "latency=4ms")
    data = json.loads(
        run("frontier", *space, "--score", folder / "score.json", *cost, "--out", folder / "frontier.json", "--json")
    )
    assert data == json.loads((folder / "frontier.json").read_text())
    assert all(p["costs"]["latency"] <= 4 for p in data["points"])
    whole = json.loads(run("fit", *space, *samples, "--predictor", "quadratic", "--set", "inactive=true", "--out",
                           folder / "whole.json", "--json"))  # fmt: skip
    assert whole["options"] == {"inactive": True}
    assert read_score(folder / "whole.json", read_space(folder / "space.toml")).form.pairs.keys() == {
        (0, 1),
        (0, 2),
        (1, 2),
    }
    with pytest.raises(BadInput, match="no option inactiv"):
        run("fit", *space, *samples, "--predictor", "quadratic", "--set", "inactiv=true", "--out", folder / "x.json")
    with pytest.raises(BadInput, match="name it instead of auto"):
        run("fit", *space, *samples, "--set", "inactive=true", "--out", folder / "x.json")
    with pytest.raises(BadInput, match="name=FILE"):
        run("frontier", *space, "--score", folder / "score.json", "--cost", "lut.json", "--out", folder / "x.json")
    ranked = folder / "ranked.json"
    run("fit", *space, *samples, "--scale", "rank", "--out", ranked)
    with pytest.raises(BadInput, match="fitted to ranks"):
        run("frontier", *space, "--score", ranked, "--cost", f"latency={ranked}", "--out", folder / "x.json")


def test_nasbench201(tmp_path):
    """500 random cells rank the other 15,125; the frontier holds against a device's fitted latency."""
    path = Path(__file__).parents[2] / "examples/tables_nasbench201.py"
    spec = importlib.util.spec_from_file_location("tables_nasbench201", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    root = example.data_folder()
    if root is None:
        pytest.skip("needs the NAS-Bench-201 tables: set SARTOR_TEST_DATA to the folder that holds nasbench201.")
    example.convert(root, tmp_path)
    choices = read_space(tmp_path / "space.toml")
    score = fit_tables(choices, read_samples(tmp_path / "samples.csv", choices, "top1"), predictor="quadratic")
    held_out = read_samples(tmp_path / "held_out.csv", choices, "top1")
    assert len(held_out) == 15_125
    found = check_tables(choices, score, held_out)
    assert found["kendall"]["value"] > 0.65
    assert found["spearman"]["value"] > 0.85
    costs = open_costs([f"params={tmp_path}/params.json"], choices)
    points = frontier_tables(choices, score, costs)
    assert points.complete
    assert points.front.cost[0] == 73_306
    assert math.isclose(costs["params"].form.batch([[3] * 6])[0], 73_306 + 6 * 243_040)


def test_a_predictor_of_ones_own(folder, monkeypatch):
    (folder / "mean_of_all.py").write_text(
        "from dataclasses import dataclass\n"
        "from sartor.core.quadratic import Quadratic\n"
        "from sartor.predictors.base import Predictor\n\n\n"
        "@dataclass(frozen=True)\n"
        "class Mean(Predictor):\n"
        "    def fit(self, picks, targets, choices, rng):\n"
        "        return Quadratic(tuple(len(c.options) for c in choices), float(targets.mean()))\n"
    )
    monkeypatch.chdir(folder)
    files = ("--space", "space.toml", "--samples", "samples.csv", "--target", "top1", "--out", "score.json")
    run("fit", *files, "--predictor", "mean_of_all:Mean", "--scale", "value")
    choices = read_space(folder / "space.toml")
    samples, score = read_samples(folder / "samples.csv", choices, "top1"), read_score(folder / "score.json", choices)
    assert score.facts["predictor"] == "mean_of_all:Mean"
    np.testing.assert_allclose(score.form.batch(samples.picks), samples.values.mean())
