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
    views: int = 1  # of an image, over which it averages
    apart: tuple[int, int] | None = (
        None  # test images that it alone gets right, and those that the run's own alone does
    )

    @property
    def described(self) -> str:
        """Which network it is, as far as its name does not say: the description of a searched one would fill a page."""
        parts = [] if self.searched or not self.network else [self.network]
        return ", ".join([*parts, *([f"{self.views} views"] if self.views > 1 else [])])


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
