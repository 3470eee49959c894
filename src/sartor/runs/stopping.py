"""Ctrl-C and SIGTERM where work may be stopped: after a step, not in the middle of it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def patiently() -> Iterator[Callable[[], bool]]:
    """Inside, the first Ctrl-C or SIGTERM waits until the block ends; what is given says whether there was one.

    A second one is not waited for. Only a process's first thread hears signals; in others nothing changes.
    """
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)
        restore()

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in before.items():
            if handler is not None:  # one that Python did not install
                signal.signal(number, handler)

    for number, handler in before.items():
        if handler not in (signal.SIG_IGN, None):  # a job in the background of a script does not hear Ctrl-C
            signal.signal(number, hear)
    try:
        yield lambda: bool(heard)
    finally:
        restore()
        if heard:
            signal.raise_signal(heard[0])
