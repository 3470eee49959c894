"""Processes that train trials side by side.

A GPU's library compiles a kernel for every new shape of depthwise convolution: seconds per network, on one core of the
host, while the GPU waits. Several processes wait for theirs at the same time, and share the GPU for the rest. On a CPU
with many cores small networks keep one or two busy, not all.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import final

import torch

from sartor.core.errors import SartorError
from sartor.data.files import memory_limit
from sartor.engine.feed import Feed
from sartor.engine.recipe import Recipe
from sartor.methods.base import Job
from sartor.methods.trials.bench import Bench, Work
from sartor.runs.schema import Trial

_MOST = {"cuda": 6, "cpu": 8}
_CORES = {"cuda": 2, "cpu": 4}  # of the host, for one process
_LOOK = 0.5  # seconds between looks at the clock


def size(feed: Feed, wanted: int) -> int:
    """How many processes train side by side: as many as were asked for, or as suit the device, its host and the data.

    Processes that share the work already (`--devices`) train together.
    """
    engine, kind = feed.engine, feed.engine.device.type
    if wanted or engine.world > 1:
        return wanted if engine.world == 1 else 1
    pixels = feed.images.resident("cpu")
    room = memory_limit() // max(1, pixels.nbytes) if pixels is not None else _MOST[kind]  # each holds the images
    return max(1, min(_MOST[kind], engine.cores // _CORES[kind], room))


@final
class Crew:
    """So many processes, each with a bench of its own; they end with this one."""

    def __init__(self, bench: Bench, size: int) -> None:
        context, sent = get_context("spawn"), bytes(ForkingPickler.dumps(bench))  # CUDA does not survive a fork
        self.members: dict[Connection, BaseProcess] = {}
        self.getting: dict[Connection, threading.Thread] = {}  # those that may not have their bench yet
        threads = max(1, bench.feed.engine.cores // size)
        for _ in range(size):
            mine, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, threads), daemon=True)
            with _without_main():
                process.start()
            theirs.close()
            self.members[mine] = process
            # A process takes it when it is there, seconds later, which nobody waits for; with `start` all would.
            self.getting[mine] = threading.Thread(target=_hand_over, args=(mine, sent), daemon=True)
            self.getting[mine].start()

    @classmethod
    def of(cls, job: Job, recipe: Recipe, wanted: int) -> Crew | None:
        """A crew, where there is to be more than one process and a bench can be sent to them."""
        wanted = size(job.feed, wanted)
        if wanted < 2:
            return None
        try:
            return cls(Bench.of(job, recipe), wanted)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            job.run.log(f"networks are tried one after the other: they cannot be sent to other processes ({error})")
            return None

    def train(self, works: Sequence[Work], late: Callable[[], bool]) -> Iterator[tuple[int, Trial]]:
        """Trials with their numbers, as they end; when it is late, none is begun and those under way are given up.

        What a process that died was training is given to another; where none is left, the rest is not done here.
        """
        waiting, busy, idle = deque(enumerate(works)), dict[Connection, tuple[int, Work]](), deque(self.members)
        while (waiting or busy) and self.members and not late():
            while waiting and idle:
                member = idle.popleft()
                busy[member] = waiting.popleft()
                if member in self.getting:
                    self.getting.pop(member).join()
                with contextlib.suppress(BrokenPipeError):  # it is found dead below
                    member.send(busy[member][1])
            for member in [m for m in wait(list(busy), _LOOK) if isinstance(m, Connection)]:
                number, work = busy.pop(member)
                try:
                    got: Trial | SartorError = member.recv()
                except (EOFError, ConnectionError):
                    waiting.appendleft((number, work))
                    self.members.pop(member)
                    continue
                if isinstance(got, SartorError):
                    raise got
                idle.append(member)
                yield number, got
        for member in busy:  # in the middle of something
            self.members.pop(member).terminate()

    def close(self) -> None:
        """Send everyone home."""
        for process in self.members.values():
            process.terminate()
        self.members.clear()


def _serve(connection: Connection, threads: int) -> None:
    """Train what is sent, after what it takes to, and send what came of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears it and ends this one
    threading.Thread(target=_follow, daemon=True).start()
    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, ConnectionError):  # the first process has ended
        bench: Bench = pickle.loads(connection.recv_bytes())  # from the first process, never from a file
        while True:
            work = connection.recv()
            try:
                connection.send(bench.measure(work))
            except SartorError as error:
                connection.send(error)


def _hand_over(member: Connection, sent: bytes) -> None:
    with contextlib.suppress(OSError):  # it is found dead later
        member.send_bytes(sent)


def _follow() -> None:
    """End with the first process, however that ended."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A started process would run the user's script once more: it needs nothing of it."""
    main = sys.modules["__main__"]
    kept = {name: value for name, value in vars(main).items() if name in ("__spec__", "__file__")}
    main.__spec__ = None
    vars(main).pop("__file__", None)
    try:
        yield
    finally:
        vars(main).update(kept)
