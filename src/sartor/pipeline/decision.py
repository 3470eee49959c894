"""The decision: the network that scores most inside the budgets, built and measured before it is trained."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from sartor.core.arch import Arch, canonical
from sartor.core.errors import Infeasible, SolverError
from sartor.core.quadratic import Largest, Limit, Quadratic, inside
from sartor.core.units import TIME
from sartor.core.views import told
from sartor.costs.base import CostTable, Measured
from sartor.pipeline import precision
from sartor.pipeline.cut import Cut, chosen, views
from sartor.pipeline.room import filled
from sartor.runs.codec import encode
from sartor.runs.schema import (
    FrontierFile,
    SolutionFile,
    VerifyFile,
)
from sartor.solvers import cheapest
from sartor.solvers.base import Frontier, NotSeparable, Problem, Solution
from sartor.solvers.frontier import frontier

Answer = TypeVar("Answer")

_TRIES = 12  # corrections of a table before giving up
_SPARE, _USED = 5, 0.93  # how often to use room that a measurement leaves, and the share of a budget that is used up
# Standard errors by which a network that was not tried must be ahead of those that were. Of n guesses the luckiest is
# sqrt(2 log n) of them too high: five or six of the millions in a space, somewhat fewer since guesses are alike.
_SURE = 4.0


def check(cut: Cut) -> None:
    """Stop before any training where no network of the space can meet the budgets."""
    c = cut.context
    c.options.check_precision(c.costs)
    why = precision.impossible(cut) if c.options.precision == "auto" else None
    if why:
        c.run.log(f"{why}: it will be deployed in float32")
    found, failed = _each(cut, lambda bits: _best(cut, Quadratic(cut.space.sizes), cut.tables(bits)))
    if not found:
        raise min(failed.values(), key=lambda error: math.inf if error.least is None else error.least)


def _each(cut: Cut, solve: Callable[[str], Answer]) -> tuple[dict[str, Answer], dict[str, Infeasible]]:
    """The answers in every precision that may be deployed, and why there is none in the others."""
    found, failed = dict[str, Answer](), dict[str, Infeasible]()
    for bits in precision.considered(cut):
        try:
            found[bits] = solve(bits)
        except Infeasible as error:
            failed[bits] = error
    return found, failed


def decide(cut: Cut) -> list[str]:
    """The frontier, and the best network inside the budgets that really is.

    In 8 bits where `precision` says so, after it was built in them and in 32.
    """
    goal, log = cut.goal(), cut.context.run.log
    found, failed = _each(cut, lambda bits: _fitting(cut, goal, cut.tables(bits)))
    if not found:
        raise min(failed.values(), key=lambda error: math.inf if error.least is None else error.least)
    worth = {bits: _promise(cut, goal, fitting.arch, cut.finalists()) for bits, fitting in found.items()}
    small = found["int8"].arch if "int8" in found else None
    bits, why, compared = precision.decided(cut, worth, small)
    if len(worth) > 1:
        log(f"the best network inside the budgets scores {' and '.join(f'{v:.4g} in {n}' for n, v in worth.items())}")
    for name, both in compared.items():
        show = cut.context.costs[name].kind.show if name in cut.context.costs else TIME.show
        log(f"built in both, {name} is {show(both.int8.value)} in int8 and {show(both.float32.value)} in float32")
    if why:
        log(f"{bits} is decided on: {why}")
    if bits not in found:
        raise failed[bits]
    room = filled(cut, found[bits].arch, found[bits].tables, found[bits].built)
    if room.views > 1:
        log(f"the budgets leave room for more views than one: {told(room.views)}")
    _once_more(cut, found[bits].arch, room.views)
    for n, table in found[bits].tables.items():
        if table.corrections or table.precision == "int8" or (cut.run.path / f"{n}.json").exists():
            cut.keep(table)
    more = {"precision": bits, "why": why, "compared": encode(compared), **vars(room)}
    return _write_decision(cut, goal, found[bits], more)


def _once_more(cut: Cut, arch: Arch, looks: int) -> None:
    """Where another network, or other views, were decided on before: what was made of that is made again."""
    if "train" in cut.run.stages() and (chosen(cut.run), views(cut.run)) != (arch, looks):
        cut.run.forget(("train", "export", "verify"))


@dataclass(frozen=True, eq=False)
class Fitting:
    """A network inside the budgets, with the tables that led to it and what it measured before it was trained."""

    solution: Solution
    arch: Arch
    tables: dict[str, CostTable]
    built: dict[str, float]


def _fitting(cut: Cut, goal: Quadratic, tables: dict[str, CostTable]) -> Fitting:
    """The best network inside the budgets by the tables, each candidate built and measured; and the tables after that.

    A network over its budget corrects the table, and the problem is solved again. So does one that leaves room which
    the table did not know of, a few times, in both directions; the best of those that fitted stays, together with the
    tables that led to it.
    """
    c = cut.context
    fits: Fitting | None = None
    tries, spare = 0, _SPARE
    _admit_tried(cut, goal, tables)
    while True:
        try:
            solution = _preferred(cut, goal, tables, _thrifty(cut, goal, tables, _best(cut, goal, tables)))
        except Infeasible:
            if fits is None:
                raise
            break
        arch = canonical(cut.space.choices, solution.arch)
        if fits is not None and arch == fits.arch:
            break
        found = _over(cut, arch, tables) or built(cut, arch, tables)
        # The upper end of the interval must fit: what barely fits today may not when it is verified.
        over = [n for n, m in found.items() if m.high > cut.budgets[n]]
        roomy = [n for n, m in found.items() if m.high < min(_USED * cut.budgets[n], tables[n].form(arch))]
        if not over and (fits is None or _worth(cut, goal, arch) > _worth(cut, goal, fits.arch)):
            fits = Fitting(solution, arch, dict(tables), {n: m.value for n, m in found.items()})
        if fits is not None and (spare == 0 or not (over or roomy)):
            break
        spare -= fits is not None
        tries += bool(over)
        for n in over:
            show = c.costs[n].kind.show
            c.run.log(
                f"built and measured: {show(found[n].value)} (up to {show(found[n].high)}) where "
                f"{show(tables[n].form(arch))} was predicted; correcting the {n} table"
            )
            # Between a network that fitted and one that is over lies the answer: then half a correction is enough.
            amount = found[n].high if fits is None else math.sqrt(found[n].high * tables[n].form(arch))
            tables[n] = _correct(cut, tables[n], arch, amount, tries)
        for n in roomy if not over else ():
            tables[n] = cut.correct(tables[n], arch, found[n].high, both_ways=True)
    return fits


def built(cut: Cut, arch: Arch, tables: Mapping[str, CostTable]) -> dict[str, Measured]:
    """What a network that is not trained yet comes to: its weights do not matter for that."""
    net = cut.network(arch)
    return {n: cut.measure(n, net, tables[n]) for n in cut.measured}


def _over(cut: Cut, arch: Arch, tables: Mapping[str, CostTable]) -> dict[str, Measured]:
    """What a network came to that was over its budget once, built or as deployed: it is not chosen again.

    Else one that fits when it is built and not as it is deployed would be trained again and again.
    """
    found = dict[str, Measured]()
    for n in cut.measured:
        for entry in tables[n].corrections:
            if tuple(entry["picks"]) == arch.picks and entry["measured"] > cut.budgets[n]:
                found[n] = Measured.exact(entry["measured"])
    return found


def _admit_tried(cut: Cut, goal: Quadratic, tables: dict[str, CostTable]) -> None:
    """Teach the tables that the best network that was tried is inside, where they deny it and it was measured to be.

    Once: where they learn better afterwards, that counts.
    """
    gauged = {n: cut.gauged(n, tables[n].precision) for n in cut.measured}
    for arch in sorted(cut.finalists(), key=partial(_worth, cut, goal), reverse=True):
        amounts = {n: known[arch] for n, known in gauged.items() if arch in known}
        if inside(cut.limits(tables), arch, amounts) and not _over(cut, arch, tables):
            for n in [n for n in amounts if tables[n].form(arch) > cut.budgets[n]]:
                tables[n] = cut.correct(tables[n], arch, amounts[n], both_ways=True)
            return


def _preferred(cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable], solution: Solution) -> Solution:
    """The score's optimum, or the best network inside the limits that was tried, of the last rung where one is inside.

    An optimum that was not tried, or not for as long, is the best of very many guesses: it must promise more, by
    several times its error.
    """
    limits, optimum = cut.limits(tables), canonical(cut.space.choices, solution.arch)
    tried = [a for a in cut.tried() if inside(limits, a, {})]
    tried = [a for a in tried if a in cut.finalists()] or tried
    better = [a for a in tried if _worth(cut, goal, a) > _promise(cut, goal, optimum, tried)]
    if not better:
        return solution
    arch = max(better, key=partial(_worth, cut, goal))
    return replace(solution, arch=arch, score=goal(arch), solver="trials")


def _promise(cut: Cut, goal: Quadratic, arch: Arch, known: Collection[Arch]) -> float:
    """What a network is worth at least, most likely: less than it seems where it is not one of those `known` best."""
    return _worth(cut, goal, arch) - (0.0 if arch in known else _SURE * _doubt(goal, arch))


def _doubt(goal: Quadratic, arch: Arch) -> float:
    """The standard error of the score, its terms taken as independent."""
    if goal.errors is None:
        return 0.0
    errors = goal.errors
    terms = [errors.constant, *(v[arch.picks[i]] for i, v in errors.linear.items())]
    terms += [t[arch.picks[i], arch.picks[j]] for (i, j), t in errors.pairs.items()]
    return float(np.linalg.norm(terms)) if terms else 0.0


def _worth(cut: Cut, goal: Quadratic, arch: Arch) -> float:
    """What a trial showed, else the score."""
    return cut.tried().get(arch, goal(arch))


def _best(cut: Cut, goal: Quadratic, tables: dict[str, CostTable]) -> Solution:
    """The optimum; where the tables say that nothing fits, what they call cheapest is measured first, and believed."""
    for _ in range(_TRIES):
        try:
            return cut.context.best(Problem(goal, cut.limits(tables)))
        except Infeasible as error:
            name, problem = error.limit, error
        if not any(_relax(cut, tables, n) for n in cut.measured if name in (n, None)):
            break
    if name is None or name not in cut.budgets or problem.asked is None or problem.least is None:
        raise problem
    form = tables[name].form
    least = _least(cut, tables, name, form.steps) if isinstance(form, Largest) else problem.least
    raise cut.impossible(name, cut.budgets[name], least) from problem


def _least(cut: Cut, tables: Mapping[str, CostTable], name: str, steps: list[float]) -> float:
    """The smallest budget that can be met of a cost that goes by its largest part, the other limits aside."""

    def met(high: float) -> bool:
        try:
            cut.context.best(Problem(Quadratic(cut.space.sizes), (tables[name].limit(high), *cut.space.rules)))
        except Infeasible:
            return False
        return True

    return steps[bisect.bisect_left(steps, True, key=met)]


def _relax(cut: Cut, tables: dict[str, CostTable], name: str) -> bool:
    """Whether the network that the table calls cheapest measures less than that; the table then learns it."""
    others = [limit for limit in cut.limits(tables) if limit.name != name]
    if not tables[name].form.sums:
        return False
    try:
        arch = cheapest(tables[name].form, others).arch
    except (Infeasible, SolverError):
        return False
    predicted, found = tables[name].form(arch), built(cut, arch, tables)[name].high
    if found >= 0.98 * predicted:
        return False
    show = cut.context.costs[name].kind.show
    cut.context.run.log(f"the cheapest network measures {show(found)} where {show(predicted)} was predicted")
    tables[name] = cut.correct(tables[name], arch, found, both_ways=True)
    return True


def _thrifty(cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable], solution: Solution) -> Solution:
    """Of the networks that score as much, the one that costs least on the axis; a frontier gives that by itself."""
    if len(cut.budgets) < 2:
        return solution
    as_good = Limit("score", goal, low=solution.score)
    try:
        arch = cheapest(tables[cut.axis].form, (*cut.limits(tables), as_good), known=solution.arch).arch
    except (Infeasible, SolverError):  # equal scores are a matter of the last digit; the solution stands
        return solution
    return replace(solution, arch=arch, score=goal(arch))


def _correct(cut: Cut, table: CostTable, arch: Arch, measured: float, tries: int) -> CostTable:
    """The table after a measurement over the limit; gives up after many."""
    limit = cut.budgets[table.cost]
    # A hair above the budget may be what was predicted: the correction must still exclude this network.
    table = cut.correct(table, arch, max(measured, limit * 1.001))
    if tries + 1 >= _TRIES:
        raise Infeasible(
            f"{_TRIES} networks in a row measured over {table.kind.show(limit)} though predicted below: this machine "
            "is too busy to measure on. Run the same command again when it is quieter; nothing is lost."
        )
    return table


def _write_decision(cut: Cut, goal: Quadratic, fits: Fitting, more: Mapping[str, Any]) -> list[str]:
    solution, arch, tables = fits.solution, fits.arch, fits.tables
    if cut.traded:
        _write_frontier(cut, goal, tables)
    corrected = [n for n in tables if (cut.run.path / f"{n}.json").exists()]
    drawing = cut.space.draw(arch)
    if drawing.warning:
        cut.context.run.log(f"warning: {drawing.warning}")
    cut.run.record(SolutionFile, {
        "budgets": dict(cut.budgets), "solution": {**solution.to_json(), "picks": list(arch.picks)},
        "architecture": arch.named(cut.space.choices), "string": cut.space.describe(arch),
        "drawing": drawing.to_json(),
        "predicted": {n: more["times"].get(n, 1.0) * t.form(arch) for n, t in tables.items()},
        "corrections": [entry for n in corrected for entry in tables[n].corrections], **more,
    })  # fmt: skip
    own = cut.decided(arch) + ["frontier.json"] * cut.traded
    return ["solution.json", *(f"{n}.json" for n in corrected), *own]


def _write_frontier(cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable]) -> None:
    """Every optimal trade-off between the axis and the score, with all costs of every point."""
    space = cut.space
    try:
        points = frontier(goal, tables[cut.axis].form, space.rules)
        canon = [canonical(space.choices, points.arch(n)).picks for n in range(len(points))]
        points = Frontier(points.cost, points.score, np.asarray(canon, np.int64))
    except NotSeparable as error:
        cut.context.run.log(f"the frontier is left out: {error}")
        points = Frontier(np.zeros(0), np.zeros(0), np.zeros((0, len(space.sizes)), np.int64))
    cut.run.record(FrontierFile, {
        "axis": cut.axis, "kind": tables[cut.axis].kind.to_json(), "complete": len(points) > 0, **points.to_json(),
        "costs": {n: t.form.batch(points.picks).tolist() for n, t in tables.items()},
        "kinds": {n: t.kind.to_json() for n, t in tables.items()},
        "strings": [space.describe(points.arch(n)) for n in range(len(points))],
    })  # fmt: skip


def learn(cut: Cut) -> None:
    """After a verification over the limit: correct the tables by what was measured, unless fewer views will do."""
    tables, arch, verified = cut.tables(), chosen(cut.run), cut.run.load(VerifyFile).costs
    if views(cut.run) > 1:
        over = " and ".join(
            f"{n} is {tables[n].kind.show(e.measured)}" for n, e in verified.items() if e.holds is False
        )
        cut.context.run.log(f"as deployed with {views(cut.run)} views, {over}: over the budget; it will have fewer")
        return
    for name in [n for n, e in verified.items() if e.holds is False]:
        amount, show = verified[name].measured, tables[name].kind.show
        if not cut.context.costs[name].measured:
            raise SolverError(
                f"the {name} table says {show(tables[name].form(arch))} of the chosen network, which has "
                f"{show(amount)}: the cost counts its parts differently from the whole."
            )
        cut.context.run.log(f"as deployed, {name} is {show(amount)}: over the budget; the table is corrected")
        _correct(cut, tables[name], arch, amount, tries=0)
