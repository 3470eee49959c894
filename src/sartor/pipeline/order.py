"""The order of the stages, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sartor.core import units
from sartor.core.errors import BadInput, MissingDependency, RunError
from sartor.pipeline import stages
from sartor.pipeline.context import Context, open_context, record, reopened
from sartor.pipeline.options import BUDGETS, Options
from sartor.pipeline.stages import Cut
from sartor.runs.certificate import certificate
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter

_ROUNDS = 6  # solve, train and verify again after a measured overrun, at most so often
_AGAIN = ("solve", "train", "export", "verify")


def fit(options: Options, out: Path, reporter: Reporter | None = None) -> Path:
    """Data and budgets in, a certified network out; the same call resumes after a crash."""
    reporter = reporter or Reporter()
    context = open_context(options, out, reporter)
    run = context.run
    with run.locked():
        record(context)
        if not run.stage("data", lambda: stages.data(context), f"data: {_summary(context)}"):
            stages.same_data(context)
        run.stage("costs", lambda: stages.costs(context), "costs: pricing every part of the space on this device")
        cut = Cut(context, run, options.budgets)
        stages.check(cut)
        run.stage("search", lambda: stages.search(context), f"search: {options.method} on {options.space}")
        _finish(cut)
    return run.path


def solve(path: Path, budgets: Mapping[str, float], reporter: Reporter | None = None) -> Path:
    """Another budget on a finished search: stages 5 to 9 only, in a folder of their own."""
    if not budgets:
        raise BadInput("a budget is needed: give at least one of latency, params, macs, memory.")
    reporter = reporter or Reporter()
    context = reopened(path, reporter)
    run = context.run
    with run.locked():
        if not all(run.done(stage) for stage in ("data", "costs", "search")):
            raise RunError(f"{path} has no finished search yet. Run the same `sartor fit` command again to finish it.")
        stages.same_data(context)
        cut = Cut(context, run.sub(f"cuts/{slug(budgets)}"), dict(budgets))
        stages.check(cut)
        _finish(cut)
    return cut.run.path


def slug(budgets: Mapping[str, float]) -> str:
    """A folder name for a set of budgets, such as ``latency-3ms_params-2M``."""
    return "_".join(f"{n}-{_exactly(v, BUDGETS[n])}" for n, v in sorted(budgets.items()))


def _exactly(value: float, kind: str) -> str:
    """The quantity for people where that says all of it, else every digit: other budgets get other folders."""
    shown = units.show(value, kind).replace(" ", "")
    return shown if units.parse(shown, kind) == value else f"{value!r}{units.UNIT[kind]}"


def until_it_fits(cut: Any, stages: Any, solve: str, train: str) -> None:
    """Solve, train, export and verify until the network fits as measured; `stages` are a fit's or a compression's."""
    run = cut.run
    for _ in range(_ROUNDS):
        run.stage("solve", lambda: stages.decide(cut), f"solve: {solve} inside the budget")
        run.stage("train", lambda: stages.train(cut), f"train: {train}")
        run.stage("export", lambda: stages.export(cut), "export: ONNX, weights, labels, preprocessing")
        run.stage("verify", lambda: stages.verify(cut), "verify: the network as deployed, on this machine")
        if run.read("verify.json")["fits"]:
            return
        stages.learn(cut)
        run.forget(_AGAIN)
    raise RunError(
        f"after {_ROUNDS} rounds the network still measures over its budget: this machine is too busy to measure "
        "on. Run the same command again when it is quieter; nothing is lost."
    )


def _finish(cut: Cut) -> None:
    """The rest of a fit: a network that fits as measured, its certificate, the report."""
    run = cut.run
    until_it_fits(cut, stages, "the best network", "the chosen network")
    if run.writer and not run.done("certificate"):
        run.save(certificate(cut.context.run, run))
        run.finish("certificate", ["certificate.json"], 0.0)
    if run.writer and not (run.path / "report.html").is_file():
        report(run.path, run)


def report(path: Path, run: Run | None = None) -> Path | None:
    """Write report.html, a pure function of the directory; None (and a word) where Jinja is missing."""
    run = run or Run.open(path)
    start = time.monotonic()
    try:
        from sartor.report.build import build

        page = build(path)
    except MissingDependency as error:
        run.log(f"the report is left out: {error} Then: sartor report {path}")
        return None
    run.finish("report", ["report.html"], time.monotonic() - start)
    return page


def _summary(c: Context) -> str:
    skipped = f", {len(c.images.skipped)} skipped" if c.images.skipped else ""
    return (
        f"{c.images.name}, {c.task.classes} classes, {c.task.image}x{c.task.image}x{c.task.channels}, "
        f"{len(c.splits.train)} train / {len(c.splits.val)} validation / {len(c.splits.test)} test{skipped}"
    )
