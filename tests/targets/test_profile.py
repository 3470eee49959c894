"""Devices that are not there, by their profiles; and how targets are named."""

import json
import sys
from dataclasses import replace

import pytest
import tiny
from own import Own

import sartor
from sartor.cli.options import by_target
from sartor.core.errors import BadInput, MissingDependency, RunError
from sartor.core.task import Task
from sartor.costs.latency.cost import Latency
from sartor.pipeline import context, options
from sartor.pipeline import order as pipeline
from sartor.runs.directory import read_json, write_json
from sartor.runs.progress import Reporter

LIMIT = {"latency": "50ms"}
BOTH = {"laptop": "local", "pi": "ssh://pi"}


@pytest.fixture(scope="module")
def offline(finished, tmp_path_factory):
    """A run for a device that is known by its profile."""
    folder = tmp_path_factory.mktemp("offline")
    table = read_json(finished.run / "costs/latency.json")
    book = {"format": 1, "identity": table["device"], "unit": "ms", "reference_ms": 1.0, "prices": {}, "fits": {}}
    write_json(folder / "board.json", {**table, "profile": book})
    chosen = tiny.given(finished.data, LIMIT, method="random", target=str(folder / "board.json"))
    tiny.prepare(finished, chosen, folder / "run")
    pipeline.fit(chosen, folder / "run", Reporter(silent=True))
    return folder


def test_what_a_profile_decides_says_that_it_was_not_measured(offline):
    run = offline / "run"
    entry = json.loads((run / "certificate.json").read_text())["budgets"]["latency"]
    assert entry["on_device"] is False
    assert entry["holds"]
    assert entry["measured"] == entry["predicted"]
    assert "not verified on its device" in (run / "report.html").read_text()
    lines = {line.what: line.state for line in sartor.verify(run, here=True).lines}
    assert lines["latency on its device"] == "cannot be checked"
    assert "differs" not in lines.values()


def test_when_the_device_is_back_its_network_is_verified_on_it(offline, monkeypatch):
    run = offline / "run"
    result = sartor.solve(run, **LIMIT, target="local", quiet=True)
    entry = result.certificate["budgets"]["latency"]
    assert entry["on_device"] is True
    assert entry["timing"]["n"] > 0
    before = json.loads((run / "solution.json").read_text())["solution"]["picks"]
    assert result.certificate["files"]  # a certificate of its own
    assert list(result.arch.picks) == before  # the profile had decided alike
    table = read_json(run / "costs/latency.json")
    monkeypatch.setattr(Latency, "identity", lambda self: {**table["device"], "processor": "another"})
    with pytest.raises(RunError, match="not the device that latency was priced on: processor another"):
        sartor.solve(run, latency="49ms", target="local", quiet=True)


EARLY = [
    ({"runtime": "openvino"}, MissingDependency, r"sartor\[openvino\]"),
    ({"target": "none.json"}, BadInput, "there is no such file"),
    ({"target": "pi4.jsn"}, BadInput, "a profile FILE.json"),
    ({"target": "ssh://127.0.0.1", "runtime": "litert"}, BadInput, "add --runtime onnxruntime"),
    ({"target": "ssh://127.0.0.1:1"}, BadInput, "must be reachable"),
    (
        {"target": {"here": "local", "pi": "ssh://127.0.0.1:1"}, "budgets": {"latency": {"pi": "5ms"}}},
        BadInput,
        "reach",
    ),
]


@pytest.mark.parametrize(("given", "kind", "words"), EARLY)
def test_what_cannot_be_deployed_is_refused_before_an_image_is_read(given, kind, words, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.setattr(context, "read_images", lambda *images: pytest.fail("images are read"))
    with pytest.raises(kind, match=words):
        pipeline.fit(options.from_mapping({"data": "digits", "budgets": {"params": "10K"}, **given}), tmp_path / "run")


def test_a_profile_serves_what_was_measured_and_nothing_else(tmp_path):
    cost = Latency(rounds=3, visit_ms=0.0, networks=1)
    table = cost.table(Own(), Task(3, 8, 1), cache=tmp_path)
    write_json(tmp_path / "board.json", {**table.to_json(), **cost.profile(tmp_path)})
    away = replace(cost, target=str(tmp_path / "board.json"))
    assert not away.live
    assert away.table(Own(), Task(3, 8, 1)).to_json() == table.to_json()
    with pytest.raises(BadInput, match=r"of the \d+ prices .*sartor measure --target .*--classes 4 --image 8"):
        away.table(Own(), Task(4, 8, 1))
    with pytest.raises(BadInput, match="was measured with threads 1"):
        replace(away, threads=2).identity()
    with pytest.raises(BadInput, match="nothing can be timed on it now"):
        away.time(Own().network(Own().heaviest, Task(3, 8, 1)), (1, 8, 8))
    asked = {"data": "digits", "budgets": {"latency": "5ms"}, "target": away.target}
    options.from_mapping(asked).check_deployment()
    with pytest.raises(BadInput, match="its profile was measured without --precision int8"):
        options.from_mapping({**asked, "precision": "int8"}).check_deployment()
    with pytest.raises(BadInput, match="but there is no such file"):
        replace(away, target="none.json").identity()
    for text in ("{}", '{"profile": 1}', "["):
        (tmp_path / "board.json").write_text(text)
        with pytest.raises(BadInput, match="must be a device profile, but is none"):
            away.identity()


@pytest.mark.parametrize(
    "values, message",
    [
        ({"budgets": {"latency": {"pi": "5ms"}}}, "needs a target named pi: add --target pi=ssh"),
        ({"budgets": {"params": {"pi": "5M"}}, "target": {"pi": "local"}}, "params is the same at every target"),
        ({"target": {"a b": "local"}}, "must be ADDRESS or NAME=ADDRESS"),
        ({"target": {"pi": 3}}, "must be ADDRESS or NAME=ADDRESS"),
        ({"target": {"../pi": "local"}}, "must be ADDRESS or NAME=ADDRESS"),
        ({"budgets": {"latency": "5ms"}, "target": BOTH}, "must say at which of the targets laptop, pi it holds"),
        ({"budgets": {"params": "5M"}, "target": BOTH}, "nothing is measured at the targets laptop, pi"),
    ],
)
def test_targets_that_mean_nothing_are_refused(values, message):
    with pytest.raises(BadInput, match=message):
        options.from_mapping({"data": "digits", **values})


ADDRESSED = [
    # budgets, targets: every measured cost with its target, and that of what has no name
    ({"latency": "5ms"}, {"pi": "ssh://pi"}, {"latency": "ssh://pi"}, "ssh://pi"),
    ({"latency": {"pi": "5ms"}}, {"pi": "ssh://pi"}, {"latency@pi": "ssh://pi"}, "ssh://pi"),
    ({"params": "5M"}, {"pi": "ssh://pi"}, {}, "ssh://pi"),
    ({"latency": {"laptop": "5ms"}}, BOTH, {"latency@laptop": "local", "latency@pi": "ssh://pi"}, "local"),
    ({"latency": "5ms"}, {"": "local", "pi": "ssh://pi"}, {"latency": "local", "latency@pi": "ssh://pi"}, "local"),
]


@pytest.mark.parametrize(("budgets", "targets", "measured", "usual"), ADDRESSED)
def test_every_target_is_measured_and_a_single_one_is_meant_by_all(budgets, targets, measured, usual):
    made = options.from_mapping({"data": "digits", "budgets": budgets, "target": targets})
    assert {n: c.target for n, c in made.made_costs().items() if hasattr(c, "target")} == measured
    assert made.target == usual
    assert set(made.budgets) <= {*measured, "params"}


def test_a_cost_that_is_asked_for_is_measured_at_every_target_with_its_options():
    given = {"data": "digits", "target": BOTH, "costs": {"latency": {"rounds": 4}, "latency@pi": {"rounds": 5}}}
    made = options.from_mapping(given).made_costs()
    assert {n: c.rounds for n, c in made.items() if "latency" in n} == {"latency@laptop": 4, "latency@pi": 5}


def test_the_targets_of_a_run_that_is_there():
    plug = options.Plug("latency")
    both, one = {"latency@laptop": plug, "latency@pi": plug}, {"latency": plug}
    at = {n: p.options.get("target") for n, p in options.at_new_targets(both, {"pi": "local"}).items()}
    assert at == {"latency@laptop": None, "latency@pi": "local"}
    assert options.at_new_targets(one, {"pi": "ssh://pi"})["latency"].options == {"target": "ssh://pi"}
    for targets in ({"": "local"}, {"board": "local"}):
        with pytest.raises(BadInput, match="the targets of this run are laptop, pi"):
            options.at_new_targets(both, targets)


def test_the_command_line_names_targets():
    for twice in (["ssh://a", "ssh://b"], ["pi=5ms", "pi=6ms"]):
        with pytest.raises(BadInput, match="--target must be given once for each target"):
            by_target(twice)
    assert by_target(["5ms"]) == {"": "5ms"}
    assert by_target(["laptop=5ms", "pi=20ms"]) == {"laptop": "5ms", "pi": "20ms"}
    assert by_target(["ssh://a@b?python=/x/python3"]) == {"": "ssh://a@b?python=/x/python3"}
    assert by_target(["pi=ssh://a@b?cores=2"]) == {"pi": "ssh://a@b?cores=2"}
    assert by_target(None) is None
