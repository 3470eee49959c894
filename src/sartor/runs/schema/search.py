"""What a search leaves: images, environment, score, and the facts of every method."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from sartor.core.arch import Choice
from sartor.core.errors import RunError
from sartor.core.quadratic import Limit, Quadratic, counted_once
from sartor.core.task import Task
from sartor.runs.codec import RunFile, formerly, rest
from sartor.runs.schema.shapes import Epoch, Floats, Ints


@dataclass(frozen=True)
class Skipped:
    """A file that could not be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class SplitsFile(RunFile):
    """Which images were trained on, validated on and tested on."""

    NAME: ClassVar[str] = "splits.json"
    train: Ints
    val: Ints
    test: Ints
    name: str
    classes: tuple[str, ...]
    digest: str
    digest_of: str
    task: Task
    mean: Floats
    std: Floats
    skipped: tuple[Skipped, ...]
    native: int | None = None  # the images' own shorter side (the median), where it was known


@dataclass(frozen=True)
class Environment(RunFile):
    """Versions, device and time."""

    NAME: ClassVar[str] = "env.json"
    sartor: str
    python: str
    platform: str
    packages: Mapping[str, str | None]
    gpu: str | None
    processes: int
    started: str


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Quality:
    """How well a score ranks networks that it had not seen."""

    networks: int
    kendall: Estimate
    spearman: Estimate
    mse: Estimate


@dataclass(frozen=True)
class HeldOut:
    """Networks that the score had not seen: what it predicted and what they measured."""

    picks: tuple[Ints, ...]
    predicted: Floats
    measured: Floats
    halves: tuple[Floats, ...] | None = None  # measured on either half of the images


@dataclass(frozen=True)
class MixtureGroup:
    """Choices whose weights are learnt alike."""

    choices: tuple[str, ...]
    options: int
    replicas: int


@dataclass(frozen=True)
class GroupState:
    """A group at the end of an epoch."""

    entropy: float
    remaining: float
    others: Mapping[str, float | None] = rest()


@dataclass(frozen=True)
class MixtureEpoch:
    """All groups at the end of an epoch; `weights` by group, choice and option."""

    epoch: int
    groups: tuple[GroupState, ...]
    weights: tuple[tuple[Floats, ...], ...]


@dataclass(frozen=True)
class Mixture:
    """How a mixture of operations was decided, epoch by epoch."""

    groups: tuple[MixtureGroup, ...]
    epochs: tuple[MixtureEpoch, ...]


@dataclass(frozen=True)
class Removal:
    """A switch that was turned off, and why."""

    switch: str
    why: str


@dataclass(frozen=True)
class SwitchRound:
    """A round of pruning switches."""

    round: int
    removed: tuple[Removal, ...]
    kept: tuple[str, ...]
    left: int
    edges: int
    isolated: tuple[str, ...]


@dataclass(frozen=True)
class Posterior:
    """What is known about one switch; `removed` is the round that turned it off, or 0."""

    switch: str
    reads: str
    feeds: str | None
    edge: bool
    places: int
    mean: float
    variance: float
    s: float
    gamma: float
    entropy: float
    removed: int


@dataclass(frozen=True)
class Switches:
    """What a search by switches learnt."""

    threshold: float
    dependency: str
    hessian: str
    strength: float
    rounds: tuple[SwitchRound, ...]
    posterior: tuple[Posterior, ...]


@dataclass(frozen=True)
class Trial:
    """A network that was trained for a while: `seconds` and `epochs` in all, `accuracy` on validation images."""

    picks: Ints
    rung: int
    accuracy: float
    seconds: float
    epochs: float
    why: str  # landmark, drawn, onward, optimum, doubt
    name: str = ""  # of a landmark
    value: float | None = None  # what it is worth after all trials, at the last rung's level


@dataclass(frozen=True)
class Pace:
    """Seconds of a typical step, and how far a network's own speed decides its epochs: 0 not at all, 1 equal times.

    On a CPU also how a step is computed, in so many hands, each of so many threads; and the seconds for which the
    network that comes out will be trained, counted as a trial's are: what a trial promises depends on its network's
    speed.
    """

    step: float
    power: float
    hands: int = 1
    threads: int = 0  # as many as there were: on a GPU's host, and in older runs
    last: float = 0.0  # 0 where that is not looked at


@dataclass(frozen=True)
class Gauged:
    """A well-known network as built and measured in a precision: the tables had it just outside a budget."""

    picks: tuple[int, ...]
    precision: str
    costs: Mapping[str, float]


@dataclass(frozen=True)
class TrialsFile(RunFile):
    """Networks in the first rung, epochs of each of its trainings, rungs, and what was tried so far.

    Networks whose training step is more work than `most` would see too few epochs in the time. Whether well-known ones
    just outside by prediction are inside was measured: `gauged`.
    """

    NAME: ClassVar[str] = "search/trials.json"
    networks: int
    epochs: float
    rungs: int
    pace: Pace | None
    trials: tuple[Trial, ...]
    most: float | None = None
    gauged: tuple[Gauged, ...] = ()


@dataclass(frozen=True)
class Facts:
    """What a method tells beside its score: those that the report shows, by name, and any `others`."""

    history: Mapping[str, tuple[Epoch, ...]] | None = None
    heaviest_accuracy: float | None = None
    held_out: HeldOut | None = None
    mixture: Mixture | None = None
    switches: Switches | None = None
    trials: tuple[Trial, ...] | None = None
    most: float | None = None  # work of a training step of what was tried, where larger networks would take too long
    gauged: tuple[Gauged, ...] | None = None
    others: Mapping[str, Any] = rest()


@dataclass(frozen=True, eq=False)
class Rule:
    """What every network of the space must meet: ``low <= form <= high``; None is no limit."""

    name: str
    form: Quadratic
    low: float | None
    high: float | None

    @classmethod
    def of(cls, limit: Limit) -> Rule:
        """A rule of a space, as JSON can have it."""
        low, high = (v if math.isfinite(v) else None for v in (limit.low, limit.high))
        return cls(limit.name, limit.form, low, high)

    @property
    def limit(self) -> Limit:
        """As solvers take it."""
        low, high = -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high
        return Limit(self.name, self.form, high, low)


@dataclass(frozen=True, eq=False)
class ScoreFile(RunFile):
    """What the search learnt."""

    NAME: ClassVar[str] = "score.json"
    method: str
    unit: str
    quality: Quality | None
    facts: Facts
    choices: tuple[Choice, ...]
    score: Quadratic
    rules: tuple[Rule, ...] | None = None  # of the space: what a proof needs besides costs; None in older runs

    def checked(self, path: Path) -> ScoreFile:
        """The same, if its choices and its score are about the same things; else the file is refused."""
        sizes = tuple(len(c.options) for c in self.choices)
        needs = [(i, option) for c in self.choices for i, options in c.needs for option in options]
        if sizes != self.score.sizes or not all(0 <= i < len(sizes) and 0 <= k < sizes[i] for i, k in needs):
            raise RunError(f"{path}: its choices and its score must be of the same sizes. Restore it.")
        return self

    @property
    def explained(self) -> Quadratic:
        """The score that explanations read: every decision's own worth, also where BINAS measured as in its paper."""
        paper = self.facts.others.get("estimator") == "paper"
        return counted_once(self.score, self.choices) if paper else self.score


@dataclass(frozen=True)
class Correction:
    """A network that was built, measured over the budget and turned down."""

    picks: Ints = formerly("arch")
    predicted: float = formerly("predicted_ms")
    measured: float = formerly("measured_ms")


@dataclass(frozen=True)
class TableNotes:
    """What measurements taught a table of prices, and what else its cost notes."""

    corrections: tuple[Correction, ...] = ()
    others: Mapping[str, Any] = rest()


@dataclass(frozen=True)
class Calibration:
    """A table of measured prices against whole networks."""

    intercept_ms: float
    scale: float
    errors: Floats
    held_out_errors: Floats
    held_out_median_error: float
    held_out_worst_error: float
    networks: tuple[Ints, ...]
    measured_ms: Floats
    reference_ms: float | None
    rounds: int
    spearman: float | None = None
    timed_parts: int | None = None  # of parts of which only some are timed; None: runs older than that
    inferred_parts: int = 0
    inferred_median_error: float | None = None
