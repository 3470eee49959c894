"""Which networks were tried, for how long, and how they fared; those that a person would train instead are marked."""

from __future__ import annotations

from typing import Any

from sartor.report.figures import Plot, Scale
from sartor.report.files import Files
from sartor.report.text import Html, number, seconds
from sartor.runs.schema import Trial

_WHY = {"drawn": "drawn inside the budgets", "optimum": "the score's optimum", "doubt": "could be the optimum"}
Ladders = dict[tuple[int, ...], list[Trial]]  # every network's trials, from the lowest rung up


def trials(files: Files) -> dict[str, Any] | None:
    """None where the search trained no networks on their own."""
    tried = files.facts.trials
    if not tried:
        return None
    ladders: Ladders = {}
    for trial in tried:
        ladders.setdefault(trial.picks, []).append(trial)
    chosen, rungs = files.solution.solution.picks, range(1 + max(t.rung for t in tried))
    order = sorted(ladders.values(), key=lambda ladder: -_worth(ladder[-1]))
    rows = [
        {
            "name": _name(ladder),
            "chosen": ladder[-1].picks == chosen,
            "landmark": bool(ladder[0].name),
            "accuracies": [next((f"{t.accuracy:.1f} %" for t in ladder if t.rung == r), "–") for r in rungs],
            "seconds": seconds(ladder[-1].seconds),
            "epochs": number(ladder[-1].epochs, 3),
            "worth": f"{_worth(ladder[-1]):.1f} %",
        }
        for ladder in order
    ]
    return {
        "count": len(ladders),
        "rungs": [r + 1 for r in rungs],
        "rows": rows,
        "figure": _figure(ladders, chosen),
        "landmarks": sum(row["landmark"] for row in rows),
        "total": seconds(sum(_spent(order))),
    }


def _spent(ladders: list[list[Trial]]) -> list[float]:
    return [ladder[-1].seconds for ladder in ladders]  # a trial's seconds include those of the rungs below


def _worth(trial: Trial) -> float:
    return trial.accuracy if trial.value is None else trial.value


def _name(ladder: list[Trial]) -> str:
    first = ladder[0]
    return first.name or _WHY.get(first.why, first.why)


def _figure(ladders: Ladders, chosen: tuple[int, ...]) -> Html:
    """Validation accuracy against seconds of training: a line a network."""
    every = [t for ladder in ladders.values() for t in ladder]
    times, heights = [t.seconds for t in every], [t.accuracy for t in every]
    plot = Plot(Scale.around([0.0, *times]), Scale.around(heights), "seconds of training", "validation accuracy, %")
    for picks, ladder in ladders.items():
        points, title = [(t.seconds, t.accuracy) for t in ladder], _name(ladder)
        if len(points) > 1:
            plot.line(points, "level", title)
        style = "dots big" if ladder[0].name else "dots"
        plot.dots(points, style, [f"{title}: {y:.1f} % after {seconds(x)}" for x, y in points])
        if picks == chosen:
            plot.mark(*points[-1], "diamond", f"{title}: the network of this run")
    return plot.html(f"Validation accuracy of {len(ladders)} networks against their seconds of training.")
