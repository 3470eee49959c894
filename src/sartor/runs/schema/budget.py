"""What one budget leaves: solution, frontier, training, verification, the exported model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.core.units import Kind
from sartor.runs.codec import RunFile, rest
from sartor.runs.schema.origin import Started
from sartor.runs.schema.search import Correction
from sartor.runs.schema.shapes import Device, Epoch, Floats, Ints


@dataclass(frozen=True)
class Solved:
    """A solver's answer; an unknown bound is None."""

    picks: Ints
    score: float
    bound: float | None
    gap: float | None
    proven: bool
    solver: str
    seconds: float


@dataclass(frozen=True)
class Spread:
    """A measured value between the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Compared:
    """Both forms of a network measured together, in the same rounds."""

    float32: Spread
    int8: Spread

    @property
    def faster(self) -> bool:
        """Whether 8 bits take less, beyond what the measurements leave open."""
        return self.int8.high < self.float32.low

    @property
    def slower(self) -> bool:
        """Whether 8 bits seem to take no less."""
        return self.int8.value >= self.float32.value


@dataclass(frozen=True)
class SolutionFile(RunFile):
    """The best network inside the budgets."""

    NAME: ClassVar[str] = "solution.json"
    budgets: Mapping[str, float]
    solution: Solved
    architecture: Mapping[str, str]
    string: str
    predicted: Mapping[str, float]
    corrections: tuple[Correction, ...]
    drawing: Mapping[str, Any] | None = None  # see sartor.spaces.drawing
    built: Mapping[str, float] = field(default_factory=dict)  # what was measured before it was trained
    precision: str | None = None  # in which it is to be deployed; None in older runs
    why: str | None = None  # in that one, where there was a choice
    compared: Mapping[str, Compared] = field(default_factory=dict)  # both of the best network in 8 bits, by cost
    views: int = 1  # of an image, over which the deployed network averages
    times: Mapping[str, float] = field(default_factory=dict)  # as much as the table says costs are with all views

    @property
    def arch(self) -> Arch:
        """The chosen architecture."""
        return Arch(self.solution.picks)


@dataclass(frozen=True)
class FrontierFile(RunFile):
    """Every optimal trade-off between the score and the cost on the axis, with all costs of every point."""

    NAME: ClassVar[str] = "frontier.json"
    axis: str
    kind: Kind
    complete: bool
    cost: Floats
    score: Floats
    picks: tuple[Ints, ...]
    costs: Mapping[str, Floats]
    strings: tuple[str, ...]
    kinds: Mapping[str, Kind] | None = None  # of every one of the costs

    def __post_init__(self) -> None:
        columns = (self.score, self.picks, self.strings, *self.costs.values())
        if any(len(column) != len(self.cost) for column in columns) or len({len(row) for row in self.picks}) > 1:
            raise BadInput(
                "every column of the frontier must have one entry a point, and every point the same choices."
            )


@dataclass(frozen=True)
class TrainingFile(RunFile):
    """How the chosen network was trained, and what it gets right."""

    NAME: ClassVar[str] = "training.json"
    history: tuple[Epoch, ...]
    seconds: float
    inherited_val_accuracy: float | None
    kept: str
    val_accuracy: float | None  # None: the validation images were trained on too
    test_accuracy: float
    given_val_accuracy: float | None = None
    teacher: str | None = None  # which network it imitated, where that was trained for it alone
    metric: str = "accuracy"  # what these percentages are: the task's
    per_class: tuple[float | None, ...] | None = None  # of the test images; None of a class that has none there
    balanced_accuracy: float | None = None  # their mean
    unseen_accuracy: float | None = None  # without test images that equal, or nearly, one that was trained on
    held_out: int | None = None  # validation images that were not trained on, though the others were: they judge 8 bits
    started: Started | None = None  # what it took of weights learnt elsewhere
    one_view_accuracy: float | None = None  # where it is deployed with several views: of the test images themselves


@dataclass(frozen=True)
class TimingSummary:
    """How long one network takes: see sartor.deploy.timing.Timing."""

    unit: str
    p50: float
    p95: float
    low: float
    high: float
    n: int
    reference_ms: float | None
    drift: float | None
    rounds: Floats


@dataclass(frozen=True)
class Form:
    """The network in one precision: what it gets right of the same images, its file, and how long a call takes."""

    val_accuracy: float
    test_accuracy: float
    balanced_accuracy: float
    per_class: tuple[float | None, ...]
    bytes: int
    unseen_accuracy: float | None = None  # without test images that equal, or nearly, one that was trained on
    timing: TimingSummary | None = None  # at the first target where both were timed; older runs knew one only


@dataclass(frozen=True)
class QuantisedFile(RunFile):
    """Both precisions of the network, and which of them is deployed: see sartor.pipeline.precision."""

    NAME: ClassVar[str] = "quantised.json"
    asked: str
    used: bool  # whether 8 bits are deployed
    why: str
    way: str
    tried: Mapping[str, float]  # what each way got right of the validation images, in percent
    reduce_range: bool
    calibration_images: int
    validation_images: int
    metric: str
    float32: Form
    int8: Form
    compared: Mapping[str, Compared] = field(default_factory=dict)  # how long a call takes, by cost
    held_out: bool | None = None  # whether the validation images were not trained on; None in older runs

    @property
    def faster(self) -> bool:
        """Whether 8 bits take less time wherever both were timed."""
        if self.compared:
            return not any(both.slower for both in self.compared.values())
        one, other = self.int8.timing, self.float32.timing
        return one is None or other is None or one.p50 < other.p50

    @property
    def lost(self) -> float:
        """Points of accuracy on the images that decide."""
        return self.float32.val_accuracy - self.int8.val_accuracy


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One cost of a network as it is."""

    kind: Kind
    measured: float
    timing: TimingSummary | None = None
    others: Mapping[str, Any] = rest()  # what else a cost tells of its measurement


@dataclass(frozen=True)
class Slowed:
    """The same network as built: what it measured before it was trained, and right after the trained one."""

    before: float
    now: float

    def __post_init__(self) -> None:
        if not 0 < self.before <= self.now:
            raise BadInput(
                f"a device that became slower must not take less time, but took {self.before} and then {self.now}."
            )

    @property
    def times(self) -> float:
        """How much slower the device has become."""
        return self.now / self.before


@dataclass(frozen=True, kw_only=True)
class Verified(Measured):
    """One cost of the chosen network, with what was asked where it was limited."""

    predicted: float
    limit: float | None = None
    holds: bool | None = None
    device: Device | None = None  # where it was priced
    slowed: Slowed | None = None  # a device on which it is over its limit now, and would not be at the speed of before
    on_device: bool | None = None  # False: predicted by the device's profile and not measured there; None: counted


@dataclass(frozen=True)
class VerifyFile(RunFile):
    """Every cost of the network as deployed."""

    NAME: ClassVar[str] = "verify.json"
    fits: bool
    costs: Mapping[str, Verified]
    device: Device


def held(measured: float, limit: float, slowed: Slowed | None) -> bool:
    """Whether a limit holds, at the speed that the device had when the network was chosen."""
    return measured <= limit * (slowed.times if slowed else 1.0)


@dataclass(frozen=True)
class ModelFile(RunFile):
    """How to rebuild the network: a `space` with its options, or the `given` network of a compression."""

    NAME: ClassVar[str] = "model/arch.json"
    task: Task
    architecture: Mapping[str, str]
    picks: Ints
    string: str
    onnx_error: float
    space: Mapping[str, Any] | None = None
    given: str | None = None


@dataclass(frozen=True)
class Input:
    """The tensor that goes in."""

    name: str
    type: str
    layout: str
    range: tuple[float, float]


@dataclass(frozen=True)
class Output:
    """The tensor that comes out."""

    name: str
    meaning: str


@dataclass(frozen=True)
class Normalisation:
    """Mean and deviation of each channel, and whether the exported network subtracts them itself."""

    mean: Floats
    std: Floats
    in_graph: bool


@dataclass(frozen=True)
class Preprocessing(RunFile):
    """What happens to an image before the network, and what its outputs mean."""

    NAME: ClassVar[str] = "model/preprocessing.json"
    image: int
    channels: int
    colour: str
    resize: str
    input: Input
    output: Output
    normalisation: Normalisation
    labels: tuple[str, ...]
    task: Task | None = None  # None in runs that knew one kind only
    views: int = 1  # of an image, taken and averaged over inside the model

    def __post_init__(self) -> None:
        Task(len(self.labels), self.image, self.channels)  # refuses what cannot be
        if self.task is not None and self.task.classes != len(self.labels):
            raise BadInput(f"labels must be {self.task.classes}, one for each class, but are {len(self.labels)}.")
