"""A cost with a unit of its own, a runtime and a solver, each a file outside the package: found, used, recorded."""

import json
import re
import sys
from pathlib import Path

import pytest
import quick
import tiny

import sartor
from sartor.cli.main import main
from sartor.core.errors import BadInput
from sartor.core.registry import SOLVERS
from sartor.costs.base import CostTable
from sartor.pipeline.context import reopened
from sartor.pipeline.cut import FitCut
from sartor.pipeline.options import Plug
from sartor.runs.directory import Run, read_json
from sartor.runs.progress import Reporter
from sartor.solvers.base import Problem

DOCS = Path(__file__).parents[2] / "docs/extend"
COST, RUNTIME = (
    re.search(r"```python\n(.*?)```", (DOCS / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL)[1]
    for name in ("cost", "runtime")
)
SOLVER = '''
from dataclasses import dataclass

from sartor.solvers.base import Solver
from sartor.solvers.milp import Milp


@dataclass(frozen=True, kw_only=True)
class Patient(Solver):
    """HiGHS with much time."""

    seconds: float = 100.0

    def solve(self, problem):
        return Milp(time_limit=self.seconds).solve(problem)
'''
SHORT = {"method": "random", "train": tiny.QUICK["train"]}


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """The current folder of a person with three files of their own, of which no process knows anything yet."""
    for name, text in (("my_cost", COST), ("my_runtime", RUNTIME), ("my_solver", SOLVER)):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_cost_with_its_own_unit_in_python(finished, outside):
    result = sartor.fit(
        finished.data, out="run", budgets={"carbon": "3ug"}, costs=["my_cost:Carbon"], quiet=True, **SHORT
    )
    entry = result.certificate["budgets"]["carbon"]
    assert entry["measured"] == pytest.approx(entry["predicted"])
    assert entry["measured"] <= 3e-3
    assert set(result.certificate["costs"]) == {"carbon", "macs", "memory", "params"}  # nothing is timed unasked
    assert result.trade_offs.axis == "carbon"
    page = Path("run/report.html").read_text()
    assert "3 ug" in page
    assert "Left out" not in page
    table = CostTable.from_json(read_json(Path("run/costs/carbon.json")))
    assert table.kind.show(0.5) == "500 ug"  # without the file that brought it
    # a run is data: what it names is imported only by someone who trusts it
    sys.modules.pop("my_cost")
    for use in (lambda: sartor.solve("run", params="100K"), lambda: sartor.fit("x", out="y", costs=["none:Carbon"])):
        with pytest.raises(BadInput, match=r"my_cost:Carbon|none:Carbon"):
            use()
    assert "my_cost" not in sys.modules
    again = sartor.solve("run", budgets={"carbon": "2.5ug"}, trust_code=True, quiet=True)
    assert again.path.name == "carbon-2.5ug"
    assert again.certificate["fits"]
    assert sartor.load("run").predict(tiny.arrays(1)[0][:, None])


def test_the_same_network_under_another_budget_is_not_trained_again(finished, tmp_path):
    run = finished.copy(tmp_path / "run")
    chosen = sartor.load(run)
    params = chosen.certificate["costs"]["params"]["measured"]
    again = sartor.solve(run, params=params + 1, latency="50ms", quiet=True)
    assert again.arch == chosen.arch
    assert read_json(again.path / "training.json") == read_json(run / "training.json")
    assert not list((again.path / "search").glob("*")) if (again.path / "search").exists() else True


def test_a_runtime_and_a_solver_on_the_command_line(finished, outside, monkeypatch, capsys):
    sets = [f"--set=costs.latency.{k}={v}" for k, v in tiny.COARSE.items()]
    words = [
        "fit",
        finished.data,
        "--out=run",
        "--method=random",
        "--space=nasbench201",
        "--set=space.cells=1",
        "--runtime=my_runtime:Quick",
        "--cost=latency",
        *sets,
    ]
    words += ["--solver=my_solver:Patient", "--set=solver.seconds=50", "--budget=params=150K", "--set=train.epochs=1"]
    monkeypatch.setattr(sys, "argv", ["sartor", *map(str, words), "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert ended.value.code == 0, err
    found = json.loads(out)
    assert found["device"]["runtime"] == "my_runtime:Quick"
    assert found["device"]["runtime_version"] == "7"
    assert found["score"]["solver"] == "milp"
    assert 'name = "my_solver:Patient"\nseconds = 50.0' in Path("run/config.toml").read_text()
    assert "Left out" not in Path("run/report.html").read_text()
    # another process, in the same folder, goes on from there
    more = quick.run(["-m", "sartor", *words], outside)
    more.check_returncode()
    assert "done before" in more.stderr


def test_a_cost_that_is_asked_for_later_is_priced_then(finished, outside):
    small = {"name": "nasbench201", "cells": 1}  # few parts to time
    result = sartor.fit(finished.data, out="run", params="150K", space=small, quiet=True, **SHORT)
    assert set(Run(result.path).stages()["costs"].files) == {f"costs/{n}.json" for n in ("macs", "memory", "params")}
    with pytest.raises(BadInput, match="no budget named carbon"):
        sartor.solve("run", budgets={"carbon": "3ug"})
    (outside / "run/costs/stray.txt").write_text("")
    again = sartor.solve("run", latency="1s", quiet=True)
    assert again.certificate["budgets"]["latency"]["holds"]
    assert "costs/latency.json" in Run(result.path).stages()["costs"].files


@pytest.mark.parametrize("name", SOLVERS.names())
def test_every_solver_that_is_listed_can_be_chosen(finished, name):
    context, limits = reopened(finished.run, Reporter(silent=True), {"params": "120K"}, solver=Plug(name))
    cut = FitCut(context, context.run, limits)
    problem = Problem(cut.goal(), cut.limits(cut.tables()))
    if name == "exhaustive":
        with pytest.raises(BadInput):  # a space this large cannot be counted out, and it says so
            context.best(problem)
        return
    found = context.best(problem)
    assert problem.feasible(found.arch)
    assert found.solver.startswith(name)
