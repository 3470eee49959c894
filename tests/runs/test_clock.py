"""Time over several attempts: what an earlier one used is gone, as far as its files show."""

import os
import time

from sartor.runs.clock import Clock, ClockFile
from sartor.runs.directory import Run


def test_nobody_counts_where_nobody_limits(tmp_path):
    clock = Clock(Run(tmp_path), None)
    assert clock.left == float("inf") and not (tmp_path / "clock.json").exists()


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
