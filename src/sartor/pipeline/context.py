"""What every stage of a run works with, made from the options once."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from sartor.core import config
from sartor.core.errors import RunError
from sartor.core.registry import METHODS, SPACES
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.costs.base import CostTable
from sartor.data.augment import statistics
from sartor.data.base import Images, Splits
from sartor.data.open import open_data
from sartor.data.split import split
from sartor.engine.device import Engine
from sartor.engine.feed import Feed
from sartor.engine.recipe import Recipe
from sartor.methods.base import Job, Method, epochs_for
from sartor.pipeline import options
from sartor.pipeline.options import Options
from sartor.runs.directory import Run, write_json
from sartor.spaces.base import Space
from sartor.version import __version__

_PACKAGES = ("torch", "numpy", "scipy", "lightning-fabric", "onnx", "onnxruntime", "safetensors", "pillow")


@dataclass(frozen=True, eq=False)
class Context:
    """Options resolved against the data: everything the stages need, and nothing that they make."""

    options: Options
    run: Run
    engine: Engine
    images: Images
    splits: Splits
    space: Space
    method: Method
    train: Recipe

    @property
    def task(self) -> Task:
        """Classes and image shape."""
        return self.images.task

    @cached_property
    def seeds(self) -> Seeds:
        """Random streams."""
        return Seeds(self.options.seed)

    @cached_property
    def feed(self) -> Feed:
        """Batches, normalised by the training split's statistics."""
        mean, std = statistics(self.images, self.splits.train)
        return Feed(self.images, tuple(mean), tuple(std), self.seeds, self.engine)

    @cached_property
    def costs(self) -> dict[str, Any]:
        """The costs by name."""
        return options.costs(self.options)

    @property
    def job(self) -> Job:
        """What a search method gets."""
        return Job(self.space, self.task, self.feed, self.splits, self.seeds, self.run)

    def tables(self) -> dict[str, CostTable]:
        """The cost tables that the costs stage wrote."""
        return {n: CostTable.from_json(self.run.read(f"costs/{n}.json")) for n in self.costs}

    def config(self) -> dict[str, Any]:
        """Everything that decides the result."""
        return options.to_mapping(self.options, self.method, self.space, self.train)


def open_context(given: Options, path: Path, reporter: Any, engine: Engine | None = None) -> Context:
    """Open data and devices and complete the options by the effort's presets."""
    if METHODS[given.method].switches:
        given = dataclasses.replace(given, space=getattr(SPACES[given.space], "free", given.space))
    engine = engine or Engine(given.device, given.devices, given.nodes)
    run = Run(path, reporter, engine.rank == 0, engine.agree)
    run.reporter.silent = run.reporter.silent or engine.rank > 0
    largest = options.LARGEST_IMAGE[given.effort]
    with reporter.bar("reading images", 100) as bar:
        images = open_data(given.data, given.image, lambda n, done, total: bar.to(100 * done // total), largest)
    engine.set_threads(images.task.image)
    seeds = Seeds(given.seed)
    splits = split(images, seeds.rng("split"), given.val, given.test)
    method = METHODS[given.method]
    presets = method.preset(given.effort, len(splits.train))
    method = config.build(method, {**presets, **given.method_options}, "method")
    space = config.build(SPACES[given.space], given.space_options, "space").fitted(images.task)
    train = config.build(Recipe, {**_train_preset(given, len(splits.train)), **given.train_options}, "train")
    return Context(given, run, engine, images, splits, space, method, train)


def _train_preset(given: Options, images: int) -> dict[str, Any]:
    """Fine-tuning as BINAS does it when thorough; shorter, at a higher rate, below that.

    Methods that leave no trained supernet behind train from scratch, which takes longer.
    """
    inherits = METHODS[given.method].inherits
    if given.effort == "thorough":
        return {"epochs": 50, "lr": 0.00128, "batch": 128, "weight_decay": 1e-5, "smoothing": 0.0} if inherits else {
            "epochs": 250, "batch": 128, "augment": "strong"}  # fmt: skip
    quick = given.effort == "quick"
    if inherits:
        epochs = epochs_for(images, 14_000 if quick else 100_000, 2, 12 if quick else 60)
        return {
            "epochs": epochs,
            "lr": 0.03,
            "weight_decay": 1e-5,
            "smoothing": 0.0,
            "augment": "light" if quick else "standard",
        }
    epochs = epochs_for(images, 30_000 if quick else 250_000, 4, 25 if quick else 150)
    return {"epochs": epochs, "augment": "light" if quick else "standard"}


def record(context: Context) -> None:
    """Write config.toml and env.json, or refuse a directory that belongs to another configuration."""
    run, text = context.run, config.write_toml(context.config())
    path = run.path / "config.toml"
    if path.exists():
        changes = config.differences(config.read_toml(path), config.read_toml_text(text))
        if changes:
            raise RunError(
                f"{run.path} holds a run with other options: {'; '.join(changes)}. Choose another --out, or, for "
                f"another budget on the same search, use `sartor solve {run.path}`."
            )
        return
    if run.writer:
        write_json(run.path / "env.json", environment(context))
        from sartor.runs.directory import atomic

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


def reopened(path: Path, reporter: Any) -> Context:
    """The context of an existing run, from its config.toml."""
    run = Run.open(path, reporter)
    run.done("data")  # refuses a config.toml that was changed
    values: Mapping[str, Any] = config.read_toml(run.path / "config.toml")
    given = options.from_mapping(values)
    return open_context(dataclasses.replace(given, devices=1, nodes=1), path, reporter)
