"""Room that a decision leaves inside the budgets goes to further views of an image: they cost no training.

Where time is scarcer than the budget, a network that uses all of the budget learns too little in it. The one that is
chosen then looks at an image more than once, in one call, as often as all budgets allow (`deploy/views.py`). Costs with
all views are measured of the built network, like the network's own; what does not fit as deployed becomes fewer views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sartor.core.arch import Arch
from sartor.core.units import TIME
from sartor.core.views import VIEWS
from sartor.costs.base import CostTable
from sartor.data.augment import Augment
from sartor.pipeline.cut import Cut
from sartor.runs.schema import SolutionFile, VerifyFile

_CHEAPEST = 0.35  # of a single call's time: what a further view takes at least, so that hopeless ones are not measured
_MORE = 1.01  # times as much: such a cost grows with the views


@dataclass(frozen=True)
class Room:
    """How many views there are, how many times as much each cost is with them, and what measured budgets come to."""

    views: int
    built: Mapping[str, float]
    times: Mapping[str, float] = field(default_factory=dict)


def filled(cut: Cut, arch: Arch, tables: Mapping[str, CostTable], built: Mapping[str, float]) -> Room:
    """As many views as fit; `built` is what the measured budgets come to with one."""
    most = _most(cut, arch)
    for views in sorted((v for v in VIEWS if 1 < v <= most), reverse=True):
        found = _fitting(cut, arch, tables, built, views)
        if found is not None:
            return Room(views, {n: found[n] for n in built}, _times(cut, arch, tables, {**built}, found, views))
    return Room(1, built)


def _most(cut: Cut, arch: Arch) -> int:
    """Views that make sense: of images that the network learns mirrored, and that something limits the computing of."""
    c = cut.context
    if c.train.views == 1 or not Augment.for_task(c.task, c.train.augment).flip:
        return 1
    if not all(c.costs[n].live for n in cut.budgets):  # nobody can tell whether they fit
        return 1
    solved, verified = (cut.run.path / file.NAME for file in (SolutionFile, VerifyFile))
    if solved.is_file() and verified.is_file() and not cut.run.load(VerifyFile).fits:
        before = cut.run.load(SolutionFile)
        if before.arch == arch and before.views > 1:  # so many were over as deployed
            return min(before.views - 1, c.train.views)
    return c.train.views


def _fitting(
    cut: Cut, arch: Arch, tables: Mapping[str, CostTable], built: Mapping[str, float], views: int
) -> dict[str, float] | None:
    """What the limited costs come to with so many views; None where one is over, or none grows with the views."""
    net, found, grows = cut.network(arch), dict[str, float](), False
    for name in sorted(cut.budgets, key=lambda n: n in built):  # what is counted tells at once
        limit, one = cut.budgets[name], built.get(name, tables[name].form(arch))
        if cut.context.costs[name].kind == TIME and (1 + _CHEAPEST * (views - 1)) * one > limit:
            return None
        now = cut.measure(name, net, tables[name], views=views)
        if now.high > limit:
            return None
        found[name], grows = now.value, grows or now.value > _MORE * one
    return found if grows else None


def _times(
    cut: Cut, arch: Arch, tables: Mapping[str, CostTable], one: dict[str, float], all_views: dict[str, float],
    views: int,
) -> dict[str, float]:  # fmt: skip
    """How many times as much every cost is with all views."""
    net = cut.network(arch)
    for name, cost in cut.context.costs.items():
        if name not in all_views and cost.live:
            all_views[name] = cut.measure(name, net, tables[name], views=views).value
        if name not in one and name in all_views:
            one[name] = cut.measure(name, net, tables[name]).value
    return {n: all_views[n] / one[n] for n in all_views if one[n] > 0}
