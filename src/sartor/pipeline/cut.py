"""One set of budgets on one search: what the stages after it ask for, whichever command they belong to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from sartor.core.arch import Arch, tag
from sartor.core.errors import Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.costs.base import Cost, CostTable, Measured, Occasion, Tick, cache_folder
from sartor.deploy.export import load_weights
from sartor.engine import checkpoint
from sartor.engine.network import Teacher
from sartor.engine.origin import Origin
from sartor.methods.base import start_file
from sartor.pipeline.context import Context, Search
from sartor.runs.directory import Run, read_file
from sartor.runs.schema import ModelFile, ScoreFile, SolutionFile
from sartor.spaces.base import Space
from sartor.spaces.supernet import new_supernet


@dataclass(frozen=True, eq=False)
class Start:
    """A network about to be trained; `masks` say which of its weights are alive, where not all are."""

    net: nn.Module
    teacher: Teacher | None = None
    inherited: bool = False  # whether its weights were learnt by the search, for these images
    elsewhere: bool = False  # or somewhere else
    masks: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)  # further entries of training.json

    @property
    def fresh(self) -> bool:
        """Whether nothing has been learnt yet."""
        return not (self.inherited or self.elsewhere)


@dataclass(frozen=True, eq=False)
class Cut(ABC):
    """Where the files go, and which budgets must hold."""

    advice: ClassVar[str] = "choose another space"
    subject: ClassVar[str] = "any network of this space"
    traded: ClassVar[bool] = True  # whether the frontier of all trade-offs is written

    context: Context
    run: Run

    @property
    @abstractmethod
    def budgets(self) -> Mapping[str, float]:
        """In the costs' own units."""

    @property
    def seconds(self) -> float | None:
        """How long the network is trained; else for the recipe's epochs."""
        return None

    @property
    @abstractmethod
    def space(self) -> Space:
        """What is chosen from."""

    @abstractmethod
    def goal(self) -> Quadratic:
        """The score."""

    @abstractmethod
    def start(self, arch: Arch) -> Start:
        """The chosen network with the weights that it inherits."""

    @property
    def origin(self) -> Origin | None:
        """Where weights come from that were learnt elsewhere: they must prove to be better than none."""
        return None

    def phase(self, arch: Arch) -> str:
        """A name for the network's training: another architecture must never resume from its checkpoint."""
        return tag(arch.picks)

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """How to build the network again, for arch.json."""

    def decided(self, arch: Arch) -> list[str]:
        """Files of its own that follow from the decision."""
        return []

    def network(self, arch: Arch) -> nn.Module:
        """A network of the space, for its shapes: to be timed, or to take trained weights."""
        return self.space.network(arch, self.context.task)

    def trained(self) -> nn.Module:
        """The trained network, on the CPU."""
        net = self.network(chosen(self.run))
        net.load_state_dict(checkpoint.load(self.run.path / "model/trained.safetensors"))
        return net.cpu().eval()

    def rebuilt(self) -> nn.Module:
        """The exported network, made again from the model folder's own files."""
        net = self.network(Arch(self.run.load(ModelFile).picks))
        load_weights(net, self.run.path / "model/weights.safetensors")
        return net.cpu().eval()

    def known_space(self) -> Space | None:
        """The space where it is at hand without work."""
        return None

    # costs -------------------------------------------------------------------------------------

    def price(self, cost: Cost, tick: Tick) -> CostTable:
        """The cost's table over the space."""
        return cost.table(self.space, self.context.task, tick, cache_folder())

    @property
    def precision(self) -> Literal["float32", "int8"]:
        """In which the network is deployed: as it was decided, before that as it was asked for."""
        path = self.run.path / SolutionFile.NAME
        told = self.run.load(SolutionFile).precision if path.is_file() else None
        if told is None:  # older runs tell by their tables
            tables = [self._kept(name) for name in self.context.costs]
            small = any(table is not None and table.precision == "int8" for table in tables)
            told = "int8" if small or self.context.options.precision == "int8" else "float32"
        return "int8" if told == "int8" else "float32"

    def tables(self, precision: str | None = None) -> dict[str, CostTable]:
        """The cost tables, with the corrections that this budget's measurements brought.

        In the precision that was decided on, or in a given one, where that is priced by itself.
        """
        wanted = self.precision if precision is None else precision
        return {name: self._table(name, wanted) for name in self.context.costs}

    def _table(self, name: str, precision: str) -> CostTable:
        base, kept = self.context.run.path / "costs", self._kept(name)
        small = base / f"int8/{name}.json"
        own = precision == "int8" and small.exists()  # else its price is the same in 8 bits
        if kept is not None and kept.precision == ("int8" if own else "float32"):
            return kept
        return read_file(small if own else base / f"{name}.json", CostTable)

    def _kept(self, name: str) -> CostTable | None:
        """The budget's own form of a table, where it has one."""
        own = self.run.path / f"{name}.json"
        return read_file(own, CostTable) if own.exists() else None

    def limits(self, tables: Mapping[str, CostTable]) -> tuple[Limit, ...]:
        """The budgets and the space's own rules."""
        budgets = (tables[name].limit(high) for name, high in self.budgets.items())
        return (*budgets, *self.space.rules)

    @property
    def measured(self) -> list[str]:
        """The budgets that only a measurement can confirm, where there is something to measure on."""
        costs = self.context.costs
        return [n for n in self.budgets if costs[n].measured and costs[n].live]

    @property
    def axis(self) -> str:
        """The cost that the frontier is drawn against: the first measured budget, else the first; one at any rate.

        It is a sum over parts, as a frontier is.
        """
        costs = self.context.costs
        every = [n for n in costs if costs[n].measured] + [n for n in costs if n == Cost.guide] + list(costs)
        return next(n for n in (*self.measured, *self.budgets, *every) if costs[n].sums)

    def measure(
        self, name: str, net: nn.Module, table: CostTable | None = None, file: Path | None = None, views: int = 1
    ) -> Measured:
        """What a network comes to as deployed, with so many views: counted or measured once, for all processes."""
        c, found = self.context, None
        if c.run.writer:
            # Without a table it is the given network, from which shares become budgets. Views that are tried may well
            # be over: nobody waits for a machine on which they might not be.
            tried = table is None or (views > 1 and file is None)
            limit = None if tried else self.budgets.get(name)
            at = Occasion(file, table, limit, self.run.log, c.clock.wait)
            cost = c.costs[name] if table is None else c.costs[name].in_precision(table.precision)
            found = cost.measure(c.deployed(net, views), c.shape, at)
        agreed: Measured = c.engine.agree(found)
        return agreed

    def correct(self, table: CostTable, arch: Arch, amount: float, both_ways: bool = False) -> CostTable:
        """The table after a measurement of `arch`, kept beside this budget's files unless that in other bits is."""
        made, kept = self.context.costs[table.cost].correct(table, arch, amount, both_ways), self._kept(table.cost)
        return self.keep(made) if kept is None or kept.precision == made.precision else made

    def keep(self, table: CostTable) -> CostTable:
        """Write this budget's own form of a table."""
        self.run.write(f"{table.cost}.json", table.to_json())
        self.context.engine.barrier()
        return table

    def tried(self) -> dict[Arch, float]:
        """Networks that the search trained on their own, and what each is worth in units of the score."""
        return {}

    def finalists(self) -> set[Arch]:
        """Those of them that it trained longest: it knows them best."""
        return set()

    def gauged(self, cost: str, precision: str) -> dict[Arch, float]:
        """What networks came to that were built and measured before the search, in a precision."""
        return {}

    def impossible(self, name: str, asked: float, least: float) -> Infeasible:
        """The error that says by how much."""
        kind = self.context.costs[name].kind
        return Infeasible(
            f"{name} <= {kind.show(asked)} cannot be met: the least {self.subject} needs is {kind.show(least)}. "
            f"Raise the budget or {self.advice}.",
            limit=name, asked=asked, least=least,
        )  # fmt: skip


def chosen(run: Run) -> Arch:
    """The architecture that the solve stage wrote."""
    return run.load(SolutionFile).arch


def views(run: Run) -> int:
    """How many views of an image it is to look at."""
    return run.load(SolutionFile).views


@dataclass(frozen=True, eq=False)
class FitCut(Cut):
    """A budget on a fit's search."""

    context: Search
    limited: Mapping[str, float]

    @property
    def budgets(self) -> Mapping[str, float]:
        """As they were asked."""
        return self.limited

    @property
    def space(self) -> Space:
        """The one that was searched."""
        return self.context.space

    def known_space(self) -> Space:
        """The one that was searched."""
        return self.space

    @property
    def origin(self) -> Origin | None:
        """As `--start` says."""
        return self.context.origin

    def goal(self) -> Quadratic:
        """The score that the search stage wrote."""
        return self.context.run.load(ScoreFile).checked(self.context.run.path / ScoreFile.NAME).score

    def tried(self) -> dict[Arch, float]:
        """As the search stage wrote them; the last trial of a network knows it best."""
        trials = self.context.run.load(ScoreFile).facts.trials or ()
        return {Arch(t.picks): t.value for t in trials if t.value is not None}

    def finalists(self) -> set[Arch]:
        """Those of the last rung."""
        trials = self.context.run.load(ScoreFile).facts.trials or ()
        return {Arch(t.picks) for t in trials if t.rung == max(t.rung for t in trials)}

    def gauged(self, cost: str, precision: str) -> dict[Arch, float]:
        """As the search stage wrote them."""
        gauged = self.context.run.load(ScoreFile).facts.gauged or ()
        return {Arch(g.picks): g.costs[cost] for g in gauged if g.precision == precision and cost in g.costs}

    def start(self, arch: Arch) -> Start:
        """From the search's weights where it left any, with the heaviest network as teacher; else from scratch."""
        c, folder = self.context, self.context.run.path / "search"
        own = self.context.run.path / start_file(arch)
        if own.exists() and c.train.start == "inherited":
            net = self.network(arch)
            net.load_state_dict(checkpoint.load(own))
            return Start(c.engine.place(net), inherited=True)
        if c.train.start == "fresh" or not (folder / "supernet.safetensors").exists():
            return Start(c.engine.place(self.network(arch)))
        supernet = new_supernet(c.space, c.task)
        supernet.load_state_dict(checkpoint.load(folder / "supernet.safetensors"))
        teacher = self.network(c.space.heaviest)
        teacher.load_state_dict(checkpoint.load(folder / "teacher.safetensors"))
        net = c.engine.place(supernet.extract(arch))
        return Start(net, Teacher(c.engine.place(teacher).eval().requires_grad_(False)), inherited=True)

    def described(self) -> dict[str, Any]:
        """The space."""
        return {"space": self.context.config()["space"]}
