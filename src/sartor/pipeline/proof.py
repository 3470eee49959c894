"""The proof of a decision, repeated from what the run's files say: score, prices, budgets and the space's rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from sartor.core.arch import Arch, active
from sartor.core.errors import Infeasible, RunError, SolverError
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.registry import COSTS, cost_of
from sartor.core.task import Task
from sartor.costs.base import CostTable, as_priced, priced
from sartor.runs.codec import decode, encode
from sartor.runs.directory import read_file
from sartor.runs.schema import FrontierFile, Rule, ScoreFile, SolutionFile, TableNotes
from sartor.runs.verification import Folders, Line, close, same, unknown
from sartor.solvers import solve
from sartor.solvers.base import NotSeparable, Problem
from sartor.solvers.frontier import frontier
from sartor.spaces.base import Space

_NEAR = 1e-6  # relative: what solvers call closed


@dataclass(frozen=True, eq=False)
class Decision:
    """All that a decision followed from, as the run's files have it."""

    f: Folders

    @cached_property
    def learnt(self) -> ScoreFile:
        """The score and the choices, which must be about the same things."""
        return self.f.base.load(ScoreFile).checked(self.f.base.path / ScoreFile.NAME)

    @cached_property
    def solution(self) -> SolutionFile:
        """What was decided; picks that are no architecture are refused."""
        found = self.f.cut.load(SolutionFile)
        found.arch.check(self.learnt.score.sizes, str(self.f.cut.path / SolutionFile.NAME))
        return found

    @cached_property
    def priced(self) -> dict[str, CostTable]:
        """The tables as the search priced them."""
        found = as_priced(self.f.base.path / "costs", self.f.cut.path)
        for name, table in found.items():
            if table.form.sizes != self.learnt.score.sizes:
                raise RunError(f"costs/{name}.json must price the choices of score.json, but prices others.")
        return found

    @cached_property
    def tables(self) -> dict[str, CostTable]:
        """As this budget's measurements corrected them, one after another."""
        return {name: self._corrected(name, table) for name, table in self.priced.items()}

    def _corrected(self, name: str, table: CostTable) -> CostTable:
        path = self.f.cut.path / f"{name}.json"
        if path.is_file():
            for entry in decode(TableNotes, read_file(path, CostTable).calibration, f"{path}: ").corrections:
                Arch(entry.picks).check(table.form.sizes, str(path))
                table = table.scaled(Arch(entry.picks), entry.measured, both_ways=True)
        return table

    def limits(self, rules: tuple[Limit, ...]) -> tuple[Limit, ...]:
        """The budgets, and the rules."""
        tables = self.tables
        unpriced = sorted(set(self.solution.budgets) - set(tables))
        if unpriced:
            raise RunError(f"solution.json has a budget for {', '.join(unpriced)}, which has no table in costs/.")
        return (*(tables[n].limit(high) for n, high in self.solution.budgets.items()), *rules)


def prices(d: Decision, space: Space | None, task: Task, recount: bool = True) -> Iterator[Line]:
    """Counted prices counted again from the space's parts, measured ones added up; corrections repeated."""
    parts = [] if space is None else list(space.parts(task))
    for name, table in d.priced.items():
        final = d.f.cut.path / f"{name}.json"
        if final.is_file():
            yield _alike(
                f"{final.name}: the prices, corrected as it lists", d.tables[name], read_file(final, CostTable)
            )
        yield same(f"costs/{name}.json is a table of {name}", name, table.cost)
        what = f"costs/{name}.json: every price"
        cost = cost_of(name)
        if space is None or cost not in COSTS.names():
            yield unknown(what, "its parts are made by code that is not Sartor's, or from a given network")
            continue
        if not COSTS[cost].measured and recount:
            again = _counted(name, table.precision, space, task)
            yield same(what, encode(again)["prices"], encode(table)["prices"])
        if {p.key for p in parts} - set(table.prices):
            yield Line(what, "differs", "a price for every part", "parts without one")
            continue
        start = table.calibration.get("intercept_ms", 0.0)
        intercept = Quadratic(space.sizes, float(start) if isinstance(start, int | float) else 0.0)
        summed = priced(space, parts, table.prices, COSTS[cost].sums)
        form = summed + intercept if summed.sums else summed
        yield _alike(f"costs/{name}.json: the sum of the prices", CostTable(name, table.kind, {}, form), table)


@cache
def _counted(name: str, precision: str, space: Space, task: Task) -> CostTable:
    """The table of a counted cost; further budgets of a search share it."""
    made: CostTable = COSTS[name]().in_precision(precision).table(space, task)
    return made


def _alike(what: str, expected: CostTable, found: CostTable) -> Line:
    """Whether two tables price every network alike, up to rounding."""
    one, other = (_flat(t.form) for t in (expected, found))
    near = one.shape == other.shape and np.allclose(
        one, other, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(one).max()))
    )
    return Line(what, "verified") if near else Line(what, "differs", "the same sums", "others")


def _flat(form: Quadratic) -> np.ndarray:
    """All coefficients, terms that are left out as zeros."""
    sizes, n = form.sizes, len(form.sizes)
    linear = [form.linear.get(i, np.zeros(sizes[i])) for i in range(n)]
    pairs = [form.pairs[key].ravel() for key in sorted(form.pairs) if form.pairs[key].any()]
    return np.concatenate([[form.constant], *linear, *pairs, *(_flat(case) for case in form.cases)])


def optimum(d: Decision, rules: tuple[Limit, ...] | None, seconds: float) -> Iterator[Line]:
    """The problem solved again, exactly: nothing inside the limits may score more than what was chosen."""
    goal, told = d.learnt.score, d.solution.solution
    arch = d.solution.arch
    yield close("solution.json: the score of its network", _score(goal, d.learnt, arch, told.score), told.score)
    yield same("solution.json: its network by name", arch.named(d.learnt.choices), dict(d.solution.architecture))
    predicted = {n: d.solution.times.get(n, 1.0) * t.form(arch) for n, t in d.tables.items()}
    yield same("solution.json: costs predicted", sorted(predicted), sorted(d.solution.predicted))
    for name in sorted(predicted.keys() & d.solution.predicted.keys()):
        yield close(f"solution.json: {name} predicted", predicted[name], d.solution.predicted[name])
    gap = None if told.bound is None else max(0.0, told.bound - told.score)
    proven = gap is not None and gap <= _NEAR * max(1.0, abs(told.score))
    yield same("solution.json: bound, gap and proof agree", (gap, proven), (told.gap, told.proven))
    limits = d.limits(rules or ())
    broken = [limit.name for limit in limits if not limit.holds(arch, slack=_NEAR)]
    yield same("solution.json: its network is inside every budget and rule", [], broken)
    line = _best(Problem(goal, limits), d.solution, seconds)
    if rules is None and line.state == "differs":
        line = unknown(line.what, "the space has rules that no file tells, which may forbid what scores more")
    yield line


def _score(goal: Quadratic, learnt: ScoreFile, arch: Arch, told: float) -> float:
    """What the network scores; where choices without effect are valued too, `told` up to the most they add."""
    found = goal(arch)
    if abs(found - told) <= _NEAR * max(1.0, abs(told)):
        return found
    fixed = {i: np.eye(goal.sizes[i])[p] for i, p in enumerate(arch.picks) if active(learnt.choices[i], arch.picks)}
    same_network = Limit("the network", Quadratic(goal.sizes, 0.0, fixed), low=float(len(fixed)))
    return min(max(told, found), solve(Problem(goal, (same_network,))).score)


def _best(problem: Problem, told: SolutionFile, seconds: float) -> Line:
    """What the solver finds against what the file claims."""
    what, claimed = "proof: nothing inside the budgets scores more", told.solution
    try:
        found = solve(problem, time_limit=seconds)
    except Infeasible as error:
        return Line(what, "differs", "a network inside the budgets", str(error))
    except SolverError as error:
        return unknown(what, str(error))
    room = _NEAR * max(1.0, abs(claimed.score))
    if claimed.bound is None:
        return unknown(what, f"{claimed.solver} gave no bound; the best found now scores {found.score:.6g}")
    if found.score > claimed.bound + room:
        return Line(what, "differs", f"{found.score:.9g}, by {found.solver}", f"{claimed.bound:.9g} as the bound")
    if not found.proven and found.bound > claimed.bound + room:
        return unknown(what, f"{seconds:g} s were too few to prove it again")
    return Line(what, "verified")


def trade_offs(d: Decision, rules: tuple[Limit, ...] | None) -> Iterator[Line]:
    """The frontier computed again."""
    path = d.f.cut.path / FrontierFile.NAME
    if not path.is_file():
        return
    told = d.f.cut.load(FrontierFile)
    tables = d.tables
    if told.axis not in tables or rules is None:
        yield unknown("frontier.json", "the space has rules that no file tells, or its axis has no table")
        return
    for row in told.picks:
        Arch(row).check(d.learnt.score.sizes, str(path))
    picks = np.asarray(told.picks, np.int64).reshape(len(told.picks), len(d.learnt.score.sizes))
    costs = {n: t.form.batch(picks) for n, t in tables.items()}
    yield same("frontier.json: costs", sorted(costs), sorted(told.costs))
    for name in sorted(costs.keys() & told.costs.keys()):
        yield _near(f"frontier.json: {name} of every network", costs[name], told.costs[name])
    try:
        points = frontier(d.learnt.score, tables[told.axis].form, rules)
    except NotSeparable:
        yield same("frontier.json: complete", False, told.complete)
        return
    yield same("frontier.json: complete", len(points) > 0, told.complete)
    yield _near("frontier.json: every optimal trade-off", points.cost, told.cost)
    yield _near("frontier.json: score of every network", points.score, told.score)


def _near(what: str, expected: np.ndarray, found: tuple[float, ...]) -> Line:
    values = np.asarray(found, np.float64)
    fine = expected.shape == values.shape and np.allclose(expected, values, rtol=1e-9, atol=1e-9)
    return Line(what, "verified") if fine else Line(what, "differs", f"{len(expected)} values", "others")


def rules_of(d: Decision, space: Space | None) -> tuple[tuple[Limit, ...] | None, Line]:
    """The space's rules: as it makes them, else as score.json has them; None where neither tells."""
    told, what = d.learnt.rules, "score.json: the rules of the space"
    if space is None:
        line = unknown(what, "the space is code that is not Sartor's, or was made from a given network")
        return (None if told is None else tuple(rule.limit for rule in told)), line
    made = tuple(space.rules)
    if told is None:
        return made, unknown(what, "an older Sartor did not write them; the space's own are taken")
    return made, same(what, [encode(Rule.of(rule)) for rule in made], [encode(rule) for rule in told])
