"""What stands in the JSON files of a run, one class a file: `Run.load` reads them, `Run.save` writes them.

Fields are the files' keys. To change one, raise the class's `FORMAT` and let its older form still be read: give a new
field a default, a renamed one its older name (`formerly`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sartor.core.arch import Arch, Choice
from sartor.core.quadratic import Quadratic
from sartor.core.task import Task
from sartor.core.units import Kind
from sartor.runs.codec import RunFile, formerly, rest

Ints = tuple[int, ...]
Floats = tuple[float, ...]
Epoch = Mapping[str, float | None]  # an epoch's losses and speed
Device = Mapping[str, str | int | float | None]  # what measured values depend on


# the search --------------------------------------------------------------------------------------


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
class Facts:
    """What a method tells beside its score: those that the report shows, by name, and any `others`."""

    history: Mapping[str, tuple[Epoch, ...]] | None = None
    heaviest_accuracy: float | None = None
    held_out: HeldOut | None = None
    mixture: Mixture | None = None
    switches: Switches | None = None
    others: Mapping[str, Any] = rest()


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


# a cost table's notes: see sartor.costs.base.CostTable for the table ------------------------------


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


# one budget --------------------------------------------------------------------------------------


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
    metric: str = "accuracy"  # what these percentages are: the task's


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


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One cost of a network as it is."""

    kind: Kind
    measured: float
    timing: TimingSummary | None = None
    others: Mapping[str, Any] = rest()  # what else a cost tells of its measurement


@dataclass(frozen=True, kw_only=True)
class Verified(Measured):
    """One cost of the chosen network, with what was asked where it was limited."""

    predicted: float
    limit: float | None = None
    holds: bool | None = None


@dataclass(frozen=True)
class VerifyFile(RunFile):
    """Every cost of the network as deployed."""

    NAME: ClassVar[str] = "verify.json"
    fits: bool
    costs: Mapping[str, Verified]
    device: Device


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


# the certificate ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Accuracy:
    """What the task measures a network by (`metric`), in percent."""

    test: float
    test_images: int
    validation: float | None  # None: the validation images were trained on too
    before_fine_tuning: float | None
    metric: str = "accuracy"


@dataclass(frozen=True)
class Proof:
    """The score of the chosen network, and how far it is from the best possible."""

    method: str
    unit: str
    value: float
    bound: float | None
    gap: float | None
    proven_optimal: bool
    solver: str


@dataclass(frozen=True)
class DataIdentity:
    """Which images, and how many in each part."""

    name: str
    sha256: str
    sha256_of: str
    train: int
    validation: int
    skipped: int


@dataclass(frozen=True)
class Code:
    """Which Sartor."""

    sartor: str
    sha256: str


@dataclass(frozen=True)
class Certificate(RunFile):
    """What was asked, what was delivered, and how anyone can check it."""

    NAME: ClassVar[str] = "certificate.json"
    fits: bool
    budgets: Mapping[str, Verified]
    costs: Mapping[str, Verified]
    accuracy: Accuracy
    score: Proof
    ranking: Quality | None
    architecture: Mapping[str, str]
    string: str
    corrections: tuple[Correction, ...]
    data: DataIdentity
    weights: Mapping[str, str]
    code: Code
    device: Device
    environment: Environment
    seed: int
    made: str


@dataclass(frozen=True)
class Stage:
    """A completed stage: the sha256 of every file it wrote."""

    files: Mapping[str, str]
    seconds: float
    finished: str


@dataclass(frozen=True)
class StagesFile(RunFile):
    """Every completed stage, by name."""

    NAME: ClassVar[str] = "stages.json"
    stages: Mapping[str, Stage] = rest()


# a comparison ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contestant:
    """A network of a comparison: what it gets right and costs, or in `missing` why there is none."""

    name: str
    network: str
    searched: bool  # whether it is from the space that the run searched
    accuracy: float | None = None
    costs: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None  # of training
    epochs: int | None = None
    missing: str | None = None


@dataclass(frozen=True)
class CompareFile(RunFile):
    """The run's network beside what could have been trained instead inside the same budgets."""

    NAME: ClassVar[str] = "compare.json"
    budgets: Mapping[str, float]
    axis: str
    kinds: Mapping[str, Kind]  # of every cost
    seconds: float  # of training, each
    metric: str
    test_images: int
    own: Contestant
    rivals: tuple[Contestant, ...]
    inherited_seconds: float = 0.0  # of the search that trained the weights which the run's network began with


# a compression -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class BaselineFile(RunFile):
    """The given network."""

    NAME: ClassVar[str] = "baseline.json"
    val_accuracy: float
    test_accuracy: float
    trained_here: int
    history: tuple[Epoch, ...]
    costs: Mapping[str, Measured]


@dataclass(frozen=True)
class PruningRound:
    """What one round of Algorithm 3 left."""

    round: int
    loss: float
    penalty: float
    groups_left: Mapping[str, Mapping[str, int]]
    limits: Mapping[str, float]
    weights: int
    of_weights: int
    channels: int
    val_trained: float
    val_pruned: float
    seconds: float


@dataclass(frozen=True)
class Width:
    """Channels that are decided together."""

    name: str
    channels: int
    layers: tuple[str, ...]


@dataclass(frozen=True)
class RoundsFile(RunFile):
    """Algorithm 3, round by round."""

    NAME: ClassVar[str] = "rounds.json"
    structures: tuple[str, ...]
    strength: float
    rounds: tuple[PruningRound, ...]
    widths: tuple[Width, ...]


@dataclass(frozen=True)
class LayerTotal:
    """All layers together, or one of them: weights, multiply-accumulates and milliseconds."""

    weights: float
    nonzero: float
    macs: float
    ms: float


@dataclass(frozen=True, kw_only=True)
class LayerSize(LayerTotal):
    """One layer."""

    in_: int
    out: int


@dataclass(frozen=True)
class LayerRow:
    """One layer before and after; None where it went."""

    layer: str
    kind: str
    before: LayerSize
    after: LayerSize | None


@dataclass(frozen=True)
class Totals:
    """All layers, before and after."""

    before: LayerTotal
    after: LayerTotal


@dataclass(frozen=True)
class Change:
    """One cost of the whole network, before and after."""

    kind: Kind
    before: float
    after: float


@dataclass(frozen=True)
class AccuracyChange:
    """Percent of test and validation images right, before and after."""

    before: float
    after: float
    val_before: float
    val_after: float


@dataclass(frozen=True)
class CompressionFile(RunFile):
    """The network before and after, layer by layer."""

    NAME: ClassVar[str] = "compression.json"
    layers: tuple[LayerRow, ...]
    totals: Totals
    gone: tuple[str, ...]
    pixels: Mapping[str, int]
    network: Mapping[str, Change]
    accuracy: AccuracyChange


FILES: dict[str, type[RunFile]] = {kind.NAME: kind for kind in RunFile.__subclasses__()}
