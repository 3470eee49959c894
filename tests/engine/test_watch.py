"""Who keeps the others waiting is named: seen on processes that compute, do nothing, are stopped or have ended."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time

import pytest

from sartor.engine import watch

COMPUTING = "while True: pass"
SLEEPING = "import time; time.sleep(100)"


@pytest.fixture
def processes():
    started = []

    def start(code):
        started.append(subprocess.Popen([sys.executable, "-S", "-c", code]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def seen(monkeypatch, processes):
    """The watch of one process of a run, all at the first meeting but `behind`; the others are plain processes."""
    monkeypatch.setattr(watch, "PATIENCE", dict.fromkeys(watch.PATIENCE, 3))

    def look(behind, codes, mine=0):
        token, world = secrets.token_hex(8), len(codes) + 1
        watches = [watch.Watch(n, world, token) for n in range(world)]
        others = [n for n in range(world) if n != mine]
        started = {n: processes(code) for n, code in zip(others, codes, strict=True)}
        for n, process in started.items():
            watches[n].board[n, 1] = process.pid
        for n in (n for n in range(world) if n not in behind):
            watches[n].board[n, 0] += 1
        watches[mine].waiting = True
        watches[mine].path.unlink()
        return watches[mine], started

    return look


def looked(mine, times=3):
    """What several looks come to, with time for who computes to compute."""
    found = [mine.missing() for _ in range(times - 1) if time.sleep(0.2) is None]
    assert found[0] == {}  # not at the first sight
    time.sleep(0.2)
    return mine.missing()


def test_all_are_given_up_within_half_a_minute():
    sure = [looks for what, looks in watch.PATIENCE.items() if what != watch._APART]
    assert max(sure) * watch._LOOK < 28


@pytest.mark.parametrize("number, what", [(signal.SIGKILL, "ended"), (signal.SIGSTOP, "is stopped")])
@pytest.mark.parametrize("mine, other", [(0, 1), (1, 0)])
def test_one_that_ended_or_is_stopped_is_seen_by_whom_it_keeps_waiting(seen, number, what, mine, other):
    watching, started = seen([other], [SLEEPING], mine)
    os.kill(started[other].pid, number)
    assert looked(watching) == {other: what}
    watching.waiting = False
    assert looked(watching) == {}


def test_one_that_does_nothing_is_named_and_those_that_wait_for_it_too_are_not(seen):
    watching, _ = seen([2], [SLEEPING, SLEEPING, SLEEPING])
    assert looked(watching) == {2: "has done nothing for 20 s"}


def test_one_that_computes_is_waited_for_and_so_is_the_first_process(seen):
    assert looked(seen([1], [COMPUTING])[0]) == {}
    assert looked(seen([0], [SLEEPING], mine=1)[0]) == {}  # it may wait for a device elsewhere


def test_processes_that_all_wait_for_something_else_are_given_up(seen):
    """None of them is behind, none has ended: they would wait for ever."""
    watching, _ = seen([], [SLEEPING])
    assert looked(watching) == {}
    watching.board[:, watch._WAITS] = 1
    assert looked(watching, 4) == {1: "waits for something else"}
    watching.board[:, watch._COUNT] += 1  # that meeting took long; this is the next
    assert watching.missing() == {}


@pytest.mark.parametrize(
    "first, said",
    [("tells late", True), ("waits for this one", False), ("ended", False), ("is this one", False)],
)
def test_what_all_refuse_is_said_once(seen, first, said):
    watching, started = seen([0, 1], [SLEEPING], mine=0 if first == "is this one" else 1)
    if first == "tells late":  # however long it takes
        threading.Timer(0.5, lambda: watching.board.__setitem__((0, 3), 1)).start()
    elif first == "waits for this one":
        watching.board[0, 0] += 1
    elif first == "ended":
        started[0].kill()
        started[0].wait()
    assert watching.told_by_first() is said
    assert bool(watching.board[0, 3]) is (first in ("tells late", "is this one"))
