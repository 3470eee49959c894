"""A job small enough to run whole in seconds: 60 grey images of 8 x 8 pixels in three classes that can be learnt."""

import fcntl
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sartor.core.registry import SPACES
from sartor.core.seeds import Seeds
from sartor.data.augment import statistics
from sartor.data.open import open_data
from sartor.data.split import split
from sartor.engine.device import Engine
from sartor.engine.feed import Feed
from sartor.methods.base import Job
from sartor.pipeline import options, stages
from sartor.pipeline import order as pipeline
from sartor.pipeline.context import open_context, record
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter

CLASSES = ("links", "Mitte", "右")
# What prices and times a network in a fraction of the usual time: coarse, but measured all the same. Tests run beside
# each other: there is no calm moment to wait for.
COARSE = {"rounds": 3, "visit_ms": 0.0, "networks": 1, "verify_s": 0.1, "moments": 1}
QUICK = {
    "method": {
        "name": "binas",
        "heaviest_epochs": 1,
        "multipath_epochs": 1,
        "passes": 1,
        "held_out": 4,
        "batch": 32,
        "augment": "light",
    },
    "train": {"epochs": 1, "batch": 32, "augment": "light"},
    "costs": {"latency": COARSE},
}


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


def job(path: Path, seed=0, space="mobile", labels=None) -> Job:
    """What a search method gets."""
    x, y = arrays()
    images, seeds, engine = open_data((x, y if labels is None else labels)), Seeds(seed), Engine()
    splits = split(images, seeds.rng("split"))
    mean, std = statistics(images, splits.train)
    feed = Feed(images, tuple(mean), tuple(std), seeds, engine)
    made = SPACES[space]().fitted(images.task)
    return Job(made, images.task, feed, splits, seeds, Run(path, Reporter(silent=True)))


def given(data: Path, budgets, **more) -> options.Options:
    """The options of a short fit."""
    return options.from_mapping({"data": str(data), "budgets": budgets, **QUICK, **more})


def arguments(data: Path, out: Path, *more: str, **groups) -> list[str]:
    """The same on the command line; with `costs` empty, nothing is timed that no budget asks for."""
    sets = {**QUICK, **groups}
    sets["costs.latency"] = sets.pop("costs").get("latency", {})
    return ["fit", str(data), f"--out={out}", *more, *(f"--set={g}.{k}={v}" for g in sets for k, v in sets[g].items())]


@dataclass(frozen=True)
class Finished:
    """A finished run and its data."""

    data: Path
    run: Path

    def copy(self, folder: Path) -> Path:
        """A run of one's own to change."""
        return Path(shutil.copytree(self.run, folder))


BUDGETS = {"latency": "50ms", "params": "150K"}


def once(root: Path, make: Callable[[Path], object]) -> Path:
    """The folder `root`, filled by `make` in whichever process comes first."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (root / "done").exists():
            make(root)
            (root / "done").touch()
    return root


def finished(root: Path) -> Finished:
    """One whole fit in `root`."""
    once(root, lambda root: pipeline.fit(given(npz(root), BUDGETS), root / "run", Reporter(silent=True)))
    return Finished(root / "bars.npz", root / "run")


def prepare(source: Finished, chosen: options.Options, out: Path) -> None:
    """A run that has its data and costs, the latter from `source`; `sartor fit` with the same options goes on."""
    context = open_context(chosen, out, Reporter(silent=True), Engine())
    with context.run.locked():
        record(context)
        context.run.stage("data", lambda: stages.data(context), "data")
        shutil.copytree(source.run / "costs", out / "costs")
        table = context.run.read("costs/latency.json")
        table["calibration"]["reference_ms"] = None  # without it nobody waits until the machine is as fast as then
        context.run.write("costs/latency.json", table)
        context.run.finish("costs", [f"costs/{p.name}" for p in sorted((out / "costs").iterdir())], 0.0)
