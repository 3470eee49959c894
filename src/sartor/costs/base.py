"""The contract of a cost, and the table that prices a whole space from its parts.

A cost is one file: its unit (`kind`), the price of a part, and the count or measurement of a built network. Counted
costs need no more than `of`. A cost that is measured says so (`measured`), prices parts in a `table` of its own, and
gives in `measure` what a network as deployed comes to; a network over its budget then corrects the table.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.quadratic import Largest, Limit, Quadratic, additive
from sartor.core.task import Task
from sartor.core.units import Kind
from sartor.runs.directory import cache_folder as kept_in
from sartor.runs.directory import read_file
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

    def __sub__(self, less: float) -> Price:
        return Price(*(max(v - less, 0.0) for v in (self.value, self.low, self.high)))

    def __mul__(self, factor: float) -> Price:
        return Price(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True)
class Measured:
    """What a built network comes to; `high` is the upper end of what the measurement allows, and must fit too."""

    value: float
    high: float
    details: Mapping[str, Any] = field(default_factory=dict)  # further entries of verify.json
    lower: float | None = None  # end of what the measurement allows, where that is known

    @property
    def low(self) -> float:
        """What it comes to at least."""
        return self.value if self.lower is None else self.lower

    @classmethod
    def exact(cls, value: float) -> Measured:
        """Counted."""
        return cls(value, value)


@dataclass(frozen=True, eq=False)
class CostTable:
    """The price of every distinct part, and so of every network of a space."""

    cost: str
    kind: Kind
    prices: Mapping[str, Price]
    form: Quadratic
    device: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For costs/NAME.json."""
        return {
            "cost": self.cost,
            "kind": self.kind.to_json(),
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
            form, kind = Quadratic.from_json(data["form"]), Kind.from_json(data["kind"])
            return cls(str(data["cost"]), kind, prices, form, dict(data["device"]), dict(data["calibration"]))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadInput(f"this is not a cost table as Sartor writes it: {error!r}.") from error

    @property
    def precision(self) -> str:
        """Of the networks that it prices."""
        return str(self.device.get("precision", "float32"))

    @property
    def corrections(self) -> list[dict[str, Any]]:
        """What measurements taught the table: ``picks``, ``predicted`` and ``measured`` of every one."""
        return [
            {"picks": e["arch"], **{k: e[k] if k in e else e[f"{k}_ms"] for k in ("predicted", "measured")}}
            for e in self.calibration.get("corrections", ())
        ]

    def limit(self, high: float) -> Limit:
        """The budget as solvers take it: a sum over choices, also where the largest part counts."""
        return Limit(self.cost, self.form.over(high) if isinstance(self.form, Largest) else self.form, high)

    def scaled(self, arch: Arch, measured: float, both_ways: bool = False) -> CostTable:
        """The table after a built network measured more than predicted: all it predicts, times measured / predicted.

        A network that did not measure more changes nothing, so that a correction only ever makes a budget safer;
        with `both_ways` it scales the table down, which makes room for a larger network. Every correction is listed
        in ``calibration["corrections"]``.
        """
        predicted = self.form(arch)
        if not (math.isfinite(measured) and measured > 0):
            raise BadInput(f"what was measured must be a positive number, but got {measured}.")
        if measured == predicted or (measured < predicted and not both_ways):
            return self
        # Parts too small to be measured add up to nothing that could be scaled: then every network gets the difference.
        factor = measured / predicted if predicted > 0 else 1.0
        form = self.form * factor
        form = form if predicted > 0 else form + Quadratic(form.sizes, measured - predicted)
        entry = {"arch": list(arch.picks), "predicted": predicted, "measured": float(measured), "factor": factor}
        notes = {**self.calibration, "corrections": [*self.calibration.get("corrections", ()), entry]}
        prices = {k: p * factor for k, p in self.prices.items()}
        return replace(self, prices=prices, form=form, calibration=notes)


@dataclass(frozen=True, eq=False)
class Occasion:
    """What is known where a network is measured.

    `file` is its exported form where there is one, `table` what predicted it, `limit` what it may cost, `say` tells
    the person who waits, and `wait` whether there is time for so many seconds of that.
    """

    file: Path | None = None
    table: CostTable | None = None
    limit: float | None = None
    say: Callable[[str], None] = print
    wait: Callable[[float], bool] = lambda _: True


ANY = Occasion()  # nothing is known
INT8 = {"precision": "int8"}  # what tables say that price networks in 8 bits


class Cost(ABC):
    """A frozen dataclass whose fields are its options."""

    name: ClassVar[str]  # of its budget and its files; the class's own unless it says another
    kind: ClassVar[Kind]
    measured: ClassVar[bool] = False  # else counted: exact, the same everywhere, and cheap
    usual: ClassVar[bool] = True  # a counted one is told of every network; else only where it is limited or asked for
    sums: ClassVar[bool] = True  # a network costs the sum of its parts; else as much as the largest of them
    repeatable: ClassVar[bool | None] = None  # whether the same file measures the same anywhere; None: if counted
    guide: ClassVar[str] = "macs"  # the counted cost that leads towards a budget of a measured one

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__.lower()

    @classmethod
    def again(cls) -> bool:
        """Whether the same network must come to the same anywhere."""
        return not cls.measured if cls.repeatable is None else cls.repeatable

    @property
    def live(self) -> bool:
        """Whether networks can be measured now; on a device that is known by its profile alone they cannot."""
        return True

    def identity(self) -> dict[str, Any]:
        """What a measured value depends on besides the network: the device, its runtime; refused where it cannot be."""
        return {}

    def int8(self) -> Cost | None:
        """The same cost of networks in 8 bits; None where these cost no less, or are not priced by themselves."""
        return None

    def in_precision(self, precision: str) -> Cost:
        """The cost of networks in a precision."""
        return (self.int8() if precision == "int8" else None) or self

    def profile(self, folder: Path) -> dict[str, Any]:
        """What the price cache in `folder` knows of the device, for use without it."""
        return {}

    @abstractmethod
    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """What a whole module costs at an input of `in_shape` (batch 1)."""

    def table(self, space: Space, task: Task, tick: Tick = silent, cache: Path | None = None) -> CostTable:
        """Price every distinct part of the space; `tick(name, done, total)` reports progress.

        A counted part is built without memory and counted once. `cache` is a folder where a cost that is measured may
        keep its prices for the next time.
        """
        parts, each = built(space, task)
        prices = {}
        for done, (key, (part, module)) in enumerate(each.items(), start=1):
            prices[key] = Price.exact(self.of(module, part.in_shape))
            tick(self.name, done, len(each))
        return CostTable(self.name, self.kind, prices, priced(space, parts, prices, self.sums), self.identity())

    def measure(self, net: nn.Module, in_shape: Shape, at: Occasion = ANY) -> Measured:
        """What a network that takes pixels comes to as it is deployed."""
        return Measured.exact(self.of(net, in_shape))

    def compare(self, net: nn.Module, files: Mapping[str, Path], in_shape: Shape) -> dict[str, Measured]:
        """What a network comes to in several exported forms, measured so that they can be compared."""
        return {name: self.measure(net, in_shape, Occasion(file)) for name, file in files.items()}

    def correct(self, table: CostTable, arch: Arch, measured: float, both_ways: bool = False) -> CostTable:
        """The table after a network was measured; a counted one is exact and stays (see `CostTable.scaled`)."""
        return table.scaled(arch, measured, both_ways) if self.measured else table


def built(space: Space, task: Task) -> tuple[list[Part], dict[str, tuple[Part, nn.Module]]]:
    """A space's parts, and every distinct one as a module without memory, made once for all costs that look at it."""
    try:
        return _built(space, task)
    except TypeError:  # a space that cannot be hashed
        return _built.__wrapped__(space, task)


@lru_cache(maxsize=1)
def _built(space: Space, task: Task) -> tuple[list[Part], dict[str, tuple[Part, nn.Module]]]:
    import torch

    parts = list(space.parts(task))
    with torch.device("meta"):
        return parts, {key: (part, part.build()) for key, part in distinct(parts).items()}


def cache_folder() -> Path | None:
    """Where measured prices are kept for the next run: SARTOR_CACHE, nowhere if it is empty, else the user's cache."""
    return kept_in("prices")


def as_priced(costs: Path, own: Path) -> dict[str, CostTable]:
    """The tables in a run's folder `costs`, in the precision that the budget decided on whose files are in `own`."""
    found = {}
    for path in sorted(costs.glob("*.json")):
        mine = own / path.name
        small = mine.is_file() and read_file(mine, CostTable).precision == "int8"
        found[path.stem] = read_file(costs / "int8" / path.name if small else path, CostTable)
    return found


def distinct(parts: Sequence[Part]) -> dict[str, Part]:
    """One part of every key."""
    return {part.key: part for part in parts}


def priced(space: Space, parts: Sequence[Part], prices: Mapping[str, Price], sums: bool = True) -> Quadratic:
    """The cost of every network of the space as a quadratic, from the prices of its parts: their sum or the largest."""
    terms = [(part.when, prices[part.key].value) for part in parts]
    return additive(space.sizes, terms) if sums else additive(space.sizes, terms, max)
