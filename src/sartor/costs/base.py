"""The contract of a cost, and the table that prices a whole space from its parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sartor.quadratic import Quadratic, additive
from sartor.spaces.base import Part, Shape, Space
from sartor.task import Task

if TYPE_CHECKING:
    from torch import nn


Tick = Callable[[str, int, int], None]


def silent(name: str, done: int, total: int) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True)
class Price:
    """What one part costs, with a 95 % interval where it was measured rather than counted."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Price:
        """A counted price has no spread."""
        return cls(value, value, value)


@dataclass(frozen=True, eq=False)
class CostTable:
    """The price of every distinct part, and so of every network of a space."""

    cost: str
    kind: str  # "time", "count" or "bytes": see sartor.units
    prices: Mapping[str, Price]
    form: Quadratic
    device: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For costs/NAME.json."""
        return {
            "cost": self.cost,
            "kind": self.kind,
            "device": dict(self.device),
            "calibration": dict(self.calibration),
            "prices": {k: [p.value, p.low, p.high] for k, p in self.prices.items()},
            "form": self.form.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CostTable:
        """Read what `to_json` wrote."""
        prices = {k: Price(*map(float, v)) for k, v in data["prices"].items()}
        form = Quadratic.from_json(data["form"])
        return cls(data["cost"], data["kind"], prices, form, data["device"], data["calibration"])


class Cost(ABC):
    """A frozen dataclass whose fields are its options; `kind` says the unit (see sartor.units)."""

    kind: str

    @abstractmethod
    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """What a whole module costs at an input of `in_shape` (batch 1)."""

    @abstractmethod
    def table(self, space: Space, task: Task, tick: Tick = silent) -> CostTable:
        """Price every distinct part of the space; `tick(name, done, total)` reports progress."""


def distinct(parts: Sequence[Part]) -> dict[str, Part]:
    """One part of every key."""
    return {part.key: part for part in parts}


def priced(space: Space, parts: Sequence[Part], prices: Mapping[str, Price]) -> Quadratic:
    """The cost of every network of the space as a quadratic, from the prices of its parts."""
    return additive(space.sizes, [(part.when, prices[part.key].value) for part in parts])
