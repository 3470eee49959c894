"""The contract of a cost, and the table that prices a whole space from its parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic, additive
from sartor.core.task import Task
from sartor.spaces.base import Part, Shape, Space

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
    kind: str  # "time", "count" or "bytes": see sartor.core.units
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
        try:
            prices = {str(k): Price(*map(float, v)) for k, v in data["prices"].items()}
            form = Quadratic.from_json(data["form"])
            return cls(str(data["cost"]), str(data["kind"]), prices, form, data["device"], data["calibration"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadInput(f"this is not a cost table as Sartor writes it: {error!r}.") from error


class Cost(ABC):
    """A frozen dataclass whose fields are its options; `kind` says the unit (see sartor.core.units)."""

    kind: ClassVar[str]

    @abstractmethod
    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """What a whole module costs at an input of `in_shape` (batch 1)."""

    @abstractmethod
    def table(self, space: Space, task: Task, tick: Tick = silent, cache: Path | None = None) -> CostTable:
        """Price every distinct part of the space; `tick(name, done, total)` reports progress.

        `cache` is a folder where a cost that is measured keeps its prices for the next time; one that is
        counted has no use for it.
        """


def distinct(parts: Sequence[Part]) -> dict[str, Part]:
    """One part of every key."""
    return {part.key: part for part in parts}


def priced(space: Space, parts: Sequence[Part], prices: Mapping[str, Price]) -> Quadratic:
    """The cost of every network of the space as a quadratic, from the prices of its parts."""
    return additive(space.sizes, [(part.when, prices[part.key].value) for part in parts])


def counted(name: str, cost: Cost, space: Space, task: Task, tick: Tick = silent) -> CostTable:
    """The table of a cost that is counted exactly: every distinct part is built without memory and counted once."""
    import torch

    parts = list(space.parts(task))
    each = distinct(parts)
    prices = {}
    for done, (key, part) in enumerate(each.items(), start=1):
        with torch.device("meta"):
            module = part.build()
        prices[key] = Price.exact(cost.of(module, part.in_shape))
        tick(name, done, len(each))
    return CostTable(name, cost.kind, prices, priced(space, parts, prices))
