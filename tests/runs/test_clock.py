"""Time over several attempts: what an earlier one used is gone, as far as its files show."""

import os
import time

from sartor.runs import clock
from sartor.runs.clock import Clock, ClockFile
from sartor.runs.directory import Run


def test_nobody_counts_where_nobody_limits(tmp_path):
    free = Clock(Run(tmp_path), None)
    assert free.left == float("inf") and not (tmp_path / "clock.json").exists()


def test_a_resumed_run_has_what_the_killed_one_left(tmp_path):
    run = Run(tmp_path)
    assert 99 < Clock(run, 100.0).left <= 100
    begun = run.load(ClockFile).begun
    (tmp_path / "search").mkdir()
    last = tmp_path / "search/heaviest.checkpoint.safetensors"
    last.write_bytes(b"")
    os.utime(last, (begun + 30, begun + 30))  # the attempt worked for half a minute and was killed
    assert 69 < Clock(run, 100.0).left <= 70.1
    os.utime(last, (begun, begun))
    os.utime(tmp_path / "clock.json", (time.time(), time.time()))
    assert 68 < Clock(run, 100.0).left <= 70.1  # what the first attempt used stays used


def test_time_does_not_become_negative(tmp_path):
    assert Clock(Run(tmp_path), 0.0).left == 0.0


def test_a_killed_attempt_that_wrote_nothing_is_counted_all_the_same(tmp_path, monkeypatch):
    """Its clock ticks while it works; one that is only looked at does not."""
    monkeypatch.setattr(clock, "_BEAT", 0.01)
    run = Run(tmp_path)
    with Clock(run, 100.0).running():
        pass
    assert not (tmp_path / ClockFile.NAME).exists()
    worked = Clock(run, 100.0)
    assert worked.left > 99
    begun = run.load(ClockFile).begun
    os.utime(tmp_path / ClockFile.NAME, (begun, begun))
    with worked.running():
        while (tmp_path / ClockFile.NAME).stat().st_mtime == begun:
            time.sleep(0.01)  # an attempt that does nothing but take its time
        monkeypatch.setattr(Run, "save", lambda self, file: None)  # and is killed: it cannot say when it ends
    beat = (tmp_path / ClockFile.NAME).stat().st_mtime - begun
    assert beat > 0
    assert Clock(run, 100.0).spent >= beat


def test_an_attempt_that_ends_by_itself_says_so(tmp_path):
    run = Run(tmp_path)
    first = Clock(run, 100.0, time.monotonic() - 40)
    with first.running():
        assert first.spent >= 40
    known = run.load(ClockFile)
    assert known.spent >= 40
    assert 40 <= Clock(run, 100.0).spent < 42


def test_waiting_for_a_quieter_machine_takes_a_small_part_of_the_time(tmp_path):
    clock = Clock(Run(tmp_path), 100.0)
    assert [clock.wait(1.5) for _ in range(4)] == [True, True, False, False]
    assert clock.wait(1.0)
    endless = Clock(Run(tmp_path), None)
    assert all(endless.wait(1e6) for _ in range(3))
