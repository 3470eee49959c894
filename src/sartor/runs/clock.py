"""The time that a run may take, over all its attempts: a killed run resumes into what is left."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

from sartor.runs.codec import RunFile
from sartor.runs.directory import Run


@final
@dataclass(frozen=True)
class ClockFile(RunFile):
    """``clock.json``: how long earlier attempts worked, and when the present one began (seconds since 1970)."""

    NAME: ClassVar[str] = "clock.json"

    spent: float
    begun: float


@final
class Clock:
    """`seconds` for the whole run; None where nobody limits it."""

    def __init__(self, run: Run, seconds: float | None, began: float | None = None) -> None:
        self.run, self.seconds = run, seconds
        self._start = time.monotonic() if began is None else began

    @cached_property
    def _before(self) -> float:
        """What earlier attempts used; written down, with the beginning of this one, when somebody first asks."""
        spent = 0.0
        if (self.run.path / ClockFile.NAME).exists():
            last = self.run.load(ClockFile)
            # Nobody could write down when a killed attempt ended: its newest file says until when it worked.
            newest = max((p.stat().st_mtime for p in self.run.path.rglob("*") if p.is_file()), default=last.begun)
            spent = last.spent + max(0.0, newest - last.begun)
        if self.run.writer:
            self.run.save(ClockFile(spent, time.time()))
        return spent

    @property
    def spent(self) -> float:
        """Seconds of work so far, those of earlier attempts among them."""
        return self._before + time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds that are left; infinitely many where nobody counts."""
        return float("inf") if self.seconds is None else max(0.0, self.seconds - self.spent)
