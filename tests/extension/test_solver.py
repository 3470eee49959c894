"""A solver that lies outside the package, as docs/extend/solver.md has it: by command line, Python, and alone."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
import quick

import sartor

PAGE = Path(__file__).parents[2] / "docs/extend/solver.md"
CLIMB, ALONE = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture
def outside(tmp_path, monkeypatch):
    (tmp_path / "climb.py").write_text(CLIMB, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("climb", None)


def check(run, steps):
    """A finished run whose network that solver chose, inside the budget."""
    result = sartor.load(run)
    assert result.certificate["score"]["solver"] == "climb"
    assert not result.certificate["score"]["proven_optimal"]
    assert (run / "report.html").stat().st_size > 10_000
    assert sum(p.numel() for p in result.model.parameters()) <= 60_000
    with (run / "config.toml").open("rb") as file:
        assert tomllib.load(file)["solver"] == {"name": "climb:Climb", "steps": steps}


def test_the_command_line(outside):
    sets = ("--set=solver.steps=50", "--set=train.epochs=1")
    command = ("fit", "digits", "--method=random", "--effort=quick", "--params=60K", "--solver=climb:Climb", *sets)
    quick.run(["-m", "sartor", *command, "--out=run", "--quiet"], outside).check_returncode()
    check(outside / "run", 50)


def test_python(outside):
    from climb import Climb

    options = {"method": "random", "effort": "quick", "params": "60K", "train": {"epochs": 1}}
    sartor.fit("digits", out=outside / "run", quiet=True, solver=Climb(steps=60), **options)
    check(outside / "run", 60)
    again = sartor.solve(outside / "run", params="50K", solver=Climb, quiet=True, trust_code=True)
    assert sum(p.numel() for p in again.model.parameters()) <= 50_000


def test_the_page_by_itself(outside, capsys):
    exec(compile(CLIMB + "\n" + ALONE, str(PAGE), "exec"), {"__name__": "climb"})
    found, best = map(float, re.findall(r"(\d+\.\d+) ", capsys.readouterr().out))
    assert 0 < found <= best
