"""The order of the stages, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sartor.core.errors import BadInput, MissingDependency, RunError
from sartor.core.registry import COSTS
from sartor.costs.base import Cost
from sartor.pipeline import ancestry, decision, precision, stages, training
from sartor.pipeline.context import Context, open_context, record, reopened
from sartor.pipeline.cut import Cut, FitCut
from sartor.pipeline.options import Fit, Options, Plug
from sartor.pipeline.verification import Ask, verify
from sartor.runs.certificate import certificate
from sartor.runs.clock import Clock
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.runs.schema import StagesFile, VerifyFile

_ROUNDS = 6  # solve, train and verify again after a measured overrun, at most so often
_PROVING = 3.0  # seconds for proving the optimum again at the end
_AGAIN = ("solve", "train", "export", "verify")


def fit(options: Fit, out: Path, reporter: Reporter | None = None) -> Path:
    """Data and budgets in, a certified network out; the same call resumes after a crash."""
    ready(options, out)
    context = open_context(options, out, reporter or Reporter())
    cut = FitCut(context, context.run, {n: float(v) for n, v in options.budgets.items()})
    with cut.run.locked(), context.running():
        if not cut.run.done("data"):
            ancestry.offer(context)
        begin(context)
        ancestry.same_origin(context)
        stages.plan(context)
        prepared = None if cut.run.done("search") else context.method.prepare(context.job())
        price(cut)
        decision.check(cut)
        names = (context.config()[group]["name"] for group in ("method", "space"))
        cut.run.stage("search", lambda: stages.search(cut, prepared), f"search: {' on '.join(names)}")
        finish(cut)
    return cut.run.path


def solve(
    path: Path, budgets: Mapping[str, str | float], reporter: Reporter | None = None, *,
    solver: Any = None, precision: str | None = None, data: object = None,
    target: str | Mapping[str, str] | None = None, trust_code: bool = False, train: bool = True,
) -> Path:  # fmt: skip
    """Another budget on a finished search: the stages after it only, in a folder of their own, or just the decision."""
    if not budgets:
        raise BadInput(f"a budget is needed: give at least one of {', '.join(COSTS.names())}.")
    began = time.monotonic()
    more: dict[str, Any] = {} if solver is None else {"solver": Plug.of(solver, solver)}
    more |= {} if data is None else {"data": data}
    more |= {} if precision is None else {"precision": precision}
    context, limits = reopened(path, reporter or Reporter(), budgets, trust_code, target, **more)
    run = context.run
    with run.locked():
        if not all(run.done(stage) for stage in ("data", "costs", "search")):
            raise RunError(f"{path} has no finished search yet. Run the same `sartor fit` command again to finish it.")
        stages.same_data(context)
        sub = run.sub(f"cuts/{slug(limits, context.costs)}{f'_{precision}' if precision else ''}")
        sub.mend()  # the lock is the whole run's
        clock = Clock(sub, context.trained_for(context.options.seconds), began)
        cut = FitCut(replace(context, clock=clock), sub, limits)
        with cut.context.running():
            _price_more(cut)
            if target is not None:
                stages.same_device(cut)
            decision.check(cut)
            finish(cut) if train else decide(cut)
    return cut.run.path


def _price_more(cut: Cut) -> None:
    """Tables of costs that nobody asked for until now, kept with the others."""
    run = cut.context.run
    listed = list(run.stages()["costs"].files)
    if any(name not in listed for name in stages.priced(cut.context)):
        start = time.monotonic()
        run.finish("costs", [*listed, *stages.costs(cut, listed)], time.monotonic() - start)


def slug(budgets: Mapping[str, float], costs: Mapping[str, Cost]) -> str:
    """A folder name for a set of budgets, such as ``macs-3M_params-2M``; other budgets get other folders."""
    return "_".join(f"{n}-{costs[n].kind.exactly(v)}" for n, v in sorted(budgets.items()))


def ready(options: Options, out: Path) -> None:
    """Before the first image is read: refuse what is found missing at the end otherwise, hours later."""
    if not (out / StagesFile.NAME).exists():  # what has begun may need none of it any more
        options.check_deployment()


def begin(c: Context) -> None:
    """The first stage: options and data, which must be those that a resumed run began with."""
    record(c)
    if not c.run.stage("data", lambda: stages.data(c), f"data: {_summary(c)}"):
        stages.same_data(c)


def price(cut: Cut) -> None:
    """The stage that prices the space."""
    run = cut.context.run
    run.stage("costs", lambda: stages.costs(cut), f"costs: pricing every part of the space{_where(cut)}")


def _where(cut: Cut) -> str:
    """The targets at which anything is measured."""
    found = dict.fromkeys(str(at) for cost in cut.context.costs.values() if (at := getattr(cost, "target", None)))
    return "".join(f", {'on this machine' if at == 'local' else f'at {at}'}" for at in found)


def finish(cut: Cut, more: Callable[[], object] = lambda: None) -> None:
    """The rest of a run: a network that fits as measured, its certificate, the report; `more` comes between."""
    run = cut.run
    until_it_fits(cut)
    more()
    if run.writer and not run.done("certificate"):
        run.save(certificate(cut.context.run, run))
        run.finish("certificate", ["certificate.json"], 0.0)
    if run.writer and not run.intact("report"):
        report(run.path, run)
    if run.writer:
        check(cut)


def check(cut: Cut) -> None:
    """The end of every run: all that it claims is checked again from its files; what differs is an error."""
    found = verify(cut.run.path, cut.rebuilt, Ask(trusted=True, recount=False, seconds=_PROVING), cut.known_space())
    cut.run.reporter.say(f"  checked again: {found.summary()}")
    if not found.holds:
        wrong = [line for line in found.lines if line.state == "differs"]
        raise RunError(
            f"{cut.run.path} does not hold what it claims: {wrong[0].what}: {wrong[0].expected or 'intact'} expected, "
            f"{wrong[0].found} found. `sartor verify {cut.run.path}` lists everything."
        )


def decide(cut: Cut) -> None:
    """The stage that chooses the network, built and measured as far as a budget is measured."""
    cut.run.stage("solve", lambda: decision.decide(cut), "solve: the best network inside the budget")


def until_it_fits(cut: Cut) -> None:
    """Solve, train, export and verify until the network fits as measured."""
    run = cut.run
    for _ in range(_ROUNDS):
        decide(cut)
        run.stage("train", lambda: training.train(cut), "train: the chosen network")
        run.stage("export", lambda: stages.export(cut), "export: ONNX, weights, labels, preprocessing")
        if run.agree(cut.precision == "int8" and precision.refused(cut)):
            run.log("the network is not worth 8 bits: the problem is solved again in float32")
            run.forget(("solve", "export", "verify"))  # a training of the same network stays
            continue
        run.stage("verify", lambda: stages.verify(cut), f"verify: the network as deployed{_where(cut)}")
        if run.load(VerifyFile).fits:
            return
        decision.learn(cut)
        run.forget(_AGAIN)
    raise RunError(
        f"after {_ROUNDS} rounds the network still measures over its budget: this machine is too busy to measure "
        "on. Run the same command again when it is quieter; nothing is lost."
    )


def report(path: Path, run: Run | None = None) -> Path | None:
    """Write report.html, a pure function of the directory; None (and a word) where Jinja is missing."""
    try:
        from sartor.report.build import build

        return build(path)
    except MissingDependency as error:
        (run or Run.open(path)).log(f"the report is left out: {error} Then: sartor report {path}")
        return None


def _summary(c: Context) -> str:
    skipped = f", {len(c.images.skipped)} skipped" if c.images.skipped else ""
    native = c.images.native
    smaller = f" (made smaller: most have {native} pixels; --image {native} keeps them)" if c.images.is_smaller else ""
    return (
        f"{c.images.name}, {c.task.classes} classes, {c.task.image}x{c.task.image}x{c.task.channels}{smaller}, "
        f"{len(c.splits.train)} train / {len(c.splits.val)} validation / {len(c.splits.test)} test{skipped}"
    )
