"""Design rules in plain words, and which budget holds the score back."""

from __future__ import annotations

from typing import Any

from sartor.core.quadratic import Quadratic
from sartor.report.files import Files
from sartor.report.text import amount, percent_suffix, signed

_UNITS = {"time": "ms", "bytes": "B", "count": ""}


def why(files: Files) -> dict[str, Any] | None:
    """What `sartor.insight.explain` says for certain, with prices on the frontier's axis."""
    score, choices = files.score, files.choices
    if score is None or not choices:
        return None
    from sartor.insight.explain import explain

    points, tables = files.own("frontier.json") or {}, files.tables
    axis = str(points.get("axis", next(iter(tables), "")))
    costs = {axis: Quadratic.from_json(tables[axis]["form"])} if axis in tables else {}
    unit = percent_suffix(files.unit).strip() or files.unit
    found = explain(score, choices, costs, unit=unit, cost_units={axis: _UNITS[files.kinds.get(axis, "count")]})
    quality = files.searched("score.json").get("quality")
    looked = len(found["groups"]) + len(found["trends"])
    return {
        "rules": [str(rule) for rule in found["rules"]], "errors": found["errors_known"], "looked": looked,
        "weak": not quality or quality["kendall"]["low"] <= 0,
        "chance": max(1, round(looked / 20)), "budgets": _budgets(files, points, axis) if points.get("cost") else [],
    }  # fmt: skip


def _budgets(files: Files, points: Any, axis: str) -> list[str]:
    """Read off the frontier: what a little more budget would buy, and what the other budgets take."""
    solution, kind, suffix = files.own("solution.json"), str(points["kind"]), percent_suffix(files.unit)
    limit, own = solution["budgets"].get(axis), float(solution["solution"]["score"])
    if limit is None:
        return []
    inside = [n for n, cost in enumerate(points["cost"]) if cost <= limit * (1 + 1e-9)]
    if not inside:
        return []
    best = inside[-1]
    lines = []
    lost = points["score"][best] - own
    if lost > 1e-6 * max(1.0, abs(own)):
        others = " and ".join(n for n in solution["budgets"] if n != axis) or "a correction of the latency table"
        lines.append(f"Without the budget on {others} the best network would score {signed(lost)}{suffix}.")
    if best == len(points["cost"]) - 1:
        lines.append(f"The {axis} budget does not bind: the space’s best-scoring network costs less than it allows.")
    else:
        more = amount(points["cost"][best + 1] - limit, kind, 3)
        gain = signed(points["score"][best + 1] - points["score"][best])
        lines.append(f"The {axis} budget binds: {more} more would buy the next network, {gain}{suffix}.")
    return lines
