"""Processes that share the work look after each other.

Where all must come together, each waits for the others, and would wait half an hour for one that never comes. On a
board in memory that the processes of a machine share, each counts the meetings it has come to; a thread in each looks
at those that are behind: one that has ended, is stopped, or does nothing is named, and the run ends.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import final

import numpy as np

_LOOK = 1.0  # seconds between two looks
# Looks in a row before somebody is given up; all less than half a minute.
PATIENCE = {"ended": 5, "is stopped": 15, "has done nothing for 20 s": 20, "waits for something else": 60}
_GONE, _STOPPED, _IDLE, _APART = PATIENCE
_RESTING = 3  # hundredths of a second of computing, at most, that a process needs to do nothing for a while
_LATE = 60.0  # seconds for the first process to tell what another would tell otherwise
_COUNT, _PID, _SPACE, _TOLD, _WAITS = range(5)  # columns of the board
ADVICE = "and the others cannot go on without it. Run the same command again: it goes on from the last epoch."


@final
class Watch:
    """The board, and this process's place on it; `token` is the same in all processes of a run, and in no other run."""

    def __init__(self, rank: int, world: int, token: str) -> None:
        self.rank, self.world = rank, world
        self.path = Path(tempfile.gettempdir(), f"sartor-{token}")
        with os.fdopen(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600), "r+b") as file:
            file.truncate(8 * (_WAITS + 1) * world)
            self.board = np.memmap(file, np.int64, "r+", shape=(world, _WAITS + 1))
        self.board[rank, _PID:_TOLD] = os.getpid(), _namespace()
        self.looks: dict[tuple[int, str], int] = {}  # how often in a row something was seen
        self.used: dict[int, list[int]] = {}  # hundredths of seconds computed, look by look
        self._counts: list[int] = []  # the meetings that each had come to, at the last look

    def begin(self) -> None:
        """When every process has its place."""
        self.path.unlink(missing_ok=True)  # the board itself stays as long as somebody has it
        threading.Thread(target=self._look_after, daemon=True, name="watch").start()

    @contextmanager
    def meeting(self) -> Iterator[None]:
        """Around something that ends only when all processes have come to it."""
        self.board[self.rank, _COUNT] += 1
        self.waiting = True
        try:
            yield
        finally:
            self.waiting = False

    @property
    def waiting(self) -> bool:
        """Whether this process is at a meeting that has not ended."""
        return bool(self.board[self.rank, _WAITS])

    @waiting.setter
    def waiting(self, waits: bool) -> None:
        self.board[self.rank, _WAITS] = waits

    # others ----------------------------------------------------------------------------------------

    def peers(self) -> dict[int, int]:
        """The other processes on this machine, as far as they can be seen: their numbers on the system."""
        here = _namespace()
        seen = (n for n in range(self.world) if n != self.rank and here and self.board[n, _SPACE] == here)
        return {n: int(self.board[n, _PID]) for n in seen}

    def ended(self) -> list[int]:
        """Those that are no more."""
        return [n for n, pid in self.peers().items() if _state(pid)[0] in "ZX"]

    def missing(self) -> dict[int, str]:
        """A look at who keeps this process waiting: those that were given up by now, and why."""
        found, apart = dict[tuple[int, str], int](), self._all_wait()
        for n, pid in self.peers().items() if self.waiting else ():
            state, used = _state(pid)
            behind = self.board[n, _COUNT] == self.board[:, _COUNT].min() < self.board[self.rank, _COUNT]
            self.used[n] = [*self.used.get(n, ()), used][-PATIENCE[_IDLE] :]
            if state in "ZX":
                what = _GONE
            elif behind and state in "Tt":
                what = _STOPPED
            elif apart:  # each at another meeting, since one at which all are would end
                what = _APART
            # The first process may wait for a device elsewhere; others do nothing that it does not do.
            elif behind and n and used - self.used[n][0] <= _RESTING:
                what = _IDLE
            else:
                continue
            found[n, what] = self.looks.get((n, what), 0) + 1
        self.looks = found
        return {n: what for (n, what), count in found.items() if count >= PATIENCE[what]}

    def _all_wait(self) -> bool:
        """Whether every process of the run is here, waits, and has come to no further meeting since the last look."""
        counts = self.board[:, _COUNT].tolist()
        moved, self._counts = counts != self._counts, counts
        return not moved and len(self.peers()) == self.world - 1 and bool(self.board[:, _WAITS].all())

    def _look_after(self) -> None:
        while True:
            time.sleep(_LOOK)
            missing = self.missing()
            if missing:
                self._give_up(missing)

    def _give_up(self, missing: dict[int, str]) -> None:
        """End this process, whose first thread waits where nothing can be raised; one of those left says why."""
        if self.rank == min({self.rank, *self.peers()} - set(missing)):
            told = " and ".join(f"process {n} of {self.world} {what}" for n, what in missing.items())
            self.board[self.rank, _TOLD] = 1
            sys.stderr.write(f"sartor: {told}, {ADVICE}\n")
            sys.stderr.flush()
        if self.rank == 0:  # which started them
            for n in missing:
                with suppress(OSError):
                    os.kill(self.peers()[n], signal.SIGKILL)
        os._exit(2)

    # who says why ----------------------------------------------------------------------------------

    def told_by_first(self) -> bool:
        """Whether the first process of this machine, if that is another, says why the run ends; waits for that.

        What is refused, all refuse, one sooner than the other. But a first process that has come to a meeting where
        this one is not has found nothing to refuse, and one that is no more says nothing.
        """
        first, until = min((self.rank, *self.peers())), time.monotonic() + _LATE
        if first == self.rank:
            self.board[self.rank, _TOLD] = 1
            return False
        while not self.board[first, _TOLD] and time.monotonic() < until:
            if self.board[first, _COUNT] > self.board[self.rank, _COUNT] or first in self.ended():
                break
            time.sleep(0.05)
        return bool(self.board[first, _TOLD])


_current: list[Watch] = []


def start(watch: Watch) -> Watch:
    """The watch of this process, from here on."""
    watch.begin()
    _current[:] = [watch]
    return watch


def current() -> Watch | None:
    """Where several processes share the work."""
    return _current[0] if _current else None


def _namespace() -> int:
    """In which process numbers mean the same; 0 where the system does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _state(pid: int) -> tuple[str, int]:
    """The letter that the system has for what a process does, X if it is no more; hundredths of seconds computed."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return "X", 0
    return fields[0], int(fields[11]) + int(fields[12])
