"""`sartor compare`: what could have been trained instead of a run's network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sartor.cli.options import TrustCode


def compare(
    run: Annotated[Path, typer.Argument(help="A run directory made by `sartor fit`, or one of its cuts.")],
    time: Annotated[str | None, typer.Option(
        help="To train the others in all, e.g. 5min; default: each as long as the run's network.")] = None,
    timm: Annotated[list[str] | None, typer.Option(help="Also this network of timm's, e.g. resnet18; repeat.")] = None,
    trust_code: TrustCode = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:  # fmt: skip
    """Was it worth it? Train ResNets, MobileNets and others of the space inside the same budgets, and compare."""
    from sartor.cli.main import console, emit
    from sartor.pipeline.compare import compare as run_compare
    from sartor.runs.codec import encode
    from sartor.runs.directory import Run
    from sartor.runs.progress import Reporter
    from sartor.runs.schema import CompareFile

    path = run_compare(run, time, timm or (), Reporter(quiet or None), trust_code)
    found = Run(path).load(CompareFile)
    emit(encode(found), as_json, lambda: show(found, path, console))


def show(found: object, path: Path, console: Console) -> None:
    """The table, the best first, and what it means."""
    from sartor.core import units
    from sartor.insight.comparison import ranked, verdict
    from sartor.runs.schema import CompareFile

    assert isinstance(found, CompareFile)
    costs = [found.axis, *(n for n in found.kinds if n != found.axis)]
    table = Table("", found.metric, *costs, "trained", box=None, pad_edge=False)
    for e in ranked(found):
        amounts = [units.show(e.costs[n], found.kinds[n]) if n in e.costs else "-" for n in costs]
        trained = "-" if e.seconds is None else f"{e.seconds:.0f} s"
        own = e is found.own
        name = e.name if e.searched else f"{e.name}: {e.network}"  # a searched network's description is long
        table.add_row(name, f"{e.accuracy:.2f} %", *amounts, trained, style="bold" if own else None)
    console.print(table)
    for e in found.rivals:
        if e.missing is not None:
            console.print(f"{e.name}: {e.missing}", markup=False)
    for line in verdict(found):
        console.print(line, markup=False)
    if (path / "report.html").exists():
        console.print(f"report {path / 'report.html'}", markup=False)
