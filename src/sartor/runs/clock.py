"""The time that a run may take, over all its attempts: a killed run resumes into what is left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

from sartor.runs.codec import RunFile
from sartor.runs.directory import Run

_BEAT = 1.0  # seconds
_WAITING = 0.04  # of the time: what may be spent on waiting for a busy machine, in all


@final
@dataclass(frozen=True)
class ClockFile(RunFile):
    """``clock.json``: seconds of work until `begun` (seconds since 1970), when an attempt began or ended."""

    NAME: ClassVar[str] = "clock.json"

    spent: float
    begun: float


@final
class Clock:
    """`seconds` for the whole run; None where nobody limits it."""

    def __init__(self, run: Run, seconds: float | None, began: float | None = None) -> None:
        self.run, self.seconds = run, seconds
        self._start, self._waited = time.monotonic() if began is None else began, 0.0

    @cached_property
    def _before(self) -> float:
        """What earlier attempts used; written down, with the beginning of this one, when somebody first asks."""
        spent = 0.0
        if (self.run.path / ClockFile.NAME).exists():
            last = self.run.load(ClockFile)
            # Nobody could write down when a killed attempt ended: its newest file, mostly this one, says when it did.
            newest = max((p.stat().st_mtime for p in self.run.path.rglob("*") if p.is_file()), default=last.begun)
            spent = last.spent + max(0.0, newest - last.begun)
        if self.run.writer:
            self.run.save(ClockFile(spent, time.time()))
        return spent

    @contextmanager
    def running(self) -> Iterator[None]:
        """While work goes on: its file says every second that it does, in case that nobody can say when it ended."""
        if self.seconds is None or not self.run.writer:
            yield
            return
        file, over = self.run.path / ClockFile.NAME, threading.Event()

        def beat() -> None:
            while not over.wait(_BEAT):
                if self._asked:
                    with suppress(OSError):  # somebody took it away
                        os.utime(file)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            if self._asked:
                self.run.save(ClockFile(self.spent, time.time()))

    @property
    def _asked(self) -> bool:
        """Whether anybody wanted to know the time: a run that is only looked at is not worked on."""
        return "_before" in vars(self)

    @property
    def spent(self) -> float:
        """Seconds of work so far, those of earlier attempts among them."""
        return self._before + time.monotonic() - self._start

    def wait(self, seconds: float) -> bool:
        """Whether there is time to wait so long for a quieter machine; it is then counted as spent on that."""
        if self.seconds is not None and self._waited + seconds > _WAITING * self.seconds:
            return False
        self._waited += seconds
        return True

    @property
    def left(self) -> float:
        """Seconds that are left; infinitely many where nobody counts."""
        return float("inf") if self.seconds is None else max(0.0, self.seconds - self.spent)
