"""The contract of a search method."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from sartor.core.arch import Arch, hubs, tag
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.registry import METHODS
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.data.base import Splits
from sartor.engine.device import Engine
from sartor.engine.feed import Feed
from sartor.engine.fit import Training
from sartor.engine.length import Length
from sartor.engine.origin import Origin
from sartor.engine.plan import planned
from sartor.runs.directory import Run
from sartor.runs.schema import Gauged
from sartor.spaces.base import Space

Effort = Literal["quick", "standard", "thorough"]


@dataclass(frozen=True, eq=False)
class Gauge:
    """Builds a network and measures what it comes to of those costs that are only predicted."""

    costs: tuple[str, ...]
    measure: Callable[[Arch], Gauged]


@dataclass(frozen=True, eq=False)
class Job:
    """Everything a method may use. It writes below ``run.path / "search"`` and nowhere else."""

    space: Space
    task: Task
    feed: Feed
    splits: Splits
    seeds: Seeds
    run: Run
    seconds: float | None = None  # that the search may take; None: as long as its options say
    began: float = field(default_factory=time.monotonic)
    origin: Origin | None = None  # weights learnt elsewhere, for networks before they are trained
    limits: tuple[Limit, ...] = ()  # the budgets and the space's rules, for a method that looks inside them only
    macs: Quadratic | None = None  # multiply-accumulates of the space's networks, where they are counted
    gauge: Gauge | None = None  # for networks of which the limits' predictions are too close to call
    prepared: object = None  # what `Method.prepare` began

    def __post_init__(self) -> None:
        hubs(self.space.choices)  # before anything is trained: no score can be learnt where a choice needs two others

    @property
    def engine(self) -> Engine:
        """Device and processes."""
        return self.feed.engine

    def timed(self, training: Training, share: float = 1.0) -> Training:
        """The training inside `share` of the search's time.

        Where its recipe says 0 epochs, it gets as many as fit; otherwise its own, fewer where they would take longer.
        """
        epochs, seconds = training.recipe.epochs, share * (self.seconds or 0.0)
        if epochs == 0:
            self.needs_time(f"the epochs of {training.name!r}")
            return planned(training, seconds)
        until = time.monotonic() + seconds
        return training if self.seconds is None else replace(training, length=Length(float(epochs), until))

    @property
    def late(self) -> bool:
        """Whether the search's time is used up: what can be left out then is. All processes must ask at once."""
        return self.seconds is not None and bool(self.engine.agree(time.monotonic() - self.began > self.seconds))

    def needs_time(self, what: str) -> None:
        """Refuse options that leave to the time what no time was given for."""
        if self.seconds is None:
            raise BadInput(f"{what} may be 0, as many as the time allows, only where a time is given. Give --time.")

    def count(self, share: float, each: float, least: int, most: int) -> int:
        """How many pieces of work that take `each` seconds fit into `share` of the search's time, within bounds."""
        return int(np.clip(share * (self.seconds or 0.0) / max(each, 1e-9), least, most))


@dataclass(frozen=True, eq=False)
class Found:
    """What a search returns.

    `score` is the quadratic that the solver maximises, in `unit`. `quality` is its rank correlation
    on held-out networks where the method can measure one. `files` (relative to the run) are what
    the search leaves behind; with ``search/supernet.safetensors`` and ``search/teacher.safetensors``
    among them, or the `start_file` of the chosen network, that inherits its weights; otherwise it is trained from
    scratch.
    """

    score: Quadratic
    unit: str
    quality: Mapping[str, Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()


class Method(ABC):
    """A frozen dataclass whose fields are its options.

    `inherits` says that the search leaves a trained supernet behind, from which the chosen network is only
    fine-tuned; other methods' networks are trained from scratch, which takes longer. `switches` says that the method
    decides on every operation by itself: of a space that names a form for that
    (``free``) it searches that form.
    """

    inherits: ClassVar[bool] = False
    switches: ClassVar[bool] = False
    home: ClassVar[str] = "mobile"  # the space that is searched where none is named
    share: ClassVar[float] = 0.22  # of the time; the rest belongs to the network that comes out

    def share_on(self, device: str) -> float:
        """Of the time, on a kind of device."""
        return self.share

    def prepare(self, job: Job) -> object:
        """Begin what takes a while to be ready, before the space is priced; the search finds it in its job."""
        return None

    @abstractmethod
    def search(self, job: Job) -> Found:
        """Learn the score. Must resume where a killed search stopped and give the same score."""

    @classmethod
    def preset(cls, effort: Effort, images: int, device: str = "cpu") -> dict[str, Any]:
        """Options for an effort, a number of training images and a device; those of ``thorough`` are the paper's."""
        return {}

    @classmethod
    def preset_on(cls, space: type[Space], effort: Effort, images: int, device: str = "cpu") -> dict[str, Any]:
        """`preset`, and at ``thorough`` what the paper says of this space in particular."""
        said = space.papers_search(images) if effort == "thorough" else {}
        return {**cls.preset(effort, images, device), **said.get(METHODS.reference(cls), {})}

    @classmethod
    def paper(cls) -> dict[str, Any]:
        """How the paper trains the network that comes out: the options of ``train`` at ``thorough``."""
        return {"epochs": 250, "batch": 128, "augment": "strong"}


# How DARTS trains a cell's network, and NASI (B.4) and random search with weight sharing after it.
DARTS_TRAINING: dict[str, Any] = {
    "epochs": 600, "batch": 96, "lr": 0.025, "weight_decay": 3e-4, "warmup": 0.0, "smoothing": 0.0, "ema": 0.0,
    "augment": "cutout", "drop_path": 0.2, "auxiliary": 0.4,
}  # fmt: skip


def epochs_for(images: int, seen: int, least: int, most: int) -> int:
    """Epochs in which about `seen` images pass by, within bounds: small data sets need more epochs."""
    return int(min(most, max(least, round(seen / max(1, images)))))


def start_file(arch: Arch) -> str:
    """Where a search leaves the weights of a network that it trained on its own."""
    return f"search/starts/{tag(arch.picks)}.safetensors"
