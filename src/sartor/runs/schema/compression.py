"""What a compression leaves besides: the given network, the rounds, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sartor.core.units import Kind
from sartor.runs.codec import RunFile
from sartor.runs.schema.budget import Measured
from sartor.runs.schema.shapes import Epoch


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
