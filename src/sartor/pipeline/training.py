"""The training of the chosen network: from what it starts, for how long, and what it then gets right."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sartor.core.arch import Arch
from sartor.deploy.views import viewed
from sartor.engine import checkpoint
from sartor.engine.evaluate import accuracy, outputs
from sartor.engine.network import Masks, settle_norms, train_network
from sartor.engine.seeding import seeded
from sartor.engine.whitening import held
from sartor.pipeline import starting
from sartor.pipeline.context import Context
from sartor.pipeline.cut import Cut, chosen, views
from sartor.pipeline.final import suited
from sartor.pipeline.judging import evaluated, seen
from sartor.pipeline.quantising import held_out
from sartor.pipeline.teaching import wide_teacher
from sartor.runs.codec import encode
from sartor.runs.directory import Run, atomic
from sartor.runs.progress import span
from sartor.runs.schema import EvaluationFile, TrainingFile

_LEAST = 0.1  # of the time: a network that is trained for less is worth nothing


def train(cut: Cut) -> list[str]:
    """Train the chosen network, from what it inherits or from scratch, as `final` says, on all images but the test's.

    Where validation images are kept aside and training lowers their accuracy, the inherited weights are kept.
    A network that another budget of this search has trained is taken from there.
    """
    c, arch = cut.context, chosen(cut.run)
    files = ["training.json", "model/trained.safetensors", EvaluationFile.NAME]
    known = _trained_before(cut, arch)
    if known is not None:
        c.run.log(f"this network was trained before, in {known.path}: its weights are taken")
        files = [name for name in files if (known.path / name).is_file()]  # older runs have no evaluation
        _copy(known, cut.run, files)
        if views(known) != views(cut.run):
            _judge_again(cut, known)
        return files
    with seeded(c.seeds.number("network")):
        begin = cut.start(arch)
    recipe, least, started = c.train, None, None
    if cut.origin is not None:
        found = starting.begin(cut, cut.origin, arch, begin, None if c.train.epochs else _left(cut))
        begin, recipe, started, least = found.start, found.recipe, found.told, found.best
    net, masks, before, kept = begin.net, Masks(begin.net, begin.masks), None, "trained"
    everything = c.train.images == "all"
    if begin.inherited:
        masks.apply()
        settle_norms(net, c.feed, c.splits)
        before = accuracy(net, c.feed, c.splits.val)
        inherited = {name: value.clone() for name, value in net.state_dict().items()}
    start = time.monotonic()
    kept_out = held_out(cut) if everything else ()
    more = np.setdiff1d(c.splits.val, kept_out)
    splits = replace(c.splits, train=np.union1d(c.splits.train, more)) if everything else c.splits
    teacher = begin.teacher if c.train.teacher else None
    seconds = cut.seconds if c.train.epochs or cut.seconds is not None else _left(cut)
    if teacher is None and c.train.teaching and not c.train.epochs and cut.seconds is None:
        teacher = wide_teacher(c, net, c.train.teaching * _left(cut), least if before is None else before)
        seconds = _left(cut)
    suit = partial(suited, recipe, images=len(splits.train), taught=teacher is not None) if everything else None
    white = held(net, c.feed, c.splits.train, begin.fresh) if recipe.whiten else nullcontext()
    with white:
        history = train_network(net, teacher, recipe, c.feed, splits, cut.run, cut.phase(arch), masks, seconds, suit,
                                "training the network")  # fmt: skip
    after = None if everything else accuracy(net, c.feed, c.splits.val)
    if before is not None and after is not None and before > after:
        c.run.log(
            f"fine-tuning lowered the validation accuracy, {before:.2f} % to {after:.2f} %: inherited weights kept"
        )
        net.load_state_dict(inherited)
        after, kept = before, "inherited"
    cut.run.record(TrainingFile, {
        "history": history, "seconds": time.monotonic() - start, "inherited_val_accuracy": before, "kept": kept,
        "metric": c.task.metric, "val_accuracy": after, "teacher": teacher and teacher.told,
        "held_out": len(kept_out) or None, "started": started and encode(started),
        **_tested(c, cut.run, net, everything, views(cut.run)), **begin.facts,
    })  # fmt: skip
    if c.run.writer:
        checkpoint.save(cut.run.path / "model/trained.safetensors", net.state_dict())
    return files


def _left(cut: Cut) -> float:
    """Seconds for training the network: what is left of the time.

    A network that is trained because another one was over its budget as deployed gets half as many as that one, at
    least, and one that comes after a search that took too long a part of the time: else nothing good comes out.
    """
    c = cut.context
    before = [float(cut.run.read(str(p.relative_to(cut.run.path)))["seconds"]) for p in _plans(cut)]
    least = max([_LEAST * (c.clock.seconds or 0.0), *(s / 2 for s in before)])
    left = max(0.0, c.clock.left - c.ending)
    if left < least:
        c.run.log(f"the network is trained for {span(least)}, longer than the {span(left)} that are left of the time")
    return max(left, least)


def _plans(cut: Cut) -> list[Path]:
    """The plans of networks that this budget had trained."""
    own = f"{cut.phase(chosen(cut.run))}.plan.json"
    return sorted(p for p in cut.run.path.glob("search/network-*.plan.json") if p.name != own)


def _tested(c: Context, run: Run, net: nn.Module, everything: bool, looks: int = 1) -> dict[str, Any]:
    """What the network gets right of the test images with all its views; all about it goes into evaluation.json."""
    looking = net.eval() if looks == 1 else c.engine.place(viewed(net, looks, c.task.image)).eval()
    val = None if everything else outputs(looking, c.feed, c.splits.val)
    told, found = evaluated(c, outputs(looking, c.feed, c.splits.test), val)
    found["one_view_accuracy"] = None if looking is net else accuracy(net, c.feed, c.splits.test)
    if run.writer:
        run.save(told)
    if "unseen_accuracy" in found:
        leaks = len(seen(c.run))
        c.run.log(
            f"test {c.task.metric} {found['test_accuracy']:.2f} %; without the {leaks} test images that equal, or "
            f"nearly, one that was trained on: {found['unseen_accuracy']:.2f} %"
        )
    return found


def _judge_again(cut: Cut, known: Run) -> None:
    """A network that was trained for another budget and has other views here."""
    c, net, told = cut.context, cut.network(chosen(cut.run)), known.load(TrainingFile)
    net.load_state_dict(checkpoint.load(known.path / "model/trained.safetensors"))
    found = _tested(c, cut.run, c.engine.place(net), told.val_accuracy is None, views(cut.run))
    if cut.run.writer:
        cut.run.save(replace(told, **found))


def _trained_before(cut: Cut, arch: Arch) -> Run | None:
    """Another budget of the same search that chose and trained the same network."""
    base = cut.context.run
    if not cut.traded:  # no budget on the search: what its picks mean is its own
        return None
    for path in (base.path, *sorted(base.path.glob("cuts/*"))):
        run = Run(path)
        same = path != cut.run.path and (path / "solution.json").is_file() and chosen(run) == arch
        if same and run.done("solve") and run.done("train"):
            return run
    return None


def _copy(source: Run, run: Run, files: Sequence[str]) -> None:
    if run.writer:
        for name in files:
            with atomic(run.path / name) as tmp:
                shutil.copyfile(source.path / name, tmp)
