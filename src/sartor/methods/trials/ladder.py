"""The rungs: which networks are trained next, and what is known after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np

from sartor.core.arch import Arch
from sartor.core.quadratic import Quadratic
from sartor.engine import checkpoint
from sartor.engine.recipe import Recipe
from sartor.insight.factors import drawn
from sartor.methods.base import Job, start_file
from sartor.methods.trials.bench import Bench, Work, trial_file
from sartor.methods.trials.crew import Crew
from sartor.methods.trials.field import Field
from sartor.methods.trials.promise import Promises
from sartor.methods.trials.schedule import Planner, Schedule, usual
from sartor.predictors.likeness import Fit, fit_trials
from sartor.runs.progress import span
from sartor.runs.schema import Trial, TrialsFile

_BY_RIGHT = 0.75  # of the first rung, at most, are well-known networks
_FOLDS = 5  # of the first rung, to see how well the score ranks networks that it was not fitted to
_TRIES = 3  # scores drawn per network that is wanted: many have the same optimum
_LATE = 3  # networks that are tried however late it is, as far as the first rung has so many


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
        self.job, self.field = job, Field(job)
        self.bench, self.processes = Bench.of(job, recipe), processes
        self.parse = drawn(job.space.draw(job.space.heaviest))
        self.trials: list[Trial] = []
        if job.engine.agree((job.run.path / TrialsFile.NAME).exists()):
            known = job.run.load(TrialsFile)
            self.schedule = Schedule(known.networks, known.rungs, known.epochs, known.pace)
            self.field.most, self.trials = known.most, list(known.trials)
            self.field.gauged = {Arch(g.picks): g for g in known.gauged}
        else:
            self.field.gauge()
            self.schedule = self._planned(Schedule(networks or usual(job.seconds), rungs, epochs), networks > 0, share)
            self._save()
            self._tell()

    def _tell(self) -> None:
        """What is going to be tried."""
        s, step = self.schedule, self.schedule.pace.step if self.schedule.pace is not None else None
        steps = s.epochs * len(self.job.feed.batches(self.job.splits.train, self.bench.recipe.batch, "trials"))
        takes = "" if step is None else f", {span(steps * step, short=True)} of training"
        then = (
            f"; the best {' and then '.join(str(s.size(r)) for r in range(1, s.rungs))} longer" if s.rungs > 1 else ""
        )
        self.job.run.log(f"{s.first} networks are tried for {s.epochs:.1f} epochs each{takes}{then}")

    def _planned(self, wanted: Schedule, given: bool, share: float) -> Schedule:
        """The schedule for what there is to try, with as many epochs as the time allows, unless they were given."""

        def networks(schedule: Schedule) -> list[Arch]:
            return [candidate.arch for candidate in self._first(schedule.first)]

        wanted = replace(wanted, first=min(wanted.first, len(networks(wanted))))  # a tight budget leaves few
        if wanted.epochs:
            return wanted
        rest = (self.job.seconds or 0.0) * (1 - share) / share  # seconds for the network that comes out
        size = len(self.crew.members) if self.crew is not None else 1
        return Planner(self.job, self.bench, self.field, size, rest).plan(wanted, given, networks)

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
        s, field = self.schedule, self.field
        known = TrialsFile(s.first, s.epochs, s.rungs, s.pace, tuple(self.trials), field.most)
        self.job.run.save(replace(known, gauged=tuple(field.gauged.values())))

    # what to try -----------------------------------------------------------------------------------

    def candidates(self, rung: int) -> list[Candidate]:
        """The networks of a rung, a function of the rungs below: an interrupted one is begun again with the same."""
        if rung == 0:
            return self._first(self.schedule.first)
        below = [t for t in self.trials if t.rung < rung]
        wanted, fitted = self.schedule.size(rung), self._fit(below)
        best = dict(sorted(zip([Arch(t.picks) for t in below], fitted.values, strict=True), key=lambda e: -e[1]))
        onward = [Candidate(arch, "onward") for arch in list(best)[: wanted - wanted // 2]]
        found = {c.arch: c for c in onward}
        doubts = (fitted.draw(self.job.seeds.rng("doubt", rung, n)) for n in range(_TRIES * wanted))
        for n, score in enumerate([fitted.score, *doubts]):
            if len(found) == wanted:
                break
            arch = self.field.optimum(score)
            if arch not in best:
                found.setdefault(arch, Candidate(arch, "doubt" if n else "optimum"))
        spare = [Candidate(arch, "onward") for arch in best if arch not in found]  # nothing new is promising
        return [*found.values(), *spare][:wanted]

    def _first(self, count: int) -> list[Candidate]:
        """The largest landmarks inside the limits, and random networks; fewer where there are no more."""
        found = {arch: name for name, arch in list(self.field.landmarks().items())[: round(_BY_RIGHT * count)]}
        known = self.field.elsewhere()
        if known is not None:
            found = {known: "start"} | found
        landmarks = [Candidate(arch, "landmark", name) for arch, name in found.items()]
        others = (Candidate(arch, "drawn") for arch in self.field.drawn(count) if arch not in found)
        return [*landmarks, *others][:count]

    def _fit(self, trials: list[Trial]) -> Fit:
        read = self._promises(trials)
        columns = [t.picks for t in trials], [read.accuracy(t) for t in trials], [t.rung for t in trials]
        return fit_trials(*columns, self.job.space.choices, self.parse, [read.luck(t) for t in trials])

    def _promises(self, trials: list[Trial]) -> Promises:
        """How these trials are read."""
        job, schedule = self.job, self.schedule
        most = max((job.macs(Arch(t.picks)) for t in trials), default=1.0) if job.macs is not None else 1.0
        return Promises(job.task.guess(job.feed.images.labels[job.splits.val]), job.splits, schedule.rungs,
                        schedule.pace, job.macs, most)  # fmt: skip

    # trying it -------------------------------------------------------------------------------------

    def climb(self, rung: int) -> None:
        """Train the networks of a rung; where the search is late, those that are not begun are left out."""

        def late() -> bool:
            return len(self.trials) >= min(_LATE, self.schedule.first) and self.job.late

        known, others = ([t for t in self.trials if (t.rung == rung) is mine] for mine in (True, False))
        is_late = late()
        todo = [Candidate(Arch(t.picks), t.why, t.name) for t in known] if is_late else self.candidates(rung)
        order = {c.arch.picks: n for n, c in enumerate(todo)}
        works = [self._work(c, rung) for c in todo if not any(t.picks == c.arch.picks for t in known)]
        title = f"trying networks, rung {rung + 1} of {self.schedule.rungs}"
        with self.job.run.reporter.bar(title, len(todo)) as bar:
            bar.to(len(known))
            for n, trial in enumerate(self._measured(works, late), len(known) + 1):
                # In the order of the candidates, not in that of their ends: what follows must not depend on luck.
                known = sorted([*known, trial], key=lambda t: order.get(t.picks, len(order)))
                self.trials = sorted([*others, *known], key=lambda t: t.rung)
                self._save()
                bar.to(n, f"best {max(t.accuracy for t in self.trials):.1f} %")
        self._forget(self._last)

    def _work(self, candidate: Candidate, rung: int) -> Work:
        s, before = self.schedule, self._last(candidate.arch.picks)
        return Work(candidate.arch, rung, candidate.why, candidate.name, before, s.epochs, s.pace, rung + 1 == s.rungs)

    def _measured(self, works: list[Work], late: Callable[[], bool]) -> Iterator[Trial]:
        """Side by side where there is a crew; what it leaves, one after the other."""
        done: set[int] = set()
        if works and self.crew is not None:
            for number, trial in self.crew.train(works, late):
                done.add(number)
                yield trial
        for number, work in enumerate(works):
            if number not in done:
                if late():
                    return
                yield self.bench.measure(work)

    def _last(self, picks: tuple[int, ...]) -> Trial | None:
        """The network's trial on the highest rung."""
        return next((t for t in reversed(self.trials) if t.picks == picks), None)

    def _file(self, trial: Trial) -> Path:
        return trial_file(self.job.run.path, trial.picks, trial.rung)

    def _forget(self, kept: Callable[[tuple[int, ...]], Trial | None]) -> None:
        """Delete the weights of every trial but the one of its network that is `kept`: it may go on from there."""
        for trial in self.trials if self.job.run.writer else ():
            if kept(trial.picks) is not trial:
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
        read = self._promises(self.trials)
        measured = [read.accuracy(t) for t in first]
        predicted[:] = np.round(predicted + np.mean(measured), 2)  # smaller differences are those of rounding
        return {"picks": [list(t.picks) for t in first], "predicted": predicted.tolist(), "measured": measured}

    def starts(self) -> tuple[str, ...]:
        """The weights of the last rung's networks, for the training of the one that is chosen."""
        last = {t.picks: t for t in self.trials if t.rung == self.trials[-1].rung}
        for picks, trial in last.items() if self.job.run.writer else ():
            checkpoint.save(self.job.run.path / start_file(Arch(picks)), checkpoint.load(self._file(trial))["net"])
        self._forget(last.get)
        self.job.engine.barrier()
        return tuple(start_file(Arch(picks)) for picks in last)
