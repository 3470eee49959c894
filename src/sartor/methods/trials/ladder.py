"""The rungs: which networks are trained, for how long, and what is known after each."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from torch import Tensor, nn

from sartor.core.arch import Arch, canonical, tag
from sartor.core.errors import Diverged
from sartor.core.quadratic import Quadratic
from sartor.engine import checkpoint
from sartor.engine.evaluate import accuracy
from sartor.engine.fit import Training, fit, nothing
from sartor.engine.length import Length
from sartor.engine.plan import seconds_per_step
from sartor.engine.recipe import Recipe
from sartor.engine.seeding import seeded
from sartor.insight.factors import drawn
from sartor.methods.base import Job, start_file
from sartor.methods.trials.design import dearest, draw
from sartor.predictors.likeness import Fit, fit_trials
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.runs.schema import Pace, Trial, TrialsFile
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.supernet import StepDraw

_GROWTH: int = 3  # so much longer a network of the next rung is trained, all in all
_FEWEST, _MOST, _LAST = 6, 64, 3  # networks of the first rung, and of the last
_STEPS = 80  # a shorter training tells little,
_LADDER = 12  # and fewer networks need no third rung
_SCARCE, _PLENTY = 10, 40  # epochs of the network that comes out: few, and many
_JUDGES = 1000  # validation images that judge a trial, at most, below the last rung
_USED = 0.85  # share of the time that is given to trainings; the rest builds, evaluates and fits
_TIMED, _PATIENCE = 5, 0.5  # networks whose steps are timed to plan the rungs, and seconds for each
_FOLDS = 5  # of the first rung, to see how well the score ranks networks that it was not fitted to
_TRIES = 3  # scores drawn per network that is wanted: many have the same optimum


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
        self, job: Job, recipe: Callable[[int], Recipe], epochs: int, networks: int, rungs: int, share: float = 0.5
    ) -> None:
        self.job, self.recipe, self.rungs = job, recipe, rungs
        self.rest = (job.seconds or 0.0) * (1 - share) / share  # seconds for the network that comes out
        self.quiet = Run(job.run.path, Reporter(silent=True), job.run.writer, job.run.agree)
        self.parse = drawn(job.space.draw(job.space.heaviest))
        self.trials: list[Trial] = []
        self.pace: Pace | None = None
        if job.engine.agree((job.run.path / TrialsFile.NAME).exists()):
            known = job.run.load(TrialsFile)
            self.first, self.epochs, self.rungs = known.networks, known.epochs, known.rungs
            self.pace, self.trials = known.pace, list(known.trials)
        else:
            self.first = networks or int(np.clip(round(4 * (job.seconds or 300.0) ** 0.35), _FEWEST, _MOST))
            self.epochs = float(epochs) or self._affordable(networks)
            self._save()

    def _affordable(self, given: int) -> float:
        """Epochs of the first rung's trainings, so that all rungs together take the search's time.

        Where a trial would be too short to tell anything, there are fewer.
        """
        some = self.candidates(0)[:: max(1, self.first // _TIMED)]
        steps = [seconds_per_step(self._training(c.arch, 0)[0], _PATIENCE) for c in some]
        # The median: the first steps of all are slow.
        possible = self.job.engine.agree(_USED * (self.job.seconds or 0.0) / float(np.median(steps)))
        while not given and self.first > _FEWEST and possible / _units(self.first, self.rungs) < _STEPS:
            self.first -= 1
            self.rungs = min(self.rungs, 3 if self.first >= _LADDER else 2)
        batches = len(self.job.feed.batches(self.job.splits.train, self.recipe(0).batch, "trials"))
        step = float(self.job.engine.agree(float(np.median(steps))))
        last = self.rest / (batches * step)  # epochs of the network that comes out
        self.pace = Pace(step, float(np.clip((_PLENTY - last) / (_PLENTY - _SCARCE), 0.0, 1.0)))
        return max(1.0, float(possible) / _units(self.first, self.rungs)) / batches

    def _epochs(self, training: Training) -> float:
        """Epochs of a network in the first rung: all the same, or those that take the same time.

        Where the network that comes out will see its images many times, small networks, which learn faster, would win
        trials of equal time that they lose in the end. Where it will see them a few times only, speed is what counts.
        """
        if self.pace is None or self.pace.power == 0:
            return self.epochs
        own = float(self.job.engine.agree(seconds_per_step(training, _PATIENCE)))
        return float(self.epochs * (self.pace.step / own) ** self.pace.power)

    def _save(self) -> None:
        self.job.run.save(TrialsFile(self.first, self.epochs, self.rungs, self.pace, tuple(self.trials)))

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
        space, limits = self.job.space, self.job.limits
        known = dearest(space.landmarks(self.job.task), limits)
        found = {canonical(space.choices, arch): name for name, arch in list(known.items())[: self.first // 2]}
        start = self._optimum(Quadratic(space.sizes))
        rng = self.job.seeds.rng("trials")
        others = [arch for arch in draw(space.choices, limits, start, self.first, rng) if arch not in found]
        landmarks = [Candidate(arch, "landmark", name) for arch, name in found.items()]
        return [*landmarks, *(Candidate(arch, "drawn") for arch in others[: self.first - len(found)])]

    def _optimum(self, score: Quadratic) -> Arch:
        return canonical(self.job.space.choices, solve(Problem(score, self.job.limits)).arch)

    def _fit(self, trials: list[Trial]) -> Fit:
        columns = [t.picks for t in trials], [t.accuracy for t in trials], [t.rung for t in trials]
        return fit_trials(*columns, self.job.space.choices, self.parse)

    # trying it -------------------------------------------------------------------------------------

    def climb(self, rung: int) -> None:
        """Train the networks of a rung; where the search is late, those that are not begun are left out."""
        known = [t for t in self.trials if t.rung == rung]
        late = self.job.late and len(self.trials) >= 3
        todo = [Candidate(Arch(t.picks), t.why, t.name) for t in known] if late else self.candidates(rung)
        title = f"trying networks, rung {rung + 1} of {self.rungs}"
        with self.job.run.reporter.bar(title, len(todo)) as bar:
            for n, candidate in enumerate(todo):
                if not any(t.picks == candidate.arch.picks for t in known):
                    if self.job.engine.agree(self.job.late and len(self.trials) >= 3):
                        break
                    self._try(candidate, rung)
                bar.to(n + 1, f"best {max(t.accuracy for t in self.trials):.1f} %")
        self._forget()

    def _try(self, candidate: Candidate, rung: int) -> None:
        """Train one network from scratch, or on from the rung below, for the rung's epochs in all."""
        job, before, start = self.job, self._last(candidate.arch), time.monotonic()
        training, net = self._training(candidate.arch, rung)
        if before is not None:
            net.load_state_dict(checkpoint.load(self._file(before))["net"])
        done = before.epochs if before else 0.0
        first = done / _GROWTH**before.rung if before else self._epochs(training)
        length = Length(first * _GROWTH**rung - done, None if job.seconds is None else start + job.seconds)
        try:
            fit(replace(training, length=length))
            judges = job.seeds.rng("judges").permutation(job.splits.val)
            right = accuracy(net, job.feed, judges if rung + 1 == self.rungs else judges[:_JUDGES])
        except Diverged:
            right = 0.0
        seconds = float(job.engine.agree(time.monotonic() - start)) + (before.seconds if before else 0.0)
        name = candidate.name or (before.name if before else "")
        picks, epochs = candidate.arch.picks, done + length.end
        self.trials.append(Trial(picks, rung, right, seconds, epochs, candidate.why, name))
        self._save()

    def _training(self, arch: Arch, rung: int) -> tuple[Training, nn.Module]:
        """The training of a network with fresh weights, and the network."""
        job, recipe = self.job, self.recipe(0)
        with seeded(job.seeds.number(f"trial/{tag(arch.picks)}")):
            net = job.engine.place(job.space.network(arch, job.task))

        def loss(x: Tensor, y: Tensor, drawn: StepDraw) -> dict[str, Tensor]:
            return {"loss": job.task.loss(net(x), y, recipe.smoothing)}

        name = f"{tag(arch.picks)}-{rung}"
        return Training(name, net, loss, recipe, job.feed, job.splits.train, self.quiet, draw=nothing), net

    def _last(self, arch: Arch) -> Trial | None:
        """The network's trial on the highest rung."""
        return next((t for t in reversed(self.trials) if t.picks == arch.picks), None)

    def _file(self, trial: Trial) -> Any:
        return self.job.run.path / f"search/{tag(trial.picks)}-{trial.rung}.checkpoint.safetensors"

    def _forget(self) -> None:
        """Delete the weights of networks that went no higher than the rung below."""
        top = max(t.rung for t in self.trials)
        for trial in self.trials if self.job.run.writer else ():
            if trial.rung < top:
                self._file(trial).unlink(missing_ok=True)

    # what it taught --------------------------------------------------------------------------------

    def outcome(self) -> tuple[Quadratic, tuple[Trial, ...], dict[str, Any]]:
        """The score; the trials with what each network is worth after all of them; how well the score ranks."""
        fitted = self._fit(self.trials)
        valued = (replace(t, value=float(v)) for t, v in zip(self.trials, fitted.values, strict=True))
        return fitted.score, tuple(valued), self._held_out()

    def _held_out(self) -> dict[str, Any]:
        """Networks of the first rung, each predicted by a fit to others of them."""
        first = [t for t in self.trials if t.rung == 0]
        order = self.job.seeds.rng("folds").permutation(len(first))
        predicted = np.zeros(len(first))
        for part in np.array_split(order, _FOLDS):
            rest = [first[i] for i in np.setdiff1d(order, part)]
            predicted[part] = self._fit(rest).score.batch([first[i].picks for i in part])
        measured = [t.accuracy for t in first]
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
    return max(min(_LAST, first), round(first / float(_GROWTH) ** rung))


def _units(first: int, rungs: int) -> float:
    """What all rungs take, in trainings of the first."""
    units = float(first)
    for rung in range(1, rungs):
        new = _size(first, rung) // 2
        units += new * _GROWTH**rung + (_size(first, rung) - new) * (_GROWTH**rung - _GROWTH ** (rung - 1))
    return units
