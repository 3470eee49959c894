"""What could have been trained instead of a run's network, inside the same budgets: networks to choose one from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import nn

from sartor.core.arch import Arch, canonical
from sartor.core.errors import require
from sartor.core.quadratic import Quadratic
from sartor.core.task import Task
from sartor.costs.base import Cost, CostTable, Tick, cache_folder
from sartor.methods.trials.design import draw
from sartor.pipeline.cut import Cut, FitCut, Start
from sartor.solvers import cheapest
from sartor.spaces.base import Space
from sartor.spaces.plain.space import Plain
from sartor.spaces.whole import Entry, WholeNetworks

# Kinds of plain networks: how their names begin and end.
_FAMILIES = {
    "ResNet": ("resnet", "-s1"),
    "ResNet, stem of stride 2": ("resnet", "-s2"),
    "MobileNetV2": ("mobilenetv2", ""),
    "MobileNetV3": ("mobilenetv3", ""),
}
_PLAINLY = "ResNet"  # of these one is trained by a plain loop as well: what the recipe is worth
_DRAWN, _KEPT = 4000, 200  # random networks that are drawn, and those among them that are looked at
_LARGE = 64  # networks that use a budget up, of which the largest is taken
_RANDOM = 2  # random networks of the run's own space
_NEAR = 1.1  # predictions above a budget that a measurement may still bring below it


@dataclass(frozen=True)
class Listed(WholeNetworks):
    """The networks that one group chooses from."""

    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Group:
    """Networks of one kind with what they cost, as far as that is known before they are built."""

    name: str
    space: Listed
    tables: Mapping[str, CostTable]
    searched: bool = False  # from the space that the run searched
    plain: bool = False  # trained without what makes the run's recipe better


@dataclass(frozen=True, eq=False)
class Rival(Cut):
    """A group's largest network inside the budgets, trained from scratch as the run's own was trained."""

    subject: ClassVar[str] = "any of these networks"
    advice: ClassVar[str] = "go without them"
    traded: ClassVar[bool] = False

    group: Group
    limited: Mapping[str, float]
    share: float = 0.0  # seconds of training

    @property
    def seconds(self) -> float:
        """As long as every other rival."""
        return self.share

    @property
    def budgets(self) -> Mapping[str, float]:
        """Those of the run."""
        return self.limited

    @property
    def space(self) -> Space:
        """The group's networks."""
        return self.group.space

    def goal(self) -> Quadratic:
        """The more multiply-accumulates, the better: nothing is known about these networks but their size."""
        return self.group.tables[Cost.guide].form

    @property
    def possible(self) -> bool:
        """Whether any of the networks may fit."""
        every = np.arange(len(self.group.space.entries))[:, None]
        return bool(_within(self.group.tables, self.budgets, every, self.measured).any())

    def start(self, arch: Arch) -> Start:
        """Fresh weights, no teacher."""
        return Start(self.context.engine.place(self.network(arch)))

    def described(self) -> dict[str, Any]:
        """The network's name says it all."""
        return {"rival": self.group.name}

    def tables(self, precision: str | None = None) -> dict[str, CostTable]:
        """The group's, which are in the run's precision, with what measurements taught."""
        files = {n: f"{n}.json" for n in self.group.tables if (self.run.path / f"{n}.json").exists()}
        return {**self.group.tables, **{n: CostTable.from_json(self.run.read(f)) for n, f in files.items()}}


def groups(cut: FitCut, budgets: Mapping[str, float], timm: Sequence[str], tick: Tick) -> list[Group]:
    """The plain families, the named networks of timm, and some of the run's own space."""
    plain = Plain().entries
    named = [Entry(name, partial(_timm, name)) for name in timm]
    names = [n for n, cost in cut.context.costs.items() if n in budgets or not cost.measured]
    tables = {n: _priced(cut, n, [*plain, *named], tick) for n in names}
    families = {
        title: [e for e in plain if e.name.startswith(first) and e.name.endswith(last)]
        for title, (first, last) in _FAMILIES.items()
    }
    made = []
    for title, entries in (*families.items(), *((f"timm {e.name}", [e]) for e in named)):
        keys = [e.key(cut.context.task) for e in entries]
        made.append(Group(title, Listed(tuple(entries)), {n: _part(t, keys) for n, t in tables.items()}))
    by_hand = [replace(g, name=f"{g.name} by a plain loop", plain=True) for g in made if g.name == _PLAINLY]
    return made + by_hand + _searched(cut, budgets, names)


def _priced(cut: FitCut, name: str, entries: list[Entry], tick: Tick) -> CostTable:
    """A table of all these networks, from the run where it has one."""
    run, task, file = cut.run, cut.context.task, f"compare/{name}.json"
    if (run.path / file).exists():
        table = CostTable.from_json(run.read(file))
        if all(e.key(task) in table.prices for e in entries):
            return table
    cost = cut.context.costs[name].in_precision(cut.tables()[name].precision)
    table = replace(cost.table(Listed(tuple(entries)), task, tick, cache_folder()), cost=name)
    run.write(file, table.to_json())
    return table


def _part(table: CostTable, keys: Sequence[str]) -> CostTable:
    """The prices of some of the table's networks."""
    values = np.array([table.prices[key].value for key in keys])
    form = Quadratic((len(keys),), table.form.constant, {0: values})
    return replace(table, prices={key: table.prices[key] for key in keys}, form=form)


def _searched(cut: FitCut, budgets: Mapping[str, float], names: Sequence[str]) -> list[Group]:
    """From the space that the run searched: the smallest; large and random ones, of which the largest is taken."""
    space, seeds, tables = cut.space, cut.context.seeds, cut.tables()
    guide = tables[Cost.guide].form
    least = canonical(space.choices, cheapest(guide, space.rules).arch)
    found = [_of_space(cut, "smallest of the space", [least], names)]
    # The very largest would be a subset-sum problem of its own; of those that use a budget up one is about as large.
    limits = (*(tables[n].limit(high) for n, high in budgets.items()), *space.rules)
    large = [least]
    if all(limit.holds(least) for limit in limits):
        large = draw(space.choices, limits, least, _LARGE, seeds.rng("compare heaviest"))
    found.append(_of_space(cut, "heaviest of the space", sorted(large, key=guide, reverse=True), names))
    for k in range(_RANDOM):
        rng = seeds.rng("compare", k)
        picks = space.sample_picks(rng, _DRAWN)
        # Uniform networks are all of a middling size; those that share decisions with the smallest reach every budget.
        keep = rng.random(picks.shape) < rng.random((_DRAWN, 1))
        picks = np.where(keep, np.asarray(least.picks), picks)
        fits = _within(tables, budgets, picks, cut.measured)
        for rule in space.rules:
            value = rule.form.batch(picks)
            fits &= (value >= rule.low) & (value <= rule.high)
        picks = picks[fits]
        largest = picks[np.argsort(-guide.batch(picks), kind="stable")]
        largest = largest[:: max(1, len(largest) // _KEPT)]  # of every size: a measurement may turn the largest down
        archs = {canonical(space.choices, Arch(tuple(row.tolist()))): None for row in largest}
        found.append(_of_space(cut, f"random {k + 1} of the space", list(archs) or [least], names))
    return found


def _within(
    tables: Mapping[str, CostTable], budgets: Mapping[str, float], picks: ArrayLike, measured: Sequence[str]
) -> NDArray[np.bool_]:
    """Which networks may fit: counted budgets hold exactly, measured ones may turn out a little lower."""
    fits = np.ones(len(np.asarray(picks)), bool)
    for name, high in budgets.items():
        fits &= tables[name].form.batch(picks) <= high * (_NEAR if name in measured else 1.0)
    return fits


def _of_space(cut: FitCut, title: str, archs: list[Arch], names: Sequence[str]) -> Group:
    tables, picks = cut.tables(), [a.picks for a in archs]
    entries = tuple(Entry(cut.space.describe(a), partial(cut.space.network, a)) for a in archs)
    forms = {n: Quadratic((len(archs),), 0.0, {0: tables[n].form.batch(picks)}) for n in names}
    notes = {n: {**tables[n].calibration, "corrections": []} for n in names}
    made = {n: replace(tables[n], prices={}, form=form, calibration=notes[n]) for n, form in forms.items()}
    return Group(title, Listed(entries), made, searched=True)


def _timm(name: str, task: Task) -> nn.Module:
    """A network of timm's, untrained, for the task's classes."""
    net: nn.Module = require("timm", "timm").create_model(name, num_classes=task.classes, in_chans=task.channels)
    return net
