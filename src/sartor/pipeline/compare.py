"""Was it worth it? What could have been trained instead, chosen, trained and measured like the run's own network.

Every rival has a folder of its own (compare/TIME/NAME) that the stages of a fit fill, so that a comparison resumes.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import Infeasible, RunError
from sartor.core.units import DURATION
from sartor.pipeline import stages
from sartor.pipeline.context import reopened
from sartor.pipeline.cut import FitCut
from sartor.pipeline.final import plainly
from sartor.pipeline.order import report, until_it_fits
from sartor.pipeline.rivals import Rival, groups
from sartor.runs.directory import Run, search_of
from sartor.runs.progress import Reporter
from sartor.runs.schema import (
    CompareFile,
    Contestant,
    EvaluationFile,
    SolutionFile,
    SplitsFile,
    TrainingFile,
    VerifyFile,
)

_OWN = "this run"


def compare(
    path: Path, duration: str | float | None = None, timm: Sequence[str] = (), reporter: Reporter | None = None,
    trust_code: bool = False,
) -> Path:  # fmt: skip
    """Train what could have been trained instead, for `duration` in all; compare.json and a section of the report."""
    in_all = None if duration is None else DURATION.parse(duration, "the time")
    base = search_of(path)
    context, _ = reopened(base, reporter or Reporter(), trusted=trust_code)
    run = context.run if base == path else context.run.sub(f"cuts/{path.name}")
    with context.run.locked():
        if not run.done("certificate"):
            raise RunError(f"{path} must be a finished run, but has no certificate. Run the same `sartor fit` again.")
        stages.same_data(context)
        budgets = _budgets(run)
        cut, begun = FitCut(context, run, budgets), time.monotonic()
        with run.reporter.bar("pricing what could be trained instead", 100) as bar:
            found = groups(cut, budgets, timm, lambda n, done, total: bar.to(100 * done // total, n))
        # Rivals are deployed as the run's network is: whether 8 bits are worth it is decided.
        alike = replace(context, options=replace(context.options, precision=cut.precision))
        by_hand = replace(alike, train=plainly(alike.train))
        rivals = [Rival(by_hand if g.plain else alike, run, g, budgets) for g in found]
        seconds = run.load(TrainingFile).seconds
        if in_all is not None:
            seconds = in_all / max(1, sum(rival.possible for rival in rivals))
        folder = f"compare/{seconds:.4g}s"
        rivals = [replace(r, run=run.sub(f"{folder}/{_slug(r.group.name)}"), share=seconds) for r in rivals]
        results = []
        for n, rival in enumerate(rivals, start=1):
            run.reporter.say(f"compare, {n} of {len(rivals)}: {rival.group.name}")
            results.append(_result(rival))
        results = [_paired(run, rival, result) for rival, result in zip(rivals, results, strict=True)]
        training, searched = run.load(TrainingFile), context.run.stages()["search"].seconds
        run.save(CompareFile(
            budgets=budgets, axis=cut.axis, kinds={n: e.kind for n, e in run.load(VerifyFile).costs.items()},
            seconds=seconds, metric=training.metric,
            inherited_seconds=0.0 if training.inherited_val_accuracy is None else searched,
            test_images=len(context.run.load(SplitsFile).test), own=_contestant(run, _OWN, searched=True),
            rivals=tuple(results),
        ))  # fmt: skip
        run.finish("compare", [CompareFile.NAME], time.monotonic() - begun)
        report(run.path, run)
    return run.path


def _budgets(run: Run) -> Mapping[str, float]:
    """The run's budgets; without any, what its own network costs."""
    asked = run.load(SolutionFile).budgets
    return asked or {n: e.measured for n, e in run.load(VerifyFile).costs.items()}


def _result(rival: Rival) -> Contestant:
    """The rival trained and measured; or why there is none."""
    try:
        until_it_fits(rival)
    except Infeasible as error:
        return Contestant(rival.group.name, "", rival.group.searched, missing=str(error))
    found = _contestant(rival.run, rival.group.name, rival.group.searched)
    return replace(found, seconds=max(rival.share, found.seconds or 0.0))  # one that was resumed tells of the rest only


def _contestant(run: Run, name: str, searched: bool) -> Contestant:
    training, verified, decided = run.load(TrainingFile), run.load(VerifyFile), run.load(SolutionFile)
    return Contestant(
        name, decided.string, searched, training.test_accuracy,
        {n: e.measured for n, e in verified.costs.items()}, training.seconds, len(training.history),
        views=decided.views,
    )  # fmt: skip


def _paired(run: Run, rival: Rival, result: Contestant) -> Contestant:
    """With the test images that only one of the two gets right, where both files tell image by image."""
    own, other = (_right(of) for of in (run, rival.run))
    if result.missing is not None or own is None or other is None or len(own) != len(other):
        return result
    return replace(result, apart=(int((other & ~own).sum()), int((own & ~other).sum())))


def _right(run: Run) -> NDArray[np.bool_] | None:
    """Which test images a network gets right."""
    path = run.path / EvaluationFile.NAME
    told = run.load(EvaluationFile).checked(path) if path.is_file() else None
    if told is None or told.right is None:
        return None
    return np.unpackbits(np.frombuffer(bytes.fromhex(told.right), np.uint8), count=told.images).astype(bool)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.lower())
