"""What a person sees while work goes on: live bars on a terminal, one line a stage elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_SAY_EVERY = 30.0  # seconds between lines where there is no terminal


class Bar:
    """One piece of work with a known length; does nothing where nobody watches."""

    def __init__(self, progress: Progress | None, title: str, total: int, say: Callable[[str], None]) -> None:
        self._progress, self._title, self._total, self._say = progress, title, total, say
        self._task = progress.add_task(title, total=total, note="") if progress else None
        self._start = self._said = time.monotonic()

    def to(self, done: int, note: str = "") -> None:
        """Show that `done` steps are behind us; without a terminal, a line now and then."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, note=note)
        elif done and time.monotonic() - self._said > _SAY_EVERY:
            self._said = time.monotonic()
            left = (self._said - self._start) * (self._total - done) / done
            more = f", {note}" if note else ""
            self._say(f"  {self._title}: {100 * done // self._total} %, about {span(left)} left{more}")


def span(seconds: float) -> str:
    """A duration as people say it: ``40 s``, ``3 min 20 s``, ``2 h 5 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


class Reporter:
    """Writes to standard error, so that results on standard output stay clean.

    Live bars are drawn on a terminal only; `quiet` (also the environment variable CI, and every
    process but the first of a distributed run) leaves just one line a stage or nothing.
    """

    def __init__(self, quiet: bool | None = None, silent: bool = False) -> None:
        self.silent = silent
        self.console = Console(stderr=True, soft_wrap=True, highlight=False)
        watched = sys.stderr.isatty() and not os.environ.get("CI")
        self.live = not silent and (watched if quiet is None else not quiet and watched)

    def imports(self, names: Sequence[str]) -> None:
        """Show by name the code that a run's files name, where a person has said that they are trusted."""
        for name in names:
            self.say(f"  importing {name}, which the run's files name")

    def say(self, text: str) -> None:
        """One line for the person watching."""
        if not self.silent:
            self.console.print(text, markup=False)

    @contextmanager
    def bar(self, title: str, total: int) -> Iterator[Bar]:
        """A bar with the time left; a single closing line where there is no terminal."""
        if not self.live:
            start = time.monotonic()
            yield Bar(None, title, total, self.say)
            self.say(f"  {title}: {time.monotonic() - start:.1f} s")
            return
        columns: list[Any] = [TextColumn("  {task.description}"), BarColumn(24), MofNCompleteColumn()]
        columns += [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}")]
        with Progress(*columns, console=self.console, transient=False) as progress:
            yield Bar(progress, title, total, self.say)
