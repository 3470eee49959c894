"""How many networks a search tries in its time, on how many rungs, and for how long each is trained."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from sartor.core.arch import Arch
from sartor.engine.device import Way
from sartor.methods.base import Job
from sartor.methods.trials.bench import GROWTH, Bench
from sartor.methods.trials.field import Field
from sartor.runs.schema import Pace

_FEWEST, _MOST = 4, 64  # networks of the first rung
_LAST, _PAIR = 3, 6  # and of the last one: two where the first has fewer than six
_LADDER = 12  # and fewer networks need no third rung
_STEPS = 64  # a shorter training tells little,
_NOTHING = 16  # one this short nothing,
_ENOUGH = 150.0  # and a network of fewer steps in the end, per root of its seconds, does worse than a smaller one
_LOOKS = 3  # how often faster networks are looked for, if trainings would be shorter
_SCARCE = 60  # epochs of the network that comes out, below which more of them are worth more than a better network
_HASTE = 0.4  # of its time that the search takes at least, however few those are
_DECAY = 0.4  # error falls with this power of a network's size and of the images that it has seen, roughly
_USED = 0.85  # share of the time that is given to trainings; the rest builds, evaluates and fits
_TIMED = 5  # networks whose steps are timed to plan the rungs,
_LOOKING, _MOST_LOOKING = 0.05, 4.0  # for this share of the time, or these seconds if that is less


@final
@dataclass(frozen=True)
class Schedule:
    """Networks of the first rung, rungs, and the epochs of each of the first rung's trainings."""

    first: int
    rungs: int
    epochs: float = 0.0
    pace: Pace | None = None

    def size(self, rung: int) -> int:
        """Networks of a rung: a third of those below, half of them new."""
        least = self.first if not rung else _LAST if self.first >= _PAIR else 2
        return max(min(least, self.first), round(self.first / float(GROWTH) ** rung))

    @property
    def starts(self) -> int:
        """Trainings of all rungs."""
        return sum(map(self.size, range(self.rungs)))

    @property
    def units(self) -> float:
        """What all rungs take, in trainings of the first."""
        units = float(self.first)
        for rung in range(1, self.rungs):
            new = self.size(rung) // 2
            units += new * GROWTH**rung + (self.size(rung) - new) * (GROWTH**rung - GROWTH ** (rung - 1))
        return units

    def fewer(self) -> Schedule:
        """One network less, on rungs that suit so few."""
        most = 3 if self.first > _LADDER else 2 if self.first > _PAIR // 2 else 1
        return replace(self, first=self.first - 1, rungs=min(self.rungs, most))


@final
class Planner:
    """Plans a schedule by timing steps: so many processes try networks, and `rest` seconds train what comes out."""

    def __init__(self, job: Job, bench: Bench, field: Field, processes: int, rest: float) -> None:
        self.job, self.bench, self.field = job, bench, field
        self.processes, self.rest = processes, max(rest, 1e-3)
        self.seconds = job.seconds or 0.0

    def plan(self, wanted: Schedule, given: bool, networks: Callable[[Schedule], Sequence[Arch]]) -> Schedule:
        """As long trainings as fit into the search's time; `given` says that the number of networks stays.

        Where a trial would be too short to tell anything, there are fewer; where even the fewest would be, or where the
        network that comes out could be trained for too few steps, networks whose steps are faster, and only these.
        """
        job, way = self.job, Way(1, 0)  # a GPU's host: as it is
        if job.engine.device.type == "cpu":
            cores = max(1, job.engine.cores // self.processes)
            way = self.bench.fastest(networks(wanted)[-1], cores, self._looking)
        for _ in range(_LOOKS):
            step, ready, speed = self._timed(networks(wanted))
            left = float(job.engine.agree(max(job.began + self.seconds - time.monotonic(), 0.5 * self.seconds)))

            def steps(of: Schedule, step: float, ready: float = ready, whole: float = _USED * left) -> float:
                return self._steps(of, whole, ready, step)

            made = wanted
            while not given and steps(made, step) < _STEPS and made.first > _FEWEST:
                made = made.fewer()
            # Given more time, a larger network and more steps are best, each by its root.
            longest = self.rest**0.5 / _ENOUGH
            if steps(made, step) < _STEPS:
                shorter = step * np.geomspace(1.0, 0.01, 200)
                longest = min(
                    longest, next((float(s) for s in shorter if steps(made, s) >= _STEPS), float(shorter[-1]))
                )
            if given or not self.field.hasten(speed * longest):
                break
        while not given and steps(made, step) < _NOTHING and made.first > 1:
            made = made.fewer()
        return self._paced(made, steps(made, step), step, way)

    def _paced(self, made: Schedule, steps: float, step: float, way: Way) -> Schedule:
        """The schedule with its epochs, and how far a network's own speed decides its own."""
        epochs, size = steps / self.batches, self.processes
        last = self.rest / (self.batches * step)  # epochs of the network that comes out
        power = float(min(1.0, epochs * GROWTH ** ((made.rungs - 1) / 2) / last) ** _DECAY)  # at the middle rung
        if self.job.engine.device.type == "cpu":  # a trial has the cores of one process, the last training those of all
            pace = Pace(step, power, *way, size * self.rest)
        else:  # beside others on a GPU a network's own speed cannot be seen
            pace = Pace(step, 0.0 if size > 1 else power, *way)
        return replace(made, epochs=epochs, pace=pace)

    def _steps(self, of: Schedule, whole: float, ready: float, step: float) -> float:
        """Steps of a training of the first rung, if one takes so long, so that all rungs take the search's time.

        Where the network that comes out sees its images for few epochs, that is less than the `whole` of it: more
        epochs are then worth more than a better network.
        """
        seconds = whole * float(np.clip(self.rest / (self.batches * step) / _SCARCE, _HASTE, 1.0))
        left = seconds - ready * (1 if self.processes > 1 else of.starts)
        # Steps share one GPU, but not one core.
        together = self.processes if self.job.engine.device.type == "cpu" else 1
        return max(1.0, left / (step / together) / of.units)

    @cached_property
    def batches(self) -> int:
        """Steps of an epoch."""
        return len(self.job.feed.batches(self.job.splits.train, self.bench.recipe.batch, "trials"))

    @property
    def _looking(self) -> float:
        """Seconds for timing steps."""
        return min(_MOST_LOOKING, _LOOKING * self.seconds)

    def _timed(self, networks: Sequence[Arch]) -> tuple[float, float, float]:
        """A typical network's seconds a step, those before its first one, and the work of a second, if counted."""
        begin, timed, speeds, work = time.monotonic(), list[tuple[float, float]](), list[float](), self.field.work
        # Drawn ones first: a GPU needs so long to get ready that one may have to be enough.
        for arch in networks[:: -max(1, len(networks) // _TIMED)]:
            timed.append(self.bench.pace(arch, self._looking))
            speeds.append(work(arch) / timed[-1][0] if work is not None else 0.0)
            if self.job.engine.agree(time.monotonic() - begin > self._looking):
                break
        # The first steps of all are slow. Beside each other some get ready while others train.
        return float(np.median([t[0] for t in timed])), float(np.mean([t[1] for t in timed])), float(np.median(speeds))


def usual(seconds: float | None) -> int:
    """Networks of the first rung for so much time: 4 in a second, 30 in five minutes, 64 at most."""
    return int(np.clip(round(4 * (seconds or 300.0) ** 0.35), _FEWEST, _MOST))
