"""The network to compress and its data: from a run directory, a Python factory or a module. Never from a pickle."""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sartor.compression.options import Compression
from sartor.compression.surgery import Plan, apply
from sartor.core import config
from sartor.core.errors import BadInput, RunError, SartorError
from sartor.core.registry import load
from sartor.core.task import Task
from sartor.data.naming import named_code, refuse_code
from sartor.deploy.export import load_weights
from sartor.deploy.module import evaluating
from sartor.engine.device import Engine
from sartor.engine.loggers import AUTO, made_loggers
from sartor.engine.seeding import seeded
from sartor.pipeline.context import Context, open_data_of
from sartor.pipeline.rebuild import rebuild
from sartor.runs.clock import Clock
from sartor.runs.directory import Run, read_json, refuse_links
from sartor.runs.progress import Reporter
from sartor.runs.schema import ModelFile

_DEEPEST = 50  # compressions of compressions
PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt")


@dataclass(frozen=True, eq=False)
class Given(Context):
    """What a compression works with besides the data: the given network."""

    options: Compression
    net: nn.Module  # on the CPU; its weights are not touched

    def example(self) -> torch.Tensor:
        """Random images for tracing; a batch of two, which no code mistakes for a constant."""
        return torch.randn(2, *self.shape, generator=torch.Generator().manual_seed(0))

    def config(self) -> dict[str, Any]:
        """Everything that decides the result."""
        return {"kind": "compression", **super().config(), "given_sha256": fingerprint(self.net)}


def inherited(options: dict[str, Any]) -> dict[str, Any]:
    """Options completed by those of the run directory that is compressed: the same data, cut the same way."""
    model = str(options.get("model", ""))
    if not Path(model).is_dir():
        return options
    path = Path(model) / "config.toml"
    if not path.is_file():
        raise RunError(f"{model} is not a run directory: it has no config.toml. Give the folder named by --out.")
    Run.open(model).done("data")  # refuses a config.toml that was changed
    before = config.read_toml(path)
    kept: dict[str, Any] = {k: before[k] for k in ("data", "image", "val", "test", "seed", "threads") if k in before}
    if "data" not in options:
        refuse_code(kept)
    return {**kept, **options}


def open_given(
    given: Compression, path: Path, reporter: Reporter, module: nn.Module | None = None, trusted: bool = False
) -> Given:
    """Open data, device and network, and complete the options.

    A run's network comes with the run's own splits and normalisation, where the images are the same.
    """
    engine = Engine(given.device, loggers=made_loggers(AUTO, path))
    images, splits, feed = open_data_of(given, reporter, engine, Path(given.model))
    with seeded(feed.seeds.number("given network")):
        net = module if module is not None else open_network(given.model, images.task, given.weights, trusted)
    _check(net, images.task, given.model)
    given = given.completed(len(splits.train))
    run = Run(path, reporter)
    return Given(given, run, images, splits, feed, given.made_costs(), given.training, Clock(run, None), net)


def open_network(
    model: str, task: Task, weights: str | None = None, trusted: bool = False, inside: tuple[Path, ...] = ()
) -> nn.Module:
    """The network that `model` names: ``package.module:function``, or a run directory (`trusted`: see `reopen`)."""
    path = Path(model)
    if path.suffix.lower() in PICKLES:
        raise BadInput(
            f"{model} is a pickle, which is not loaded because unpickling can run any code. Give the factory that "
            "makes the network, package.module:function, and its weights as safetensors with --weights."
        )
    if path.is_dir():
        if weights is not None:
            raise BadInput(
                f"--weights are for a network that a function makes, but {model} brings its own. Leave it out."
            )
        return reopen(path, None, trusted, inside)
    net = _make(model, task)
    if weights is not None:
        load_weights(net, weights)
    return net


def reopen(
    path: Path, module: nn.Module | None = None, trusted: bool = False, inside: tuple[Path, ...] = ()
) -> nn.Module:
    """The network of any finished run: a fit's, or a compression's, which is the given one cut by its plan.

    `module` is the given network, where it was a module rather than a factory or a run directory. Code that the run's
    files name is imported only where they are `trusted`. `inside` are the runs that were made from this one.
    """
    run = Run(path)
    refuse_links(path)
    if not (run.done("solve") and run.done("export")):
        raise RunError(f"{path} holds no finished network. Run the same command again to finish it.")
    described = run.load(ModelFile)
    if trusted:
        Reporter().imports(named_code({"given": described.given, "space": described.space}))
    if described.given is None:
        return rebuild(path, trusted)
    if module is None and ":" in described.given:
        load(described.given, trusted=trusted)
    if path.resolve() in inside or len(inside) > _DEEPEST:
        raise RunError(
            f"{path} must be made from another network, but names {described.given}, which leads back to it."
        )
    if module is None:
        module = open_network(described.given, described.task, None, trusted, (*inside, path.resolve()))
    net = _cut_by(module, path / "model/plan.json")
    load_weights(net, path / "model/weights.safetensors")
    return net.eval()


def _cut_by(net: nn.Module, plan: Path) -> nn.Module:
    """The network after the plan in a file; a plan for another network is refused by the file's name."""
    try:
        return apply(net, Plan.from_json(read_json(plan)))
    except (BadInput, ValueError, IndexError, AttributeError, AssertionError, RuntimeError) as error:
        raise RunError(f"{plan} must be a plan for the given network, but: {error}") from error


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
    first = next(net.parameters(), None)
    if first is None:
        raise BadInput(f"{model} must be a network with weights, but has none: there is nothing to make smaller.")
    x = torch.zeros(2, task.channels, task.image, task.image, device=first.device)
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


def default_folder(model: str) -> Path:
    """Where a compression goes when nobody says."""
    name = model.rpartition(":")[2] if ":" in model else Path(model).resolve().name
    return Path("runs") / f"{name or 'network'}-compressed"
