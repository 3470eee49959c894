"""Design rules in plain words, and which budget holds the score back."""

from __future__ import annotations

from typing import Any

from sartor.report.files import Files
from sartor.report.text import amount, percent_suffix, signed
from sartor.runs.schema import FrontierFile


def why(files: Files) -> dict[str, Any] | None:
    """What `sartor.insight.explain` says for certain, with prices on the frontier's axis."""
    learnt, tables, points = files.learnt, files.tables, files.own(FrontierFile)
    if learnt is None or not learnt.choices:
        return None
    from sartor.insight.explain import explain
    from sartor.insight.factors import drawn

    axis = points.axis if points else next(iter(tables), "")
    costs = {axis: tables[axis].form.around(files.solution.arch)} if axis in tables else {}
    unit = percent_suffix(files.unit).strip() or files.unit
    found = explain(
        learnt.explained.around(files.solution.arch),
        learnt.choices,
        costs,
        parse=drawn(files.drawing),
        unit=unit,
        cost_units={axis: files.kind(axis).unit},
    )
    looked = len(found["groups"]) + len(found["trends"])
    return {
        "rules": [str(rule) for rule in found["rules"]],
        "errors": found["errors_known"],
        "looked": looked,
        "weak": learnt.quality is None or learnt.quality.kendall.low <= 0,
        "chance": max(1, round(looked / 20)),
        "budgets": _budgets(files, points) if points and points.cost else [],
    }


def _budgets(files: Files, points: FrontierFile) -> list[str]:
    """Read off the frontier: what a little more budget would buy, and what the other budgets take."""
    axis, budgets, suffix = points.axis, files.solution.budgets, percent_suffix(files.unit)
    limit, own = budgets.get(axis), files.solution.solution.score
    if limit is None:
        return []
    inside = [n for n, cost in enumerate(points.cost) if cost <= limit * (1 + 1e-9)]
    if not inside:
        return []
    best = inside[-1]
    lines = []
    lost = points.score[best] - own
    if lost > 1e-6 * max(1.0, abs(own)):
        others = " and ".join(n for n in budgets if n != axis) or f"a correction of the {axis} table"
        lines.append(f"Without the budget on {others} the best network would score {signed(lost)}{suffix}.")
    if best == len(points.cost) - 1:
        lines.append(f"The {axis} budget does not bind: the space’s best-scoring network costs less than it allows.")
    else:
        more = amount(points.cost[best + 1] - limit, points.kind, 3)
        gain = signed(points.score[best + 1] - points.score[best])
        lines.append(f"The {axis} budget binds: {more} more would buy the next network, {gain}{suffix}.")
    return lines
