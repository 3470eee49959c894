"""What a person sees while work goes on: live bars on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

_SAY_EVERY = 30.0  # seconds between lines where there is no terminal


@dataclass(frozen=True)
class Whole:
    """The time of a whole command: what it has taken so far, and what it may take."""

    spent: Callable[[], float]
    seconds: float

    @property
    def left(self) -> str:
        """In words."""
        spent = self.spent()
        if spent > self.seconds:
            return f"{span(spent - self.seconds)} over the {span(self.seconds)}"
        return f"{span(self.seconds - spent)} of {span(self.seconds)} left"


class _Display(Progress):
    """Bars that count the time left down between two reports."""

    def get_renderables(self) -> Any:
        for task in self.tasks:
            whole, ends = task.fields.get("whole"), task.fields.get("ends")
            if whole is not None:
                self.update(task.id, completed=min(whole.spent(), whole.seconds), note=whole.left)
            elif ends is not None:
                self.update(task.id, left=f"{span(max(0.0, ends - time.monotonic()))} left")
        yield from super().get_renderables()


class Bar:
    """One piece of work with a known length; does nothing where nobody watches."""

    def __init__(self, reporter: Reporter, title: str, total: int) -> None:
        self._reporter, self._title, self._total = reporter, title, total
        self._task = reporter.begun(title, total)
        self._start = self._said = time.monotonic()

    def to(self, done: int, note: str = "") -> None:
        """Show that `done` steps are behind us; without a terminal, a line now and then."""
        now = time.monotonic()
        left = (now - self._start) * (self._total - done) / done if done else None
        if self._task is not None:
            self._reporter.moved(self._task, done, note, None if left is None else now + left)
        elif left is not None and now - self._said > _SAY_EVERY:
            self._said = now
            more = [f"about {span(left)} left", *([note] if note else [])]
            whole = self._reporter.whole
            if whole is not None:
                more.append(f"in all {whole.left}")
            self._reporter.say(f"  {self._title}: {100 * done // self._total} %, {', '.join(more)}")

    def close(self) -> None:
        """Say how long it took."""
        if self._task is not None:
            self._reporter.ended(self._task)
        self._reporter.say(f"  {self._title}: {span(time.monotonic() - self._start, short=True)}")


def span(seconds: float, short: bool = False) -> str:
    """A duration as people say it: ``40 s``, ``3 min 20 s``, ``2 h 5 min``; a `short` one to a tenth of a second."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if short else f"{whole} s"
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

        self.whole: Whole | None = None
        self._display: _Display | None = None

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
        """A bar with the time left, and how long it took at the end; without a terminal only that, and lines."""
        bar = Bar(self, title, total)
        try:
            yield bar
        except BaseException:
            if bar._task is not None:
                self.ended(bar._task)
            raise
        bar.close()

    @contextmanager
    def within(self, spent: Callable[[], float], seconds: float | None) -> Iterator[None]:
        """While a whole command goes on that may take so many `seconds`: how much of them is left is always shown."""
        if seconds is None:
            yield
            return
        self.whole = Whole(spent, seconds)
        task = self.begun("in all", max(1, round(seconds)), whole=self.whole)
        try:
            yield
        finally:
            self.whole = None
            if task is not None:
                self.ended(task)

    def begun(self, title: str, total: int, **fields: Any) -> TaskID | None:
        """A new line of the display, which is there as long as it has any; None where nobody watches."""
        if not self.live:
            return None
        if self._display is None:
            columns = [TextColumn("  {task.description}"), BarColumn(24), TextColumn("{task.percentage:>3.0f} %"),
                       TextColumn("{task.fields[left]}"), TextColumn("{task.fields[note]}")]  # fmt: skip
            self._display = _Display(*columns, console=self.console, transient=True)
            self._display.start()
        return self._display.add_task(title, total=total, **{"note": "", "left": "", **fields})

    def moved(self, task: TaskID, done: int, note: str, ends: float | None) -> None:
        """Show how far a piece of work is, and when it will probably end."""
        if self._display is not None:
            self._display.update(task, completed=done, note=note, ends=ends)

    def ended(self, task: TaskID) -> None:
        """Take a line away; the last one ends the display."""
        if self._display is not None:
            self._display.remove_task(task)
            if not self._display.tasks:
                self._display.stop()
                self._display = None
