"""Was it worth it? The run's network beside what could have been trained instead."""

from __future__ import annotations

from typing import Any

from sartor.insight.comparison import ranked, verdict
from sartor.report.figures import Plot, Scale
from sartor.report.files import Files
from sartor.report.sections.usage import here
from sartor.report.text import Html, Unit, number, seconds
from sartor.runs.schema import CompareFile, Contestant


def compare(files: Files) -> dict[str, Any] | None:
    """Words, the table and the chart of accuracy against cost; before a comparison, how to have one."""
    found = files.own(CompareFile)
    if found is None:
        return None if files.config.method is None else {"hint": Html(here(files, "sh")), "known": _known(files)}
    trained = ranked(found)
    costs = [found.axis, *(n for n in found.kinds if n != found.axis)]
    units = {n: Unit.of([e.costs[n] for e in trained if n in e.costs], found.kinds[n]) for n in costs}
    rows = [
        {
            "name": e.name,
            "network": e.described,
            "own": e is found.own,
            "accuracy": f"{e.accuracy:.1f} %",
            "costs": [units[n].show(e.costs[n]) if n in e.costs else "–" for n in costs],
            "seconds": "–" if e.seconds is None else seconds(e.seconds),
        }
        for e in trained
    ]
    return {
        "hint": None,
        "verdict": verdict(found),
        "metric": found.metric,
        "costs": costs,
        "rows": rows,
        "axis": found.axis,
        "figure": _figure(found, trained, units[found.axis]),
        "missing": [f"{e.name}: {e.missing}" for e in found.rivals if e.missing is not None],
    }


def _known(files: Files) -> str | None:
    """The best of the well-known networks that the search tried itself, beside the one that came out."""
    tried = [t for t in files.facts.trials or () if t.value is not None]
    worth = {t.picks: t.value or 0.0 for t in tried}  # the last of a network's trials
    names = {t.picks: t.name for t in tried if t.name and t.name != "start"}
    own = worth.get(files.solution.solution.picks)
    if not names or own is None:
        return None
    best = max(names, key=worth.__getitem__)
    if best == files.solution.solution.picks:
        return f"The network of this run is a well-known one, {names[best]}: the search tried no better one."
    return (
        f"Of the well-known networks that the search tried, {names[best]} was the best: worth {worth[best]:.1f} % "
        f"after its trials. The network of this run was worth {own:.1f} %."
    )


def _figure(found: CompareFile, trained: list[Contestant], unit: Unit) -> Html | None:
    """Accuracy against the limited cost, the run's network as a diamond."""
    points = [(e, e.costs[found.axis] / unit.size, e.accuracy or 0.0) for e in trained if found.axis in e.costs]
    if len(points) < 2:
        return None
    limit = found.budgets.get(found.axis)
    xs = [x for _, x, _ in points] + ([] if limit is None else [limit / unit.size])
    title = f"{found.axis}, {unit.name}" if unit.name else found.axis
    plot = Plot(Scale.around(xs, 0.1), Scale.around([y for *_, y in points], 0.1), title, f"test {found.metric}, %")
    if limit is not None:
        plot.upright(limit / unit.size, "budget")
    others = [(e, x, y) for e, x, y in points if e is not found.own]
    titles = [f"{e.name} {e.described}: {number(y)} %, {number(x)} {unit.name}" for e, x, y in others]
    plot.dots([(x, y) for _, x, y in others], "dots big", titles)
    for e, x, y in points:
        if e is found.own:
            plot.mark(x, y, "diamond", f"{e.name}: {number(y)} %, {number(x)} {unit.name}")
    return plot.html(f"Test {found.metric} of {len(points)} networks against {found.axis}.")
