"""What a short training promises: the accuracy that its network would end at, trained as long as the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from sartor.core.arch import Arch
from sartor.core.quadratic import Quadratic
from sartor.data.base import Splits
from sartor.methods.trials.bench import judged
from sartor.runs.schema import Pace, Trial

_SCARCE = 60  # epochs of the network that comes out, beyond which more of them are worth little
_LEARNING = 0.2  # error falls with this power of the epochs that a network has seen, while they are few;
_SMALLER = 0.03  # by so much less a power, for every e times fewer multiply-accumulates than the largest one has,
_SLOWEST = 0.05  # but with this one at least
_LUCK = 2.0  # of the variance that the drawing of the judges has: a training's own luck is about as large
_SURE = 3.0  # standard errors above a guess, at which a trial is believed to have learnt something


@final
@dataclass(frozen=True)
class Promises:
    """How trials are read: what was tried, beside whom, and for how long the network that comes out is trained."""

    guess: float  # what an answer that does not look at the image gets right, in percent
    splits: Splits
    rungs: int
    pace: Pace | None
    macs: Quadratic | None
    most: float  # multiply-accumulates of the largest network that was tried

    def accuracy(self, trial: Trial) -> float:
        """What the network would end at."""
        return 100 - self._left(trial) * (100 - trial.accuracy)

    def luck(self, trial: Trial) -> float:
        """The variance of that which comes from the images that judged it, and from its training."""
        return (self._left(trial) * self._error(trial)) ** 2

    def _left(self, trial: Trial) -> float:
        """What is left of its errors at the end: they fall with a power of the epochs, until those are many.

        So of two networks that did as well the faster one promises more while time is scarce, and the larger one, since
        a small network has soon learnt what it can. One that is no better than a guess has shown nothing to go on from.
        """
        if self.pace is None or not self.pace.last or not trial.epochs or not trial.seconds:
            return 1.0
        learning = _LEARNING
        if self.macs is not None:
            smaller = float(np.log(self.macs(Arch(trial.picks)) / self.most))
            learning = max(_SLOWEST, learning + _SMALLER * smaller)
        learnt = (trial.accuracy - self.guess) / (_SURE * self._error(trial))
        epochs = min(self.pace.last / trial.seconds * trial.epochs, _SCARCE)
        return float(max(1.0, epochs / trial.epochs) ** -(learning * min(1.0, max(0.0, learnt))))

    def _error(self, trial: Trial) -> float:
        """The standard error of what the trial measured."""
        judges = judged(self.splits.val, trial.rung + 1 == self.rungs)
        right = (trial.accuracy / 100 * judges + 1) / (judges + 2)  # never quite none or all of them
        return 100 * float(np.sqrt(_LUCK * right * (1 - right) / judges))
