"""The rungs: which networks are trained, for how long, and what is known after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, final

import numpy as np

from sartor.core.arch import Arch, canonical
from sartor.core.errors import Infeasible
from sartor.core.quadratic import Limit, Quadratic, inside
from sartor.costs.step import Step
from sartor.engine import checkpoint
from sartor.engine.device import Way
from sartor.engine.recipe import Recipe
from sartor.insight.factors import drawn
from sartor.methods.base import Job, start_file
from sartor.methods.trials.bench import GROWTH, Bench, Work, judged, trial_file
from sartor.methods.trials.crew import Crew
from sartor.methods.trials.design import draw, largest
from sartor.predictors.likeness import Fit, fit_trials
from sartor.runs.schema import Gauged, Pace, Trial, TrialsFile
from sartor.solvers import cheapest, solve
from sartor.solvers.base import Problem

_FEWEST, _MOST = 4, 64  # networks of the first rung
_LAST, _PAIR = 3, 6  # and of the last one: two where the first has fewer than six
_BY_RIGHT = 0.75  # of the first rung, at most, are well-known networks
_STEPS = 64  # a shorter training tells little,
_ENOUGH = 150.0  # and a network of fewer steps in the end, per root of its seconds, does worse than a smaller one;
_LOOKS = 3  # how often faster networks are looked for, if trainings would be shorter,
_ROOM = 2.0  # among those whose step takes so many times that of the fastest, at least
_AGAIN = 0.8  # what is left of such a limit, if it is worth another one
_LADDER = 12  # and fewer networks need no third rung
_SCARCE = 60  # epochs of the network that comes out, below which more of them are worth more than a better network
_HASTE = 0.4  # of its time that the search takes at least, however few those are
_LEARNING = 0.2  # error falls with this power of the epochs that a network has seen, while they are few;
_SMALLER = 0.03  # by so much less a power, for every e times fewer multiply-accumulates than the largest one has,
_SLOWEST = 0.05  # but with this one at least
_DECAY = 0.4  # error falls with this power of a network's size and of the images that it has seen, roughly
_USED = 0.85  # share of the time that is given to trainings; the rest builds, evaluates and fits
_TIMED, _LOOKING = 5, 4.0  # networks whose steps are timed to plan the rungs, and seconds after which it is enough
_FOLDS = 5  # of the first rung, to see how well the score ranks networks that it was not fitted to
_LUCK = 2.0  # of the variance that the drawing of the judges has: a training's own luck is about as large
_SIZES = 4.0  # by which the largest network exceeds the smallest, where there is something to choose from
_TRIES = 3  # scores drawn per network that is wanted: many have the same optimum
_NEAR = 1.15  # predictions above a budget that a measurement may bring below it
_GAUGING, _GAUGED, _MOST_GAUGED = 0.05, 2.5, 12  # share of the time for such measurements, seconds of one, their number


@dataclass(frozen=True)
class Candidate:
    """A network to be tried, and why."""

    arch: Arch
    why: str
    name: str = ""  # of a landmark


@final
class Ladder:
    """All trials of a search; each is written down as it ends."""

    def __init__(
        self, job: Job, recipe: Recipe, epochs: int, networks: int, rungs: int, processes: int, share: float
    ) -> None:
        self.job, self.rungs = job, rungs
        self.bench, self.processes = Bench.of(job, recipe), processes
        self.rest = (job.seconds or 0.0) * (1 - share) / share  # seconds for the network that comes out
        self.parse = drawn(job.space.draw(job.space.heaviest))
        self.trials: list[Trial] = []
        self.pace: Pace | None = None
        self.most: float | None = None  # work of a training step, where slower networks would see too few epochs
        self.gauged: dict[Arch, Gauged] = {}  # well-known networks that predictions put just outside, measured
        self.whole = self._whole()
        if job.engine.agree((job.run.path / TrialsFile.NAME).exists()):
            known = job.run.load(TrialsFile)
            self.first, self.epochs, self.rungs = known.networks, known.epochs, known.rungs
            self.pace, self.most, self.trials = known.pace, known.most, list(known.trials)
            self.gauged = {Arch(g.picks): g for g in known.gauged}
        else:
            self.first = networks or int(np.clip(round(4 * (job.seconds or 300.0) ** 0.35), _FEWEST, _MOST))
            self._gauge()
            self.epochs = float(epochs) or self._affordable(networks)
            self._save()

    def _affordable(self, given: int) -> float:
        """Epochs of the first rung's trainings, so that all rungs together take the search's time.

        Where a trial would be too short to tell anything, there are fewer; where even the fewest would be, or where the
        network that comes out could be trained for too few steps, networks whose steps are faster, and only these.
        """
        job, size, wanted = self.job, len(self.crew.members) if self.crew is not None else 1, (self.first, self.rungs)
        way = Way(1, 0)  # a GPU's host: as it is
        if job.engine.device.type == "cpu":
            way = self.bench.fastest(self.candidates(0)[-1].arch, max(1, job.engine.cores // size))
        for _ in range(_LOOKS):
            self.first, self.rungs = wanted
            step, ready, speed = self._timed()
            left = max(job.began + (job.seconds or 0.0) - time.monotonic(), 0.5 * (job.seconds or 0.0))
            steps = partial(self._steps, _USED * float(job.engine.agree(left)), ready, size)
            fewest = self.first if given else _FEWEST
            while steps(step) < _STEPS and self.first > fewest:
                self.first -= 1
                self.rungs = min(self.rungs, 3 if self.first >= _LADDER else 2)
            # Given more time, a larger network and more steps are best, each by its root.
            longest = self.rest**0.5 / _ENOUGH
            if steps(step) < _STEPS:
                shorter = step * np.geomspace(1.0, 0.01, 200)
                longest = min(longest, next((float(s) for s in shorter if steps(s) >= _STEPS), float(shorter[-1])))
            if given or not self._faster(speed * longest):
                break
        epochs = steps(step) / self.batches
        last = self.rest / (self.batches * step)  # epochs of the network that comes out
        behind = min(1.0, epochs * GROWTH ** ((self.rungs - 1) / 2) / last)  # at the middle rung
        if job.engine.device.type == "cpu":  # a trial has the cores of one process, the last training those of all
            self.pace = Pace(step, float(behind**_DECAY), *way, size * self.rest)
        else:  # beside others on a GPU a network's own speed cannot be seen
            self.pace = Pace(step, 0.0 if size > 1 else float(behind**_DECAY), *way)
        return epochs

    def _steps(self, whole: float, ready: float, size: int, step: float) -> float:
        """Steps of a training of the first rung, if one takes so long, so that all rungs take the search's time.

        Where the network that comes out sees its images for few epochs, that is less than the `whole` of it: more
        epochs are then worth more than a better network.
        """
        seconds = whole * float(np.clip(self.rest / (self.batches * step) / _SCARCE, _HASTE, 1.0))
        left = seconds - ready * (1 if size > 1 else _starts(self.first, self.rungs))
        together = size if self.job.engine.device.type == "cpu" else 1  # steps share one GPU, but not one core
        return max(1.0, left / (step / together) / _units(self.first, self.rungs))

    @cached_property
    def batches(self) -> int:
        """Steps of an epoch."""
        return len(self.job.feed.batches(self.job.splits.train, self.bench.recipe.batch, "trials"))

    def _timed(self) -> tuple[float, float, float]:
        """A typical network's seconds a step, those before its first one, and the work of a second, if counted."""
        begin, timed, speeds = time.monotonic(), list[tuple[float, float]](), list[float]()
        # Drawn ones first: a GPU needs so long to get ready that one may have to be enough.
        for candidate in self.candidates(0)[:: -max(1, self.first // _TIMED)]:
            timed.append(self.bench.pace(candidate.arch))
            speeds.append(self.work(candidate.arch) / timed[-1][0] if self.work is not None else 0.0)
            if self.job.engine.agree(time.monotonic() - begin > _LOOKING):
                break
        # The first steps of all are slow. Beside each other some get ready while others train.
        return float(np.median([t[0] for t in timed])), float(np.mean([t[1] for t in timed])), float(np.median(speeds))

    def _faster(self, most: float) -> bool:
        """From now on networks whose step is so much work at most, if that is counted and rules any out."""
        if self.work is None:
            return False
        most = max(most, _ROOM * cheapest(self.work, self.job.limits).value)
        before = solve(Problem(self.work, self.limits)).score if self.most is None else _AGAIN * self.most
        if most >= before:
            return False
        self.most = most
        return True

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
        try:
            most, least = (solve(Problem(job.macs * sign, (*job.limits, rule))).score for sign in (1, -1))
        except Infeasible:
            return None
        return rule if most >= _SIZES * -least else None

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The budgets and the space's rules, and what can be trained in the time."""
        limits = self.job.limits if self.whole is None else (*self.job.limits, self.whole)
        if self.most is None or self.work is None:
            return limits
        return (*limits, Limit("work", self.work, high=self.most))

    @cached_property
    def crew(self) -> Crew | None:
        """The processes that train side by side: those that were begun before the space was priced, or others now."""
        if isinstance(self.job.prepared, Crew):
            return self.job.prepared
        return Crew.of(self.job, self.bench.recipe, self.processes)

    def close(self) -> None:
        """End what was started."""
        if "crew" in vars(self) and self.crew is not None:
            self.crew.close()

    def _save(self) -> None:
        known = TrialsFile(self.first, self.epochs, self.rungs, self.pace, tuple(self.trials), self.most)
        self.job.run.save(replace(known, gauged=tuple(self.gauged.values())))

    # what to try -----------------------------------------------------------------------------------

    def candidates(self, rung: int) -> list[Candidate]:
        """The networks of a rung, a function of the rungs below: an interrupted one is begun again with the same."""
        below = [t for t in self.trials if t.rung < rung]
        if rung == 0:
            return self._first()
        wanted, fitted = _size(self.first, rung), self._fit(below)
        best = dict(sorted(zip([Arch(t.picks) for t in below], fitted.values, strict=True), key=lambda e: -e[1]))
        onward = [Candidate(arch, "onward") for arch in list(best)[: wanted - wanted // 2]]
        found = {c.arch: c for c in onward}
        doubts = (fitted.draw(self.job.seeds.rng("doubt", rung, n)) for n in range(_TRIES * wanted))
        for n, score in enumerate([fitted.score, *doubts]):
            if len(found) == wanted:
                break
            arch = self._optimum(score)
            if arch not in best:
                found.setdefault(arch, Candidate(arch, "doubt" if n else "optimum"))
        spare = [Candidate(arch, "onward") for arch in best if arch not in found]  # nothing new is promising
        return [*found.values(), *spare][:wanted]

    def _first(self) -> list[Candidate]:
        """The largest landmarks inside the limits, and random networks."""
        space = self.job.space
        found = {arch: name for name, arch in list(self._landmarks().items())[: round(_BY_RIGHT * self.first)]}
        known = (a for told in self.job.origin.told for a in space.alike(told)) if self.job.origin is not None else ()
        first = next((a for a in known if all(limit.holds(a) for limit in self.job.limits)), None)
        if first is not None:  # the one that knows most already; it needs fewer epochs than others
            found = {canonical(space.choices, first): "start"} | found
        others = [arch for arch in self._drawn() if arch not in found]
        landmarks = [Candidate(arch, "landmark", name) for arch, name in found.items()]
        return [*landmarks, *(Candidate(arch, "drawn") for arch in others[: self.first - len(found)])]

    def _drawn(self) -> list[Arch]:
        """Random networks inside the limits, as many of each option of the choice that sets networks apart most.

        One chain of changes would hardly leave the option that it begins with, nor reach one under which networks are
        much dearer: on photos of 32 pixels all that were drawn for a small budget saw 16.
        """
        space, rng = self.job.space, self.job.seeds.rng("trials")
        if space.apart is None:
            return draw(space.choices, self.limits, self._optimum(Quadratic(space.sizes)), self.first, rng)
        at = [c.name for c in space.choices].index(space.apart)
        each = [Limit("one", Quadratic(space.sizes, 0.0, {at: one}), low=1.0) for one in np.eye(space.sizes[at])]
        starts = [(only, arch) for only in each if only.holds(arch := self._optimum(only.form))]
        count = self.first // len(starts) + 1
        chains = [draw(space.choices, (*self.limits, only), arch, count, rng) for only, arch in starts]
        ranks = zip_longest(*(chains[k] for k in rng.permutation(len(chains))))
        return [arch for rank in ranks for arch in rank if arch is not None]

    def _landmarks(self, near: float = 1.0) -> dict[str, Arch]:
        """The largest inside, by what was measured where it was; predictions of measured costs may be `near`."""
        job, space = self.job, self.job.space
        loose = {x.name: x.form for x in self.limits if job.gauge is not None and x.name in job.gauge.costs}

        def fits(arch: Arch) -> bool:
            told = self.gauged.get(arch)
            amounts = {n: form(arch) / near for n, form in loose.items()} if told is None else told.costs
            return inside(self.limits, arch, amounts)

        known = {name: canonical(space.choices, arch) for name, arch in space.landmarks(job.task).items()}
        return largest(known, self.limits, job.macs, fits, self.work if self.most is not None else None)

    def _gauge(self) -> None:
        """Measure well-known networks that are just outside by prediction, the largest of every family first.

        A table errs by some percent, for a whole family alike: the best of what one would train instead may be lost.
        """
        job = self.job
        for _ in range(job.count(_GAUGING, _GAUGED, 2, _MOST_GAUGED) if job.gauge is not None else 0):
            unsure = (a for a in self._landmarks(_NEAR).values() if not inside(job.limits, a, {}))
            arch = next((a for a in unsure if a not in self.gauged), None)
            if arch is None or job.gauge is None:
                break
            self.gauged[arch] = job.gauge.measure(arch)

    def _optimum(self, score: Quadratic) -> Arch:
        return canonical(self.job.space.choices, solve(Problem(score, self.limits)).arch)

    def _fit(self, trials: list[Trial]) -> Fit:
        columns = [t.picks for t in trials], [self._promised(t) for t in trials], [t.rung for t in trials]
        return fit_trials(*columns, self.job.space.choices, self.parse, [self._luck(t) for t in trials])

    def _promised(self, trial: Trial) -> float:
        """The accuracy that a trial's network would end at, trained as long as the one that comes out."""
        return 100 - self._left(trial) * (100 - trial.accuracy)

    def _left(self, trial: Trial) -> float:
        """What is left of its errors at the end: they fall with a power of the epochs, until those are many.

        So of two networks that did as well the faster one promises more while time is scarce, and the larger one, since
        a small network has soon learnt what it can.
        """
        if self.pace is None or not self.pace.last or not trial.epochs:
            return 1.0
        learning, macs = _LEARNING, self.job.macs
        if macs is not None:
            most = max(macs(Arch(t.picks)) for t in (*self.trials, trial))
            learning = max(_SLOWEST, learning + _SMALLER * float(np.log(macs(Arch(trial.picks)) / most)))
        epochs = min(self.pace.last / trial.seconds * trial.epochs, _SCARCE)
        return float(max(1.0, epochs / trial.epochs) ** -learning)

    def _luck(self, trial: Trial) -> float:
        """The variance of what a trial promises that comes from which images judged it, and from its training."""
        judges = judged(self.job.splits.val, trial.rung + 1 == self.rungs)
        right = (trial.accuracy / 100 * judges + 1) / (judges + 2)  # never quite none or all of them
        return _LUCK * (100 * self._left(trial)) ** 2 * right * (1 - right) / judges

    # trying it -------------------------------------------------------------------------------------

    def climb(self, rung: int) -> None:
        """Train the networks of a rung; where the search is late, those that are not begun are left out."""

        def late() -> bool:
            return self.job.late and len(self.trials) >= 3

        known, others = ([t for t in self.trials if (t.rung == rung) is mine] for mine in (True, False))
        is_late = self.job.engine.agree(late())
        todo = [Candidate(Arch(t.picks), t.why, t.name) for t in known] if is_late else self.candidates(rung)
        order = {c.arch.picks: n for n, c in enumerate(todo)}
        works = [self._work(c, rung) for c in todo if not any(t.picks == c.arch.picks for t in known)]
        title = f"trying networks, rung {rung + 1} of {self.rungs}"
        with self.job.run.reporter.bar(title, len(todo)) as bar:
            bar.to(len(known))
            for n, trial in enumerate(self._measured(works, late), len(known) + 1):
                # In the order of the candidates, not in that of their ends: what follows must not depend on luck.
                known = sorted([*known, trial], key=lambda t: order.get(t.picks, len(order)))
                self.trials = sorted([*others, *known], key=lambda t: t.rung)
                self._save()
                bar.to(n, f"best {max(t.accuracy for t in self.trials):.1f} %")
        if known:  # a late search may end below this rung: then those weights are the last
            self._forget(rung)

    def _work(self, candidate: Candidate, rung: int) -> Work:
        before, last = self._last(candidate.arch), rung + 1 == self.rungs
        return Work(candidate.arch, rung, candidate.why, candidate.name, before, self.epochs, self.pace, last)

    def _measured(self, works: list[Work], late: Callable[[], bool]) -> Iterator[Trial]:
        """Side by side where there is a crew; what it leaves, one after the other."""
        done: set[int] = set()
        if works and self.crew is not None:
            for number, trial in self.crew.train(works, late):
                done.add(number)
                yield trial
        for number, work in enumerate(works):
            if number not in done:
                if self.job.engine.agree(late()):
                    return
                yield self.bench.measure(work)

    def _last(self, arch: Arch) -> Trial | None:
        """The network's trial on the highest rung."""
        return next((t for t in reversed(self.trials) if t.picks == arch.picks), None)

    def _file(self, trial: Trial) -> Path:
        return trial_file(self.job.run.path, trial.picks, trial.rung)

    def _forget(self, rung: int) -> None:
        """Delete the weights of the rungs below one that is done: an interrupted rung needs them."""
        for trial in self.trials if self.job.run.writer else ():
            if trial.rung < rung:
                self._file(trial).unlink(missing_ok=True)

    # what it taught --------------------------------------------------------------------------------

    def outcome(self) -> tuple[Quadratic, tuple[Trial, ...], dict[str, Any] | None]:
        """The score; the trials with what each network is worth after all of them; how well the score ranks."""
        fitted = self._fit(self.trials)
        valued = (replace(t, value=float(v)) for t, v in zip(self.trials, fitted.values, strict=True))
        return fitted.score, tuple(valued), self._held_out()

    def _held_out(self) -> dict[str, Any] | None:
        """Networks of the first rung, each predicted by a fit to others of them.

        Above or below the mean of all, not of those others: that one is the lower, the better the network that was left
        out is, so that a fit which knows nothing would seem to order networks the wrong way round.
        """
        first = [t for t in self.trials if t.rung == 0]
        if len(first) < 4:  # a late search ends with three: too few to leave one out
            return None
        order = self.job.seeds.rng("folds").permutation(len(first))
        predicted = np.zeros(len(first))
        for part in np.array_split(order, min(_FOLDS, len(first))):
            rest = [first[i] for i in np.setdiff1d(order, part)]
            score = self._fit(rest).score
            predicted[part] = score.batch([first[i].picks for i in part]) - score.constant
        measured = [self._promised(t) for t in first]
        predicted[:] = np.round(predicted + np.mean(measured), 2)  # smaller differences are those of rounding
        return {"picks": [list(t.picks) for t in first], "predicted": predicted.tolist(), "measured": measured}

    def starts(self) -> tuple[str, ...]:
        """The weights of the last rung's networks, for the training of the one that is chosen."""
        files = []
        for trial in self.trials:
            if trial.rung == self.trials[-1].rung:
                files.append(start_file(Arch(trial.picks)))
                if self.job.run.writer:
                    checkpoint.save(self.job.run.path / files[-1], checkpoint.load(self._file(trial))["net"])
        self.job.engine.barrier()
        return tuple(files)


def _size(first: int, rung: int) -> int:
    """Networks of a rung: a third of those below, half of them new."""
    least = first if not rung else _LAST if first >= _PAIR else 2
    return max(min(least, first), round(first / float(GROWTH) ** rung))


def _starts(first: int, rungs: int) -> int:
    """Trainings of all rungs."""
    return sum(_size(first, rung) for rung in range(rungs))


def _units(first: int, rungs: int) -> float:
    """What all rungs take, in trainings of the first."""
    units = float(first)
    for rung in range(1, rungs):
        new = _size(first, rung) // 2
        units += new * GROWTH**rung + (_size(first, rung) - new) * (GROWTH**rung - GROWTH ** (rung - 1))
    return units
