"""How long a training is: so many epochs, or as many as fit into a time.

A schedule is a function of the share of a training that is behind it, so whatever changes the length changes the
schedule too: a training that has become too slow for its time is shortened, and its learning rate still ends at the
end. What was decided goes into the checkpoint, so a resumed training does the same.
"""

from __future__ import annotations

import time
from typing import Any, final

from sartor.engine.device import Engine

_LATE = 1.03  # so much longer than there is time is not worth a change
_SURE = 2.0  # seconds of training before its speed is believed


@final
class Length:
    """`end` epochs, a fraction perhaps; shortened where `until`, a moment of `time.monotonic`, would come first."""

    def __init__(self, end: float, until: float | None = None) -> None:
        self.end, self.until = end, until
        self._bend = (0.0, 0.0)  # from this epoch and progress on the rest is spread evenly over what is left
        self._mark: tuple[float, float] | None = None  # epoch and moment from which the speed is measured

    def progress(self, at: float) -> float:
        """The share of the training that is behind us after `at` epochs."""
        epoch, done = self._bend
        return done + (1 - done) * (at - epoch) / (self.end - epoch) if self.end > epoch else 1.0

    def keep(self, engine: Engine, at: float) -> None:
        """Shorten what is left where at the speed so far it would end too late."""
        if self.until is None:
            return
        now = time.monotonic()
        if self._mark is None or at < self._mark[0]:
            self._mark = at, now
        epochs, seconds = at - self._mark[0], now - self._mark[1]
        if epochs <= 0 or seconds < _SURE or at >= self.end:
            return
        possible = at + max(0.0, self.until - now) * epochs / seconds
        end = float(engine.agree(self.end if self.end - at <= _LATE * (possible - at) else max(possible, at)))
        if end < self.end:
            self._bend, self.end = (at, self.progress(at)), end

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"end": self.end, "bend": list(self._bend)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read what `state_dict` gave; the moment is this process's own."""
        self.end, self._bend, self._mark = float(state["end"]), (state["bend"][0], state["bend"][1]), None
