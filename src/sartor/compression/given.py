"""The network to compress and its data: from a run directory, a Python factory or a module. Never from a pickle."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sartor.compression.options import Options
from sartor.compression.surgery import Plan, apply
from sartor.core import config
from sartor.core.errors import BadInput, RunError, SartorError
from sartor.core.registry import load
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.data.augment import statistics
from sartor.data.base import Images, Splits
from sartor.data.open import open_data
from sartor.data.split import split
from sartor.deploy.export import load_weights
from sartor.deploy.module import evaluating
from sartor.engine.device import Engine
from sartor.engine.feed import Feed
from sartor.engine.seeding import seeded
from sartor.pipeline.options import LARGEST_IMAGE, costs
from sartor.pipeline.options import Options as FitOptions
from sartor.pipeline.rebuild import rebuild
from sartor.runs.codec import decode
from sartor.runs.directory import Run, read_json

PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt")


@dataclass(frozen=True, eq=False)
class Job:
    """Everything a compression works with, made from the options once."""

    options: Options
    run: Run
    images: Images
    splits: Splits
    feed: Feed
    net: nn.Module  # as given, on the CPU; its weights are not touched
    costs: dict[str, Any]

    @property
    def task(self) -> Task:
        """Classes and image shape."""
        return self.images.task

    @property
    def engine(self) -> Engine:
        """Device and processes."""
        return self.feed.engine

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of one image."""
        return (self.task.channels, self.task.image, self.task.image)

    def example(self) -> torch.Tensor:
        """Random images for tracing; a batch of two, which no code mistakes for a constant."""
        return torch.randn(2, *self.shape, generator=torch.Generator().manual_seed(0))


def inherited(options: dict[str, Any]) -> dict[str, Any]:
    """Options completed by those of the run directory that is compressed: the same data, cut the same way."""
    model = str(options.get("model", ""))
    if not Path(model).is_dir():
        return options
    path = Path(model) / "config.toml"
    if not path.is_file():
        raise RunError(f"{model} is not a run directory: it has no config.toml. Give the folder named by --out.")
    before = config.read_toml(path)
    kept: dict[str, Any] = {k: before[k] for k in ("data", "image", "val", "test", "seed", "threads") if k in before}
    return {**kept, **options}


def open_job(given: Options, path: Path, reporter: Any, module: nn.Module | None = None) -> Job:
    """Open data, device and network, and complete the options."""
    engine = Engine(given.device)
    run = Run(path, reporter)
    image = given.image
    with reporter.bar("reading images", 100) as bar:
        images = open_data(
            given.data, image, lambda n, done, total: bar.to(100 * done // total), LARGEST_IMAGE[given.effort]
        )
    engine.set_threads(images.task.image)
    seeds = Seeds(given.seed)
    splits, moments = _splits(given, images, seeds)
    mean, std = moments or statistics(images, splits.train)
    feed = Feed(images, tuple(mean), tuple(std), seeds, engine)
    with seeded(seeds.number("given network")):
        net = module if module is not None else open_network(given.model, images.task, given.weights)
    _check(net, images.task, given.model)
    priced = costs(FitOptions(
        data=given.data, budgets={"params": 1.0}, device=given.device, runtime=given.runtime, threads=given.threads,
    ))  # fmt: skip
    priced["latency"] = replace(priced["latency"], rounds=9, visit_ms=2.0, networks=10)  # many parts, all alike
    return Job(given.completed(len(splits.train)), run, images, splits, feed, net, priced)


def _splits(given: Options, images: Images, seeds: Seeds) -> tuple[Splits, tuple[Any, Any] | None]:
    """The run's own splits and normalisation where its network is compressed on the same images; else new ones."""
    before = Path(given.model) / "splits.json"
    if Path(given.model).is_dir() and before.is_file():
        known = read_json(before)
        if known.get("digest") == images.digest():
            return Splits.from_json(known), (known["mean"], known["std"])
    return split(images, seeds.rng("split"), given.val, given.test), None


def open_network(model: str, task: Task, weights: str | None = None) -> nn.Module:
    """The network that `model` names: a run directory, or ``package.module:function``."""
    path = Path(model)
    if path.suffix.lower() in PICKLES:
        raise BadInput(
            f"{model} is a pickle, which is not loaded because unpickling can run any code. Give the factory that "
            "makes the network, package.module:function, and its weights as safetensors with --weights."
        )
    if path.is_dir():
        return reopen(path)
    net = _make(model, task)
    if weights is not None:
        load_weights(net, weights)
    return net


def reopen(path: Path, module: nn.Module | None = None) -> nn.Module:
    """The network of any finished run: a fit's, or a compression's, which is the given one cut by its plan.

    `module` is the given network, where it was a module rather than a factory or a run directory.
    """
    described = read_json(path / "model/arch.json")
    if "given" not in described:
        return rebuild(path)
    task = decode(Task, described["task"], "arch.json: ")
    net = module if module is not None else open_network(described["given"], task)
    net = apply(net, Plan.from_json(read_json(path / "model/plan.json")))
    load_weights(net, path / "model/weights.safetensors")
    return net.eval()


def _make(model: str, task: Task) -> nn.Module:
    """Call the factory with those of classes, image and channels that it names."""
    if ":" not in model:
        raise BadInput(f"the model must be package.module:function or a run directory, but is {model!r}.")
    factory = load(model)
    try:
        wanted = inspect.signature(factory).parameters
        known = {"classes": task.classes, "image": task.image, "channels": task.channels}
        net = factory(**{k: v for k, v in known.items() if k in wanted})
    except SartorError:
        raise
    except Exception as error:  # the factory is the user's code: whatever it raises is about the input
        raise BadInput(f"{model} must return a network when called, but raised {error!r}.") from error
    if not isinstance(net, nn.Module):
        raise BadInput(f"{model} must return an nn.Module, but returned a {type(net).__name__}.")
    return net


def _check(net: nn.Module, task: Task, model: str) -> None:
    """Images in, one logit a class out."""
    x = torch.zeros(2, task.channels, task.image, task.image, device=next(iter(net.parameters())).device)
    try:
        with evaluating(net):
            out = net(x)
    except Exception as error:  # a network for other images fails in its own way
        raise BadInput(f"{model} must take images of shape {tuple(x.shape[1:])}, but: {error}") from error
    if not isinstance(out, torch.Tensor) or out.shape != (2, task.classes):
        raise BadInput(
            f"{model} must return one logit for each of the {task.classes} classes, but returned "
            f"{tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__} for 2 images."
        )


def fingerprint(net: nn.Module) -> str:
    """A sha256 over every name and value: the identity of the given network."""
    digest = hashlib.sha256()
    for name, value in net.state_dict().items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value.detach().cpu().float().numpy()).tobytes())
    return digest.hexdigest()
