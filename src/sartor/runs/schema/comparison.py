"""What could have been trained instead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from sartor.core.units import Kind
from sartor.runs.codec import RunFile


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
