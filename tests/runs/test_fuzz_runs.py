"""A few mutated run directories of the many that scripts/fuzz_runs tries: refused or right, and nothing outside."""

import shutil
from pathlib import Path

import fuzz


def test_mutated_directories_are_refused_or_right(tmp_path):
    shutil.unpack_archive(Path(__file__).parents[1] / "golden/old_run.zip", tmp_path / "honest")
    found = list(fuzz.cases(range(14), [tmp_path / "honest"], tmp_path / "place"))
    assert [(case["seed"], case["done"], case["wrong"]) for case in found if case["wrong"]] == []
    outcomes = {name for case in found for name in case["counts"]}
    assert {f"{name} refused" for name in fuzz.COMMANDS} <= outcomes  # the changes reach every command
    assert {"predict right", "load right"} <= outcomes
