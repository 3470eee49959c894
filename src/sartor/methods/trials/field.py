"""The networks that a search looks at: inside the budgets, and such as suit its images and its time.

Every question about "a network that fits" is asked here, so that all answers go by the same limits. There are always
some: a limit of the search's own is only drawn where networks are left that meet it together with all others.
"""

from __future__ import annotations

from functools import cached_property
from itertools import zip_longest
from typing import final

import numpy as np

from sartor.core.arch import Arch, canonical
from sartor.core.errors import Infeasible
from sartor.core.quadratic import Limit, Quadratic, inside
from sartor.costs.step import Step
from sartor.methods.base import Job
from sartor.methods.trials.design import draw, largest
from sartor.runs.schema import Gauged
from sartor.solvers import cheapest, solve
from sartor.solvers.base import Problem

_ROOM = 2.0  # a limit on the work of a step leaves networks of so many times the least work, at least
_AGAIN = 0.8  # what is left of such a limit, if it is worth another one
_SIZES = 4.0  # by which the largest network exceeds the smallest, where there is something to choose from
_SEEN = 8  # networks drawn to see how large they are
_NEAR = 1.15  # predictions above a budget that a measurement may bring below it
_GAUGING, _GAUGED, _MOST_GAUGED = 0.05, 2.5, 12  # share of the time for such measurements, seconds of one, their number


@final
class Field:
    """What lies inside the limits: drawn at random, known by name, best by a score."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.most: float | None = None  # work of a training step, where slower networks would see too few epochs
        self.gauged: dict[Arch, Gauged] = {}  # well-known networks that predictions put just outside, measured
        self.whole = self._whole()

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The budgets and the space's rules, and the search's own limits."""
        limits = self.job.limits if self.whole is None else (*self.job.limits, self.whole)
        if self.most is None or self.work is None:
            return limits
        return (*limits, Limit("work", self.work, high=self.most))

    @cached_property
    def work(self) -> Quadratic | None:
        """What a training step of a network takes, up to a factor; on a GPU small networks' take about the same."""
        job = self.job
        counted = job.macs is not None and job.engine.device.type == "cpu"
        return Step().table(job.space, job.task).form if counted else None

    def _whole(self) -> Limit | None:
        """The space's rule for small images, where networks of several sizes keep to it inside the budgets.

        A network that sees half of each side learns faster at first and ends several points lower.
        """
        job = self.job
        rule = job.space.whole(job.task) if job.macs is not None else None
        if rule is None or job.macs is None:
            return None
        limits = (*job.limits, rule)
        try:
            least = cheapest(job.macs, limits)
        except Infeasible:
            return None
        # The very largest would be a problem of its own, and a hard one where multiply-accumulates are the budget too.
        seen = draw(job.space.choices, limits, least.arch, _SEEN, job.seeds.rng("sizes"))
        return rule if max(job.macs(arch) for arch in seen) >= _SIZES * least.value else None

    def hasten(self, most: float) -> bool:
        """From now on networks whose step is so much work at most, if that is counted and rules any out."""
        if self.work is None:
            return False
        self.most, before = None, self.most
        most = max(most, _ROOM * cheapest(self.work, self.limits).value)
        now = solve(Problem(self.work, self.limits)).score if before is None else _AGAIN * before
        self.most = most if most < now else before
        return most < now

    def optimum(self, score: Quadratic) -> Arch:
        """The best network by a score."""
        return canonical(self.job.space.choices, solve(Problem(score, self.limits)).arch)

    def drawn(self, count: int) -> list[Arch]:
        """Random networks, as many of each option of the choice that sets networks apart most.

        One chain of changes would hardly leave the option that it begins with, nor reach one under which networks are
        much dearer: on photos of 32 pixels all that were drawn for a small budget saw 16.
        """
        space, rng = self.job.space, self.job.seeds.rng("trials")
        if space.apart is None:
            return draw(space.choices, self.limits, self.optimum(Quadratic(space.sizes)), count, rng)
        at = [c.name for c in space.choices].index(space.apart)
        each = [Limit("one", Quadratic(space.sizes, 0.0, {at: one}), low=1.0) for one in np.eye(space.sizes[at])]
        starts = [(only, arch) for only in each if only.holds(arch := self.optimum(only.form))]
        share = count // len(starts) + 1
        chains = [draw(space.choices, (*self.limits, only), arch, share, rng) for only, arch in starts]
        ranks = zip_longest(*(chains[k] for k in rng.permutation(len(chains))))
        return [arch for rank in ranks for arch in rank if arch is not None]

    def landmarks(self, near: float = 1.0) -> dict[str, Arch]:
        """The largest well-known ones, as measured where they were; else predictions may be `near` the limit."""
        job, space = self.job, self.job.space
        loose = {x.name: x.form for x in self.limits if job.gauge is not None and x.name in job.gauge.costs}

        def fits(arch: Arch) -> bool:
            told = self.gauged.get(arch)
            amounts = {n: form(arch) / near for n, form in loose.items()} if told is None else told.costs
            return inside(self.limits, arch, amounts)

        known = {name: canonical(space.choices, arch) for name, arch in space.landmarks(job.task).items()}
        return largest(known, self.limits, job.macs, fits, self.work if self.most is not None else None)

    def elsewhere(self) -> Arch | None:
        """The network whose weights the search starts from, where it has a place inside the budgets.

        It knows most already and needs fewer epochs than others: the search's own limits are not for it.
        """
        space, origin = self.job.space, self.job.origin
        known = (arch for told in origin.told for arch in space.alike(told)) if origin is not None else ()
        found = next((arch for arch in known if all(limit.holds(arch) for limit in self.job.limits)), None)
        return None if found is None else canonical(space.choices, found)

    def gauge(self) -> None:
        """Measure well-known networks that are just outside by prediction, the largest of every family first.

        A table errs by some percent, for a whole family alike: the best of what one would train instead may be lost.
        """
        job = self.job
        for _ in range(job.count(_GAUGING, _GAUGED, 0, _MOST_GAUGED) if job.gauge is not None else 0):
            unsure = (a for a in self.landmarks(_NEAR).values() if not inside(job.limits, a, {}))
            arch = next((a for a in unsure if a not in self.gauged), None)
            if arch is None or job.gauge is None:
                break
            self.gauged[arch] = job.gauge.measure(arch)
