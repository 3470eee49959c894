"""What every stage of a run works with, made from the options once."""

from __future__ import annotations

import copy
import dataclasses
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sartor.core import config
from sartor.core.config import fields_of
from sartor.core.errors import RunError
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.registry import COSTS, METHODS, SOLVERS, SPACES
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.costs.base import Cost
from sartor.data.augment import statistics
from sartor.data.base import Images, Splits
from sartor.data.naming import named_code
from sartor.data.open import open_data
from sartor.data.split import split
from sartor.deploy.module import Deployed
from sartor.deploy.runtimes.base import Runtime
from sartor.deploy.views import viewed
from sartor.engine.device import Engine
from sartor.engine.feed import Feed
from sartor.engine.loggers import made_loggers
from sartor.engine.origin import Origin
from sartor.methods.base import Gauge, Job, Method
from sartor.pipeline.final import Final, given_by_hand, preset
from sartor.pipeline.options import (
    AUTO,
    Fit,
    Options,
    Plug,
    at_new_targets,
    from_mapping,
    parse_budgets,
    plain,
    read_targets,
    recorded,
    usual_target,
)
from sartor.runs.clock import Clock
from sartor.runs.codec import encode
from sartor.runs.directory import Run, atomic, read_file
from sartor.runs.progress import Reporter
from sartor.runs.schema import OriginFile, SplitsFile
from sartor.solvers import solve
from sartor.solvers.base import Problem, Solution
from sartor.spaces.base import Shape, Space
from sartor.version import __version__

_LATER = ("costs", "solver", "target", "precision", "batch")  # what config.toml of runs of Sartor 0.1 does not have
# Seconds that are kept for what follows a training: judging, exporting, the report; every measured cost; 8 bits.
_ENDING, _MEASURING, _QUANTISING = 5.0, 5.0, 20.0
_DECIDING = 3.0  # and for building and measuring what may be chosen, before it is trained
_PACKAGES = ("torch", "numpy", "scipy", "lightning-fabric", "onnx", "onnxruntime", "safetensors", "pillow")


@dataclass(frozen=True, eq=False)
class Context:
    """Options resolved against the data: everything the stages need, and nothing that they make."""

    options: Options
    run: Run
    images: Images
    splits: Splits
    feed: Feed
    costs: Mapping[str, Cost]
    train: Final
    clock: Clock

    @property
    def task(self) -> Task:
        """Classes and image shape."""
        return self.images.task

    @property
    def engine(self) -> Engine:
        """Device and processes."""
        return self.feed.engine

    @property
    def seeds(self) -> Seeds:
        """Random streams."""
        return self.feed.seeds

    @property
    def shape(self) -> Shape:
        """Of one image."""
        return (self.task.channels, self.task.image, self.task.image)

    @property
    def ending(self) -> float:
        """Seconds of the time that are kept for what follows the training."""
        measured = sum(cost.measured for cost in self.costs.values())
        return _ENDING + _MEASURING * measured + _QUANTISING * (self.options.precision != "float32")

    @contextmanager
    def running(self) -> Iterator[None]:
        """While the stages go on: the time is counted, and what is left of it shown."""
        with self.clock.running(), self.run.reporter.within(lambda: self.clock.spent, self.clock.seconds):
            yield

    def best(self, problem: Problem) -> Solution:
        """The best architecture inside the limits, by the solver that was asked for."""
        plug = self.options.solver
        return solve(problem, **plug.options) if plug.given == AUTO else plug.make(SOLVERS).solve(problem)

    def deployed(self, net: nn.Module, views: int = 1) -> Deployed:
        """The network with its normalisation and so many views of an image inside, on the CPU."""
        return Deployed(viewed(copy.deepcopy(net).cpu().eval(), views, self.task.image), self.feed.mean, self.feed.std)

    def runtime(self) -> Runtime:
        """What the network is deployed under."""
        return self.options.deployed_under()

    def config(self) -> dict[str, Any]:
        """Everything that decides the result."""
        costs = {n: _unnamed(recorded(COSTS, cost)) for n, cost in self.costs.items()}
        return {**self.options.to_mapping(), "train": plain(fields_of(self.train)), "costs": costs}


def _unnamed(entry: dict[str, Any]) -> dict[str, Any]:
    """A registered cost goes by its name already; one from elsewhere says where it is from."""
    return {k: v for k, v in entry.items() if k != "name" or ":" in v}


@dataclass(frozen=True, eq=False)
class Search(Context):
    """A fit's: with the space and the method that learns about it."""

    options: Fit
    space: Space
    method: Method
    origin: Origin | None = None

    @property
    def share(self) -> float:
        """The search's part of the time."""
        return self.method.share_on(self.engine.device.type)

    def job(
        self, limits: tuple[Limit, ...] = (), macs: Quadratic | None = None, gauge: Gauge | None = None,
        prepared: object = None,
    ) -> Job:  # fmt: skip
        """What a search method gets."""
        left = max(0.0, self.engine.agree(self.clock.left) - self.ending - _DECIDING)
        seconds = None if self.clock.seconds is None else self.share * left
        told: dict[str, Any] = {"limits": limits, "macs": macs, "gauge": gauge, "prepared": prepared}
        return Job(
            self.space, self.task, self.feed, self.splits, self.seeds, self.run, seconds, origin=self.origin, **told
        )

    def trained_for(self, seconds: float | None) -> float | None:
        """What a further budget may take of the seconds that a whole fit may: all but the search's share."""
        return None if seconds is None else (1 - self.share) * seconds

    def config(self) -> dict[str, Any]:
        """Everything that decides the result."""
        return {**super().config(), "method": recorded(METHODS, self.method), "space": recorded(SPACES, self.space)}


def read_images(given: Options, reporter: Reporter) -> Images:
    """The images, of the size that suits the options."""
    with reporter.bar("reading images", 100) as bar:
        return open_data(
            given.data, given.image, lambda n, done, total: bar.to(100 * done // total), given.largest_image
        )


def drawn(given: Options, images: Images) -> Splits:
    """The splits that the options' seed draws."""
    return split(images, Seeds(given.seed).rng("split"), given.val, given.test)


def open_data_of(given: Options, reporter: Reporter, engine: Engine, before: Path) -> tuple[Images, Splits, Feed]:
    """The images, their splits and their batches; as the run in `before` has them if it is of the same images."""
    images = read_images(given, reporter)
    engine.set_threads(images.task.image)
    seeds, known = Seeds(given.seed), before / SplitsFile.NAME
    began = read_file(known, SplitsFile) if known.is_file() else None
    if began is not None and began.digest == images.digest():
        splits, mean, std = Splits.from_json(encode(began)), began.mean, began.std
        _check(splits, images, mean, std)
    else:
        splits = drawn(given, images)
        mean, std = statistics(images, splits.train)
    return images, splits, Feed(images, tuple(mean), tuple(std), seeds, engine)


def _check(splits: Splits, images: Images, mean: Sequence[float], std: Sequence[float]) -> None:
    """Refuse splits from a file that are none of these images."""
    every = np.concatenate([splits.train, splits.val, splits.test])
    parts = all(map(len, (splits.train, splits.val, splits.test))) and len(np.unique(every)) == len(every)
    channels = images.task.channels
    if not parts or not 0 <= every.min() <= every.max() < len(images):
        raise RunError(f"{SplitsFile.NAME} must cut {len(images)} images into three parts, but does not. Restore it.")
    if len(mean) != channels or len(std) != channels or min(std) <= 0:
        raise RunError(f"{SplitsFile.NAME} must have a mean and a deviation above 0 a channel. Restore it.")


def open_context(
    given: Fit, path: Path, reporter: Reporter, engine: Engine | None = None, timed: bool = True
) -> Search:
    """Open data and devices and complete the options by the effort's presets."""
    began, method, space = time.monotonic(), given.method.resolve(METHODS), given.space.resolve(SPACES)
    origin = None if given.start is None else Origin(given.start)  # before any work: it may be unusable
    if method.switches:
        free = dataclasses.replace(given.space, given=getattr(space, "free", given.space.given))
        given = dataclasses.replace(given, space=free)
    engine = engine or Engine(given.device, given.devices, given.nodes, made_loggers(given.logger, path))
    run = Run(path, reporter, engine.rank == 0, engine.agree)
    reporter.silent = reporter.silent or engine.rank > 0
    images, splits, feed = open_data_of(given, reporter, engine, path)
    train = {
        **preset(given.effort, given.device, method.paper(), len(splits.train)),
        **given_by_hand(given.train_options),
    }
    # What shares its weights with the search network must have its size.
    size = space.papers_size(images.task) if given.effort == "thorough" and not method.inherits else {}
    return Search(
        given, run, images, splits, feed, given.made_costs(), config.build(Final, train, "train"),
        Clock(run, given.seconds if timed else None, began),
        given.space.make(SPACES, size).fitted(images.task),
        given.method.make(METHODS, method.preset(given.effort, len(splits.train), given.device)),
        origin,
    )  # fmt: skip


def record(context: Context) -> None:
    """Write config.toml and env.json, or refuse a directory that belongs to another configuration."""
    run, path = context.run, context.run.path / "config.toml"
    text = config.write_toml(context.config())
    if path.exists():
        old, new = config.read_toml(path), config.read_toml_text(text)
        for name in _LATER:
            if name not in old:
                new.pop(name)
        changes = config.differences(old, new)
        if changes:
            hint = f", or, for another budget on the same search, use `sartor solve {run.path}`"
            raise RunError(
                f"{run.path} holds a run with other options: {'; '.join(changes)}. Choose another --out"
                f"{hint if isinstance(context, Search) else ''}."
            )
        return
    if run.writer:
        run.write("env.json", environment(context))
        with atomic(path) as tmp:
            tmp.write_text(text, encoding="utf-8")


def environment(context: Context) -> dict[str, Any]:
    """Versions, device and time: what a certificate needs to be understood later."""
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    gpu = torch.cuda.get_device_name() if context.engine.device.type == "cuda" else None
    return {
        "sartor": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": found,
        "gpu": gpu,
        "processes": context.engine.world,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def reopened(
    path: Path, reporter: Reporter, budgets: Mapping[str, Any] | None = None, trusted: bool = False,
    target: str | Mapping[str, str] | None = None, **more: Any,
) -> tuple[Search, dict[str, float]]:  # fmt: skip
    """The context of an existing run from its config.toml, with the costs it was made with; and `budgets` read for it.

    `target` is where its device is now, `more` replaces options. Code that config.toml names is imported only where it
    is `trusted`.
    """
    run = Run.open(path, reporter)
    run.done("data")  # refuses a config.toml that was changed
    values = config.read_toml(run.path / "config.toml")
    if values.get("kind") == "compression":
        raise RunError(f"{path} is a compression: its budget decided its rounds. Run `sartor compress` with another.")
    given = from_mapping(values, trusted)
    reporter.imports(named_code(values))
    limits = parse_budgets(budgets or {}, given.costs)
    names = [*sorted(p.stem for p in (run.path / "costs").glob("*.json")), *limits]
    targets = read_targets(target)
    kept = at_new_targets({n: given.costs.get(n, Plug(n, {}, trusted)) for n in names}, targets)
    more |= {} if usual_target(targets) is None else {"target": usual_target(targets)}
    origin = Origin.found(given.start)  # it may be another machine's, or have changed since
    known = run.load(OriginFile) if (run.path / OriginFile.NAME).is_file() else None
    if given.start is not None and (origin is None or (known is not None and known.weights != origin.identity())):
        reporter.say(f"  --start {given.start} no longer leads to the run's weights: it goes on without them")
        origin = None
    start = None if origin is None else origin.path
    given = dataclasses.replace(given, costs=kept, devices=1, nodes=1, start=start, **more)
    return open_context(given, path, reporter, timed=False), {n: float(v) for n, v in limits.items()}
