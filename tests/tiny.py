"""A job small enough to run whole in seconds: 60 grey images of 8 x 8 pixels in three classes that can be learnt."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from sartor import options, stages
from sartor.context import open_context, record
from sartor.data.augment import statistics
from sartor.data.open import open_data
from sartor.data.split import split
from sartor.engine.device import Engine
from sartor.engine.feed import Feed
from sartor.methods.base import Job
from sartor.progress import Reporter
from sartor.registry import SPACES
from sartor.run import Run
from sartor.seeds import Seeds

CLASSES = ("links", "Mitte", "右")
QUICK = {
    "method": {
        "heaviest_epochs": 1,
        "multipath_epochs": 1,
        "passes": 1,
        "held_out": 4,
        "batch": 32,
        "augment": "light",
    },
    "train": {"epochs": 1, "batch": 32, "augment": "light"},
}
# What prices and times a network in a fraction of the usual time: coarse, but measured all the same.
COARSE = {"rounds": 3, "visit_ms": 0.0, "networks": 1, "verify_s": 0.1}


def arrays(count=60, seed=0):
    """A bright bar on noise: where it stands is the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 3
    x = rng.integers(0, 60, (count, 8, 8))
    for n, k in enumerate(y):
        x[n, :, 2 * k : 2 * k + 3] += 150
    return x.astype(np.uint8), y


def npz(folder: Path, count=60, seed=0) -> Path:
    """The same as a file."""
    x, y = arrays(count, seed)
    path = folder / "bars.npz"
    np.savez(path, x=x, y=y, classes=np.array(CLASSES))
    return path


def job(path: Path, seed=0, space="mobile") -> Job:
    """What a search method gets."""
    images, seeds, engine = open_data(arrays()), Seeds(seed), Engine()
    splits = split(images, seeds.rng("split"))
    mean, std = statistics(images, splits.train)
    feed = Feed(images, tuple(mean), tuple(std), seeds, engine)
    made = SPACES[space]().fitted(images.task)
    return Job(made, images.task, feed, splits, seeds, Run(path, Reporter(silent=True)))


def settings(**more):
    """Options of a fit, and the same as `--set` arguments."""
    groups = {g: {**QUICK.get(g, {}), **more.get(g, {})} for g in ("method", "train")}
    return groups, [f"--set={g}.{k}={v}" for g, values in groups.items() for k, v in values.items()]


def coarse(monkeypatch) -> None:
    """Make `sartor` in this process price and time networks coarsely."""
    exact = options.costs

    def costs(given):
        made = exact(given)
        return {**made, "latency": replace(made["latency"], **COARSE)}

    monkeypatch.setattr(options, "costs", costs)


def prepare(given: options.Options, out: Path) -> None:
    """The data and costs stages with a coarse table; `sartor fit` with the same options goes on from there."""
    context = open_context(given, out, Reporter(silent=True))
    context.costs["latency"] = replace(context.costs["latency"], **COARSE)
    with context.run.locked():
        record(context)
        context.run.stage("data", lambda: stages.data(context), "data")
        context.run.stage("costs", lambda: stages.costs(context), "costs")
