"""Every file of a run as a type: what is written is read back, and what is missing, mistyped or newer is named."""

import json

import pytest
from schemas import FILES, example, required

from sartor.core.errors import RunError
from sartor.core.quadratic import Quadratic
from sartor.core.units import COUNT
from sartor.runs import schema
from sartor.runs.codec import decode, encode, from_file, to_file
from sartor.runs.directory import Run, read_file
from sartor.runs.progress import Reporter


def plain(value):
    return json.loads(json.dumps(encode(value)))


@pytest.mark.parametrize("kind", FILES, ids=lambda k: k.NAME)
def test_what_is_written_is_read_back(tmp_path, kind):
    run, value = Run(tmp_path, Reporter(silent=True)), example(kind)
    run.save(value)
    assert json.loads((tmp_path / kind.NAME).read_text())["format"] == kind.FORMAT
    assert plain(run.load(kind)) == plain(value)


@pytest.mark.parametrize("kind", FILES, ids=lambda k: k.NAME)
def test_every_missing_field_is_named_with_its_file(tmp_path, kind):
    whole = plain(example(kind))
    ways = list(required(kind, whole))
    assert ways or kind is schema.StagesFile
    for way in ways:
        data = json.loads(json.dumps(whole))
        holder = data
        for key in way[:-1]:
            holder = holder[key]
        del holder[way[-1]]
        with pytest.raises(RunError) as error:
            from_file(kind, data, tmp_path / kind.NAME)
        assert f"{kind.NAME}: {'.'.join(map(str, way))} is missing" in str(error.value)


def test_a_wrong_type_is_named():
    whole = plain(example(schema.TrainingFile))
    for key, value in (("seconds", "long"), ("history", 3), ("kept", None), ("val_accuracy", True), ("history", [[1]])):
        with pytest.raises(RunError, match=rf"x: {key}[.0-9]* must be "):
            decode(schema.TrainingFile, whole | {key: value}, "x: ")
    with pytest.raises(RunError, match="finite"):
        decode(schema.TrainingFile, whole | {"seconds": float("nan")}, "x: ")
    with pytest.raises(RunError, match="x must be a JSON object"):
        decode(schema.TrainingFile, [], "x: ")


def test_a_quadratic_that_is_none_names_file_and_field():
    data = plain(example(schema.ScoreFile))
    with pytest.raises(RunError, match=r"x: score: .*'linear'"):
        decode(schema.ScoreFile, data | {"score": {"sizes": [2], "constant": 0.0}}, "x: ")


def test_formats_older_and_newer(tmp_path):
    path = tmp_path / "verify.json"
    data = to_file(example(schema.VerifyFile))
    old = {k: v for k, v in data.items() if k != "format"}
    assert plain(from_file(schema.VerifyFile, old, path)) == plain(from_file(schema.VerifyFile, data, path))
    with pytest.raises(RunError, match=r"verify\.json has format 7; this Sartor reads up to 2. Install a newer"):
        from_file(schema.VerifyFile, data | {"format": 7}, path)


def test_what_is_optional_is_left_out_and_unknown_keys_of_facts_are_kept(tmp_path):
    counted = schema.Verified(kind=COUNT, measured=2.0, predicted=2.0)
    assert encode(counted) == {"kind": "count", "measured": 2.0, "predicted": 2.0}
    facts = decode(schema.Facts, {"heaviest_accuracy": 90, "steps": 20}, "x: ")
    assert facts == schema.Facts(heaviest_accuracy=90.0, others={"steps": 20})
    assert encode(facts) == {"heaviest_accuracy": 90.0, "steps": 20}


def test_a_cost_table_has_a_format_too(tmp_path):
    from sartor.costs.base import CostTable, Price

    run = Run(tmp_path, Reporter(silent=True))
    table = CostTable("params", COUNT, {"part": Price.exact(3.0)}, Quadratic((2,), 1.0))
    run.save(table, "costs/params.json")
    assert json.loads((tmp_path / "costs/params.json").read_text())["format"] == 2
    assert plain(read_file(tmp_path / "costs/params.json", CostTable)) == plain(table)
    with pytest.raises(RunError, match=r"params\.json: .*'form'"):
        from_file(CostTable, {"cost": "params", "kind": "count", "prices": {}}, tmp_path / "params.json")


def test_a_known_file_is_written_as_its_type_or_not_at_all(tmp_path):
    run, data = Run(tmp_path, Reporter(silent=True)), plain(example(schema.TrainingFile))
    run.write("training.json", data)
    assert read_file(tmp_path / "training.json", schema.TrainingFile) == example(schema.TrainingFile)
    assert json.loads((tmp_path / "training.json").read_text())["format"] == 2
    with pytest.raises(RunError, match=r"training\.json: kept is missing"):
        run.write("training.json", {k: v for k, v in data.items() if k != "kept"})
    run.write("costs/own.json", {"cost": "own"})
    assert json.loads((tmp_path / "costs/own.json").read_text()) == {"format": 2, "cost": "own"}
