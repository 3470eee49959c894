"""The frontier: the chart, and the data with which the page's script answers any budget."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sartor.core.units import Kind
from sartor.report.figures import Plot, Scale
from sartor.report.files import Files
from sartor.report.sections.network import looks, slots
from sartor.report.text import Html, Unit, amount, flag, number, percent_suffix
from sartor.runs.schema import FrontierFile

_MOST = 4000  # points kept in the page; more could not be told apart on any screen


def frontier(files: Files) -> dict[str, Any] | None:
    """The chart with its slider; a word instead where the run has no complete frontier."""
    points = files.own(FrontierFile)
    if points is None or not files.choices:
        return None
    budgets, axis, kind = files.solution.budgets, points.axis, points.kind
    limit = budgets.get(axis)
    if not points.cost:
        return {"empty": True, "axis": axis}
    keep = _kept(len(points.cost))
    data = _data(files, points, keep)
    start = _start(data["cost"], limit)
    return {
        "empty": False, "axis": axis, "count": len(points.cost), "shown": len(keep), "last": len(keep) - 1,
        "figure": _figure(files, data, start, kind), "data": _embedded(data | {"start": start}), "start": start,
        "slots": slots(files.choices, data["picks"][start], files.drawing), "unit": files.unit,
        "limit": None if limit is None else amount(limit, kind), "examples": kind.examples,
        "others": [n for n in budgets if n != axis], "costs": list(data["costs"]),
    }  # fmt: skip


def _kept(count: int) -> list[int]:
    """Evenly chosen points where there are very many, both ends among them."""
    if count <= _MOST:
        return list(range(count))
    return sorted({round(k * (count - 1) / (_MOST - 1)) for k in range(_MOST)})


def _start(cost: Sequence[float], limit: float | None) -> int:
    """The best point inside the budget that was asked; the last where none was."""
    if limit is None:
        return len(cost) - 1
    return max(0, sum(c <= limit * (1 + 1e-9) for c in cost) - 1)


def _data(files: Files, points: FrontierFile, keep: list[int]) -> dict[str, Any]:
    choices, drawing = files.choices, files.drawing
    return {
        "axis": points.axis,
        "flag": flag(points.axis),
        "suffix": percent_suffix(files.unit),
        "cost": [points.cost[n] for n in keep],
        "score": [round(points.score[n], 6) for n in keep],
        "picks": [points.picks[n] for n in keep],
        "costs": {name: [float(f"{v[n]:.6g}") for n in keep] for name, v in points.costs.items()},
        "kinds": {name: notation(files.kind(name)) for name in points.costs},
        "limits": dict(files.solution.budgets),
        "chosen": files.solution.solution.picks,
        "units": dict(points.kind.scales),
        "names": [c.name for c in choices],
        "needs": [c.needs for c in choices],
        # A space has few distinct lists of options: each is written once.
        "looks": [[asdict(look) for look in looks(c, drawing)] for c in {c.options: c for c in choices}.values()],
        "which": [list({c.options: 0 for c in choices}).index(c.options) for c in choices],
    }


def notation(kind: Kind) -> dict[str, Any]:
    """How the page writes amounts: units from the largest, each with its size and the least amount it is for."""
    return {"own": kind.unit, "shown": [[u, kind.scales[u], least] for u, least in kind.shown.items()]}


def _embedded(data: dict[str, Any]) -> Html:
    """JSON that may stand inside a script element: nothing in it can close the element or open another."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _figure(files: Files, data: dict[str, Any], start: int, kind: Kind) -> Html:
    cost, score = data["cost"], data["score"]
    mine, worth = files.solution.predicted.get(data["axis"]), files.solution.solution.score
    if mine is not None:  # the frontier's networks look at an image once
        mine /= files.solution.times.get(data["axis"], 1.0)
    xs = Scale.around([*cost, *([mine] if mine is not None else [])], 0.04)
    ys = Scale.around([*score, worth], 0.08)
    unit = Unit.of(cost, kind)
    plot = Plot(
        xs,
        ys,
        f"{data['axis']}, {unit.name}".rstrip(", "),
        f"score, {files.unit}",
        x_format=unit.plain,
        height=330,
        y_format=lambda v: number(v) + data["suffix"],
    )
    plot.line(list(zip(cost, score, strict=True)), "line", steps=True)
    inside = [_inside(data, n) for n in range(len(cost))]
    for style, wanted in (("dots", True), ("dots hollow", False)):
        plot.dots([(c, s) for c, s, ok in zip(cost, score, inside, strict=True) if ok is wanted], style)
    limit = data["limits"].get(data["axis"])
    if limit is not None:
        beyond = " →" if limit > xs.high else ""
        plot.upright(min(limit, xs.high), f"asked: {amount(limit, kind)}{beyond}")
    plot.upright(cost[start], "", "cursor", "cursor")
    if mine is not None:
        plot.mark(mine, worth, "diamond", f"the chosen network: {amount(mine, kind)} predicted")
    plot.mark(cost[start], score[start], "ring", "the network described below", "here")
    html = plot.html(f"Best score for every budget of {data['axis']}", "frontier-area")
    low, high = f'data-low="{xs.low!r}" data-high="{xs.high!r}"', f'data-bottom="{ys.low!r}" data-top="{ys.high!r}"'
    return Html(html.replace('id="frontier-area"', f'id="frontier-area" {low} {high}', 1))


def _inside(data: dict[str, Any], n: int) -> bool:
    """Whether a point also meets the budgets that the chart's axis does not show."""
    return all(
        data["costs"][name][n] <= high * (1 + 1e-5)  # costs here have six digits
        for name, high in data["limits"].items()
        if name != data["axis"] and name in data["costs"]
    )
