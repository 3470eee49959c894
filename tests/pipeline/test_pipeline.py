"""The main job from end to end, on images so small that it takes seconds."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

import sartor
from sartor.core.errors import BadInput, Infeasible, RunError
from sartor.core.quadratic import Quadratic
from sartor.core.registry import COSTS
from sartor.costs.base import Measured
from sartor.costs.latency.cost import Latency
from sartor.engine import checkpoint
from sartor.pipeline.cut import Cut
from sartor.pipeline.order import slug
from sartor.runs.directory import Run, read_json, sha256


@pytest.fixture(scope="module")
def result(finished):
    return sartor.load(finished.run)


@pytest.fixture
def mine(finished, tmp_path):
    """A copy to change, or to hold the lock of."""
    return finished.copy(tmp_path / "mine")


def files(folder):
    """Every file with its time and size, but the lock, which every process touches."""
    found = [p for p in folder.rglob("*") if p.is_file() and p.name != ".lock"]
    return {p.relative_to(folder): (p.stat().st_mtime_ns, p.stat().st_size) for p in found}


def again(data, run, **more):
    return sartor.fit(data, out=run, **{**tiny.BUDGETS, **tiny.QUICK, **more})


# what is delivered ------------------------------------------------------------------------------


def test_every_stage_is_listed_and_its_files_are_what_it_wrote(finished):
    run = Run.open(finished.run)
    listed = run.stages()
    assert list(listed) == ["data", "costs", "search", "solve", "train", "export", "verify", "certificate", "report"]
    assert all(run.done(stage) for stage in listed)


def test_the_certificate_says_what_was_asked_delivered_and_proven(finished, result):
    c = result.certificate
    assert c["fits"] is True
    assert set(c["budgets"]) == {"latency", "params"}
    for name, limit in (("latency", 50.0), ("params", 150e3)):
        entry = c["budgets"][name]
        assert entry["limit"] == limit
        assert entry["holds"]
        assert 0 < entry["measured"] <= limit
        assert entry["predicted"] <= limit
    timing = c["budgets"]["latency"]["timing"]
    assert timing["low"] <= timing["p50"] <= timing["high"]
    assert timing["p50"] <= timing["p95"]
    assert set(c["costs"]) == {"latency", "macs", "memory", "params"}
    assert c["score"]["proven_optimal"]
    assert c["score"]["gap"] <= 1e-6 * abs(c["score"]["value"])
    assert c["ranking"]["networks"] == tiny.QUICK["method"]["held_out"]
    for name in ("kendall", "spearman"):
        assert -1 <= c["ranking"][name]["low"] <= c["ranking"][name]["high"] <= 1
    assert 0 <= c["accuracy"]["test"] <= 100
    assert c["accuracy"]["test_images"] == 9
    assert c["data"]["train"] + c["data"]["validation"] + c["accuracy"]["test_images"] == 60
    assert c["weights"]["model/model.onnx"] == sha256(finished.run / "model/model.onnx")
    assert c["seed"] == 0
    assert c["environment"]["packages"]["torch"]
    assert c["code"]["sha256"]


def test_counted_costs_are_those_of_the_delivered_network(result):
    costs = result.certificate["costs"]
    count = sum(p.numel() for p in result.model.parameters())
    assert costs["params"]["measured"] == costs["params"]["predicted"] == count
    assert costs["macs"]["measured"] == costs["macs"]["predicted"]


def test_the_chosen_network_is_the_best_of_the_frontier_inside_the_budgets(finished, result):
    data = read_json(finished.run / "frontier.json")
    score = Quadratic.from_json(read_json(finished.run / "score.json")["score"])
    best = result.certificate["score"]["value"]
    assert score(result.arch) == pytest.approx(best)
    inside = [s for s, p in zip(data["score"], data["costs"]["params"], strict=True) if p <= 150e3]
    assert max(inside) <= best + 1e-9
    assert np.all(np.diff(data["cost"]) > 0)
    assert np.all(np.diff(data["score"]) > 0)
    assert len(result.frontier) == len(data["strings"])
    assert score.batch(result.frontier.picks) == pytest.approx(np.array(data["score"]))


def test_the_model_gives_the_onnx_files_logits(finished, result):
    from sartor.deploy.export import OnnxModel

    x, _ = tiny.arrays(12, seed=5)
    pixels = x[:, None].astype(np.float32)
    preprocessing = read_json(finished.run / "model/preprocessing.json")["normalisation"]
    normalised = (torch.from_numpy(pixels) - preprocessing["mean"][0]) / preprocessing["std"][0]
    with torch.no_grad():
        mine = result.model(normalised).numpy()
    assert np.ptp(mine) > 1e-3
    np.testing.assert_allclose(OnnxModel(finished.run / "model/model.onnx").logits(pixels), mine, atol=1e-4, rtol=1e-4)


def test_reported_accuracy_is_that_of_the_exported_model(finished, result):
    x, y = tiny.arrays()
    test = read_json(finished.run / "splits.json")["test"]
    labels = [p["label"] for p in result.predict(x[test][:, None])]
    right = np.mean([label == tiny.CLASSES[k] for label, k in zip(labels, y[test], strict=True)])
    assert result.certificate["accuracy"]["test"] == pytest.approx(100 * right)


def test_predictions_of_arrays_and_files_agree_and_are_probabilities(result, tmp_path):
    x, _ = tiny.arrays(5, seed=7)
    names = [tmp_path / f"größe {n}.png" for n in range(5)]
    for name, pixels in zip(names, x, strict=True):
        Image.fromarray(pixels).save(name)
    from_arrays, from_files = result.predict(x[:, None]), result.predict(names)
    for a, b in zip(from_arrays, from_files, strict=True):
        assert a["label"] == b["label"] == next(iter(a["probabilities"]))
        assert set(a["probabilities"]) == set(tiny.CLASSES) == set(result.labels)
        assert sum(a["probabilities"].values()) == pytest.approx(1, abs=1e-5)
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)
        assert list(a["probabilities"].values()) == sorted(a["probabilities"].values(), reverse=True)
    assert result.predict(str(names[0])) == from_files[:1]
    assert result.predict([]) == []


@pytest.mark.parametrize(
    "images",
    [np.zeros((1, 3, 8, 8)), np.zeros((8, 8)), np.zeros((1, 1, 9, 9)), np.full((1, 1, 8, 8), -5.0),
     np.full((1, 1, 8, 8), np.nan), np.full((1, 1, 8, 8), "a"), ["no such file.png"],
     [Path(__file__).parent]],  # a folder without images
)  # fmt: skip
def test_wrong_images_are_refused(result, images):
    with pytest.raises(BadInput):
        result.predict(images)


def test_a_damaged_image_is_refused_by_name(result, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n nothing")
    with pytest.raises(BadInput, match=r"bad\.png"):
        result.predict([tmp_path / "bad.png"])


def test_inherited_weights_come_from_the_supernet_that_was_searched(finished, result):
    saved = checkpoint.load(finished.run / "search/supernet.safetensors")
    assert result.certificate["accuracy"]["before_fine_tuning"] is not None
    assert saved["head.classifier.weight"].shape[0] == 3


# the same again ---------------------------------------------------------------------------------


def test_the_same_fit_again_recomputes_nothing(finished, mine, capsys):
    before = files(mine)
    found = again(finished.data, mine, quiet=True)
    assert found.arch == sartor.load(finished.run).arch
    assert files(mine) == before
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(" ")]
    assert len(said) == 7
    assert all(line.endswith("done before") for line in said)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"seed": 1}, ["seed: 0 -> 1"]),
        ({"latency": "40ms"}, ["budgets.latency: 50.0 -> 40.0", "sartor solve"]),
        ({"macs": "40M"}, ["budgets.macs: None -> 40000000.0"]),
        ({"train": {**tiny.QUICK["train"], "lr": 0.5}, "threads": 2}, ["train.lr", "threads: 1 -> 2"]),
        ({"method": "random"}, ["method.name: 'binas' -> 'random'"]),
    ],
)
def test_other_options_in_the_same_folder_are_refused_by_name(finished, mine, change, names):
    before = files(mine)
    with pytest.raises(RunError, match="holds a run with other options") as caught:
        again(finished.data, mine, **change)
    assert all(name in str(caught.value) for name in names)
    assert files(mine) == before


def test_changed_data_is_refused(finished, tmp_path):
    data = tmp_path / "bars.npz"
    shutil.copy(finished.data, data)
    tiny.prepare(finished, tiny.given(data, tiny.BUDGETS), tmp_path / "run")
    tiny.npz(tmp_path, seed=9)  # another set of images under the same name
    with pytest.raises(RunError, match=r"bars\.npz has changed"):
        again(data, tmp_path / "run")


@pytest.mark.parametrize("name", ["model/weights.safetensors", "score.json", "costs/latency.json", "solution.json"])
def test_a_tampered_file_is_refused_by_name(finished, mine, name):
    run = mine
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name).write_bytes(content)
    with pytest.raises(RunError, match=name):
        again(finished.data, run)
    loaded = sartor.load(run)
    if name == "model/weights.safetensors":
        for use in (lambda: loaded.model, lambda: loaded.predict([str(run / "x.png")]), lambda: loaded.labels):
            with pytest.raises(RunError, match="has changed"):
                use()
    if name == "solution.json":
        with pytest.raises(RunError, match="has changed"):
            _ = loaded.arch
    if name in ("score.json", "costs/latency.json"):
        with pytest.raises(RunError, match=name):
            sartor.solve(run, params="100K")


def test_a_report_that_was_not_finished_is_made_by_the_same_command(finished, mine):
    (mine / "report.html").unlink()
    again(finished.data, mine)
    assert (mine / "report.html").stat().st_size > 1000


# other budgets ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def solved(finished, tmp_path_factory):
    run = finished.copy(tmp_path_factory.mktemp("solved") / "run")
    before = files(run)
    return run, before, sartor.solve(run, params="60K")


def test_another_budget_searches_nothing_again(solved, finished):
    run, before, found = solved
    after = files(run)
    assert {k: v for k, v in after.items() if k.parts[0] != "cuts"} == before
    assert found.path == run / "cuts/params-60K"
    assert found.certificate["budgets"]["params"]["measured"] <= 60e3
    assert found.certificate["fits"]
    assert set(found.certificate["budgets"]) == {"params"}
    assert found.arch != sartor.load(finished.run).arch
    assert sum(p.numel() for p in found.model.parameters()) <= 60e3
    assert found.predict(tiny.arrays(2)[0][:, None])[0]["label"] in tiny.CLASSES
    assert (found.path / "report.html").is_file()


def test_a_budget_that_ends_at_a_network_which_another_one_has_trained_takes_it_from_there(finished, tmp_path):
    run = finished.copy(tmp_path / "run")
    first = sartor.load(run)
    amount = first.certificate["costs"]["params"]["measured"]
    again = sartor.solve(run, latency="50ms", params=float(amount))
    assert again.path != first.path and again.arch == first.arch
    weights = "model/trained.safetensors"
    assert (again.path / weights).read_bytes() == (run / weights).read_bytes()
    assert not list((again.path / "search").glob("*.checkpoint.safetensors"))  # nothing was trained


def test_the_same_budget_again_recomputes_nothing(solved):
    run, _, found = solved
    before = files(run)
    assert sartor.solve(run, params=60_000).path == found.path
    assert files(run) == before


def test_a_budget_that_differs_in_a_late_digit_is_another_budget():
    def named(**budgets):
        return slug(budgets, {name: COSTS[name] for name in budgets})

    names = {named(latency=v) for v in (3.0, 3.00001, 3.0000000001, 2.9999999)}
    assert len(names) == 4
    assert named(params=2e6, latency=3.0) == "latency-3ms_params-2M"
    assert named(memory=4096.0 * 1000) == "memory-4.096MB"
    assert len({named(params=float(n)) for n in range(2_000_000, 2_000_200)}) == 200


def test_without_a_budget_the_methods_own_selection_decides(finished, tmp_path):
    tiny.prepare(finished, tiny.given(finished.data, {}, method="random"), tmp_path / "run")
    result = sartor.fit(finished.data, out=tmp_path / "run", **{**tiny.QUICK, "method": "random"})
    assert result.certificate["budgets"] == {} and result.certificate["fits"]
    assert set(result.certificate["costs"]) == {"latency", "macs", "memory", "params"}
    assert result.certificate["score"]["value"] == max(result.frontier.score)
    assert "Made without a budget" in (tmp_path / "run" / "report.html").read_text()
    assert sartor.solve(result.path, params=0.9 * result.certificate["costs"]["params"]["measured"]).path != result.path
    with pytest.raises(BadInput, match="a budget is needed"):
        sartor.solve(result.path)


def test_a_space_of_frames_without_shared_weights_is_searched_solved_trained_and_drawn(tmp_path):
    space = {"name": "edge", "widths": [8, 16], "heads": [0]}
    options = {"train": tiny.QUICK["train"], "space": space, "params": "8K", "method": {"name": "random"}}
    result = sartor.fit(tiny.npz(tmp_path), out=tmp_path / "run", **options)
    assert result.certificate["fits"] and result.certificate["score"]["proven_optimal"]
    assert result.certificate["costs"]["params"]["measured"] <= 8000
    words, page = result.certificate["string"], (tmp_path / "run" / "report.html").read_text()
    assert words.startswith(("r6_s1_x3 stem", "r8_s1_x3 stem")) and words.endswith("head0")
    assert words in page and all(title in page for title in ("Stem", "Stage 3", " deep", "wide"))


def test_impossible_budgets_name_the_least_before_anything_is_trained(finished, mine, tmp_path):
    with pytest.raises(Infeasible, match=r"params <= 10 K cannot be met.*needs is \d+(\.\d+)? K"):
        sartor.solve(mine, params="10K")
    assert not (mine / "cuts").exists()
    chosen = tiny.given(finished.data, {"latency": "1us", "params": "1M"})
    tiny.prepare(finished, chosen, tmp_path / "run")
    with pytest.raises(Infeasible, match=r"latency <= 1 us cannot be met: the least .* is [\d.]+ [mu]s"):
        again(finished.data, tmp_path / "run", latency="1us", params="1M")
    assert not (tmp_path / "run/search").exists()
    assert list(Run(tmp_path / "run").stages()) == ["data", "costs"]


def test_a_network_that_measures_over_its_budget_corrects_the_table_and_is_replaced(mine, monkeypatch):
    """The machine is made to look twice as slow as the table says: the answer must still fit as measured."""
    run = mine
    table = json.loads((run / "costs/latency.json").read_text())
    form = Quadratic.from_json(table["form"])
    heavy, least = form(sartor.load(run).arch), form.batch([(0,) * 25])[0]
    budget = (2.2 * least + 1.9 * heavy) / 2
    real, seen = Cut.network, []

    def network(self, arch):
        seen.append(arch)
        return real(self, arch)

    def slow(self, net, in_shape, at):
        return Measured.exact(2 * form(seen[-1]))

    monkeypatch.setattr(Cut, "network", network)
    monkeypatch.setattr(Latency, "measure", slow)
    found = sartor.solve(run, latency=budget)
    c = found.certificate
    assert c["budgets"]["latency"]["measured"] <= budget
    assert c["corrections"], "the first answer must have measured over the budget"
    assert all(entry["measured"] > entry["predicted"] for entry in c["corrections"])
    assert "latency.json" in Run(found.path).stages()["solve"].files
    assert 2 * form(found.arch) <= budget
    assert (run / "costs/latency.json").read_text() == json.dumps(table, indent=1, ensure_ascii=False) + "\n"


def test_a_machine_that_becomes_slower_meanwhile_does_not_make_a_training_worthless(mine, monkeypatch, capsys):
    """The same network is built and measured again: at the speed at which it was chosen it is inside."""
    form = Quadratic.from_json(json.loads((mine / "costs/latency.json").read_text())["form"])
    budget, factor, real, seen = 1.1 * form(sartor.load(mine).arch), {"now": 1.0}, Cut.network, []

    def network(self, arch):
        seen.append(arch)
        return real(self, arch)

    def measure(self, net, in_shape, at):
        if at.file is not None:
            factor["now"] = 1.4  # once it is trained and exported
        value = factor["now"] * form(seen[-1])
        return Measured.exact(value)

    monkeypatch.setattr(Cut, "network", network)
    monkeypatch.setattr(Latency, "measure", measure)
    found = sartor.solve(mine, latency=budget)
    told = found.certificate["budgets"]["latency"]
    assert told["measured"] > budget and told["holds"] and not found.certificate["corrections"]
    assert told["slowed"] == {"before": form(found.arch), "now": 1.4 * form(found.arch)}
    assert "the device has become slower" in (found.path / "log.txt").read_text()
    assert "its device became slower" in (found.path / "report.html").read_text()
    assert sartor.verify(found.path).holds
    path = found.path / "verify.json"
    entry = json.loads(path.read_text())
    entry["costs"]["latency"]["slowed"]["before"] /= 2  # forged: twice as much would be forgiven
    path.write_text(json.dumps(entry))
    wrong = [line.what for line in sartor.verify(found.path).lines if line.state == "differs"]
    assert any("before its training" in what for what in wrong)


# opening ----------------------------------------------------------------------------------------


def test_what_is_no_finished_run_is_refused(tmp_path, finished):
    with pytest.raises(RunError, match="no such folder"):
        sartor.load(tmp_path / "none")
    with pytest.raises(RunError, match="no finished network"):
        sartor.load(tmp_path)
    tiny.prepare(finished, tiny.given(finished.data, tiny.BUDGETS), tmp_path / "run")
    with pytest.raises(RunError, match="no finished network"):
        sartor.load(tmp_path / "run")
    with pytest.raises(RunError, match="no finished search"):
        sartor.solve(tmp_path / "run", params="100K")


@pytest.mark.parametrize(
    ("content", "message"),
    [("nonsense", "TOML"), ("seed = 3", "needs data"), ("", "needs data"), ('data = "x"\nbudgets = 3', "budgets"),
     ('data = "x"\ncolour = 3\n[budgets]\nparams = 3.0', "no option colour")],
)  # fmt: skip
def test_a_strange_config_is_refused(tmp_path, content, message):
    (tmp_path / "config.toml").write_text(content)
    with pytest.raises(BadInput, match=message):
        sartor.solve(tmp_path, params="100K")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"latency": "20"}, "has no unit"),
        ({"params": -5}, "greater than zero"),
        ({"params": "1M", "method": "magic"}, "no method named 'magic'"),
        ({"params": "1M", "space": "outer"}, "no space named 'outer'"),
        ({"params": "1M", "method": {"passes": 3}}, "method has no option passes"),
        ({"params": "1M", "effort": "heroic"}, "quick, standard, thorough"),
        ({"params": "1M", "threads": 0}, "threads must be at least 1"),
        ({"params": "1M", "seed": -1}, "seed at least 0"),
        ({"params": "1M", "devices": 0}, "devices"),
        ({"params": "1M", "image": 3}, "image side"),
        ({"params": "1M", "val": 0.9}, "val"),
        ({"params": "1M", "method": {"name": "binas", "held_out": 1}}, "held_out"),
        ({"params": "1M", "train": {"lr": -1.0}}, "lr"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(finished, tmp_path, options, message):
    with pytest.raises(BadInput, match=message):
        sartor.fit(finished.data, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_an_option_that_there_is_not_is_refused_as_python_does(finished, tmp_path):
    with pytest.raises(TypeError, match="colour"):
        sartor.fit(finished.data, out=tmp_path / "run", params="1M", colour="red")
    assert not (tmp_path / "run").exists()


def test_without_a_name_the_run_goes_into_a_folder_of_its_own(tmp_path, monkeypatch):
    from sartor.pipeline.options import default_folder

    monkeypatch.chdir(tmp_path)
    assert default_folder("photos/") == default_folder("x/photos") == default_folder("photos")
    assert default_folder("..").resolve().parent == tmp_path / "runs"
    assert default_folder(".").name == tmp_path.name
    assert os.fspath(default_folder("/")) == os.path.join("runs", "run")


def test_a_result_explains_its_score(result):
    why = result.explain()
    prices = [line["price"] for line in why["shadow_prices"]]
    assert len(prices) == len(result.frontier) - 1 and prices == sorted(prices, reverse=True) and min(prices) > 0
    assert why["errors_known"]
    assert {d["choice"] for d in why["decisions"]} >= {"stage1.depth", "stage5.block4"}
    assert set(why["cost_units"]) == {"latency", "macs", "memory", "params"}
