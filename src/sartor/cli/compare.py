"""`sartor compare`: what could have been trained instead of a run's network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sartor.cli import show
from sartor.cli.app import AsJson, Quiet, app
from sartor.cli.options import TrustCode
from sartor.runs.schema import CompareFile


@app.command()
def compare(
    run: Annotated[Path, typer.Argument(help="A run directory made by `sartor fit`, or one of its cuts.")],
    time: Annotated[str | None, typer.Option(
        help="To train the others in all, e.g. 5min; default: each as long as the run's network.")] = None,
    timm: Annotated[list[str] | None, typer.Option(help="Also this network of timm's, e.g. resnet18; repeat.")] = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Was it worth it? Train ResNets, MobileNets and others of the space inside the same budgets, and compare."""
    from sartor.pipeline.compare import compare as run_compare
    from sartor.runs.directory import Run
    from sartor.runs.progress import Reporter

    path = run_compare(run, time, timm or (), Reporter(quiet or None), trust_code)
    found = Run(path).load(CompareFile)
    show.emit(found, as_json, lambda: view(found, path))


def view(found: CompareFile, path: Path) -> show.View:
    """The table, the best first, and what it means."""
    from sartor.insight.comparison import ranked, verdict

    costs, rows = [found.axis, *(n for n in found.kinds if n != found.axis)], []
    for e in ranked(found):
        amounts = [found.kinds[n].show(e.costs[n]) if n in e.costs else "-" for n in costs]
        trained = "-" if e.seconds is None else f"{e.seconds:.0f} s"
        name = f"{e.name}: {e.described}" if e.described else e.name
        rows.append((f"{e.accuracy:.2f} %", *amounts, trained, name))
    yield show.table((found.metric, *costs, "trained", "network"), rows)
    yield from (f"{e.name}: {e.missing}" for e in found.rivals if e.missing is not None)
    yield from verdict(found)
    if (path / "report.html").exists():
        yield f"report {path / 'report.html'}"
