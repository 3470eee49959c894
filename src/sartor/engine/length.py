"""How long a training is: so many epochs, or as many as fit into a time.

A schedule is a function of the share of a training that is behind it, so whatever changes the length changes the
schedule too: a training that has become too slow for its time is shortened, one that has become faster goes on for
longer, and its learning rate still ends at the end. What was decided goes into the checkpoint, so a resumed training
does the same.
"""

from __future__ import annotations

import time
from typing import Any, final

from sartor.engine.device import Engine
from sartor.engine.growth import Growth

_LATE = 1.03  # so much longer than there is time is not worth a change,
_EARLY = 1.1  # nor is so much time more than is needed,
_SPARED = 0.97  # of which a part is left for checkpoints and the evaluation
_SURE, _SURER = 2.0, 10.0  # seconds of training before its speed is believed, where it is slow and where it is fast
_APART, _MARKS = 15.0, 3  # its speed is that of the last 30 to 45 seconds: neighbours come and go


@final
class Length:
    """`end` epochs, a fraction perhaps; fewer where `until`, a moment of `time.monotonic`, would come first.

    Where that time is to be `filled`, more where it would come long after them. With `growth` later epochs take longer.
    """

    def __init__(
        self, end: float, until: float | None = None, filled: bool = False, growth: Growth | None = None
    ) -> None:
        self.end, self.until, self.filled, self.growth = end, until, filled, growth
        self._bend = (0.0, 0.0)  # from this epoch and progress on the rest is spread evenly over what is left
        self._marks: list[tuple[float, float, float]] = []  # epochs, moments, and work done: the speed lies between
        self._worked = (0.0, 0.0)  # epochs, and how many of the last stage's would have taken as long

    def progress(self, at: float) -> float:
        """The share of the training that is behind us after `at` epochs."""
        epoch, done = self._bend
        return done + (1 - done) * (at - epoch) / (self.end - epoch) if self.end > epoch else 1.0

    def keep(self, engine: Engine, at: float) -> None:
        """Change what is left where at the speed of late it would end too late, or much too early.

        The first process looks at its clock for all; each comes here after the same steps.
        """
        if self.until is None:
            return
        end = float(engine.agree(self._wanted(at, self.until)))
        if end != self.end:
            self._bend, self.end = (at, self.progress(at)), end

    def _wanted(self, at: float, until: float) -> float:
        """The epochs that suit the time, of which `at` are over."""
        now, done = time.monotonic(), self.progress(at)
        cost, rest = (self.growth.at(done).cost, self.growth.left(done)) if self.growth else (1.0, 1.0)
        self._worked = at, self._worked[1] + max(0.0, at - self._worked[0]) * cost
        if not self._marks or at < self._marks[-1][0] or now - self._marks[-1][1] > _APART:
            self._marks = [*(m for m in self._marks if m[0] <= at), (at, now, self._worked[1])][-_MARKS:]
        worked, seconds = self._worked[1] - self._marks[0][2], now - self._marks[0][1]
        if worked <= 0 or seconds < _SURE or at >= self.end:
            return self.end
        left, possible = self.end - at, max(0.0, until - now) * worked / seconds / rest
        if left > _LATE * possible:
            left = possible
        elif self.filled and possible > _EARLY * left and seconds >= _SURER:
            left = max(left, _SPARED * possible)
        return at + left

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"end": self.end, "bend": list(self._bend)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read what `state_dict` gave; the moment is this process's own."""
        self.end, self._bend, self._marks = float(state["end"]), (state["bend"][0], state["bend"][1]), []
