"""Killed at random moments and started again: the same score, the same network, nothing complete done twice."""

import itertools
import os
import random
import signal
import time

import pytest
import quick
import tiny

from sartor.runs.directory import Run, read_json

METHOD = {**tiny.QUICK["method"], "heaviest_epochs": 6, "multipath_epochs": 6, "passes": 2}
GROUPS = {"method": METHOD, "train": {**tiny.QUICK["train"], "epochs": 6}}
BUDGET = {"params": "150K"}
PHASES = ("search:", "train:", "export:")  # as the log names them, in their order


def start(finished, out, log):
    """`sartor fit` in a process of its own; what it says goes to the file `log`."""
    words = tiny.arguments(finished.data, out, "--params=150K", **GROUPS)
    return quick.start(["-m", "sartor", *words], os.devnull, log)


def said(path):
    return path.read_text(encoding="utf-8").splitlines()


def wait_for(process, log, words):
    """Until the process has said one of `words`, or has ended."""
    limit = time.monotonic() + 100
    while process.exitcode is None and not any(w in line for line in said(log) for w in words):
        assert time.monotonic() < limit, said(log)
        time.sleep(0.01)


def stop(finished, out, log, words, delay, how):
    """Start, wait until it works on one of `words`, `delay` seconds more, then send the signal; the exit code."""
    log.write_text("")
    process = start(finished, out, log)
    try:
        wait_for(process, log, words)
        time.sleep(delay)
        if process.exitcode is None:
            os.kill(process.pid, how)
        process.join(100)
        return process.exitcode
    finally:
        process.kill()
        process.join()


def finish(finished, out, log):
    """To its end; how many seconds each of `PHASES` took, where the run came to it."""
    log.write_text("")
    process, moments = start(finished, out, log), []
    try:
        for word in PHASES:
            wait_for(process, log, [word])
            moments.append(time.monotonic())
        process.join(200)
        moments.append(time.monotonic())
        assert process.exitcode == 0, said(log)
    finally:
        process.kill()
        process.join()
    seconds = [after - before for before, after in itertools.pairwise(moments)]
    return dict(zip(PHASES, seconds, strict=True))


def times(out):
    """When every listed file of every complete stage was written."""
    return {(s, f): (out / f).stat().st_mtime_ns for s, entry in Run(out).stages().items() for f in entry.files}


@pytest.fixture(scope="module")
def uninterrupted(finished, tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted") / "run"
    tiny.prepare(finished, tiny.given(finished.data, BUDGET, **GROUPS), out)
    return out, finish(finished, out, out.with_suffix(".log"))


def same(out, other):
    """The score bit for bit, the network, and the weights that were trained from it."""
    assert read_json(out / "score.json")["score"] == read_json(other / "score.json")["score"]
    for name in ("picks", "score", "bound"):
        assert (
            read_json(out / "solution.json")["solution"][name] == read_json(other / "solution.json")["solution"][name]
        )
    for name in ("search/supernet.safetensors", "model/trained.safetensors", "model/weights.safetensors"):
        assert (out / name).read_bytes() == (other / name).read_bytes(), name
    assert read_json(out / "training.json")["test_accuracy"] == read_json(other / "training.json")["test_accuracy"]


def test_stopped_by_ctrl_c_and_killed_at_random_moments_it_ends_as_if_nothing_had_happened(
    finished, uninterrupted, tmp_path
):
    out, log = tmp_path / "run", tmp_path / "log.txt"
    tiny.prepare(finished, tiny.given(finished.data, BUDGET, **GROUPS), out)
    rng, complete = random.Random(0), times(out)
    whole, seconds = uninterrupted  # moments are shares of what this machine needs: none comes after the end

    def stopped(word, least, most, how):
        return stop(finished, out, log, [word], seconds[word] * rng.uniform(least, most), how)

    assert stopped("search:", 0.1, 0.25, signal.SIGINT) == 130, said(log)
    assert said(log)[-1].startswith("sartor: stopped; what was computed is kept")
    assert not any("Traceback" in line for line in said(log))
    assert list(out.glob("search/*.checkpoint.safetensors"))
    assert stopped("search:", 0.1, 0.25, signal.SIGTERM) == 143, said(log)
    assert said(log)[-1].startswith("sartor: stopped; what was computed is kept")
    # Anywhere in the search first, then wherever the run has got to: the later stages come closer each time.
    for word, most in [("search:", 0.1), ("search:", 0.3), ("search:", 0.5), ("train:", 0.5), ("export:", 0.5)]:
        assert stopped(word, 0, most, signal.SIGKILL) == -signal.SIGKILL, said(log)
        now = times(out)
        assert {k: now[k] for k in complete} == complete, "a stage that was complete ran again"
        complete = now
        for path in (*out.glob("*.json"), *out.glob("*/*.json")):
            read_json(path)  # whole, or not there
    finish(finished, out, log)
    now = times(out)
    assert {k: now[k] for k in complete} == complete
    assert any("done before" in line for line in said(log))
    same(out, whole)
    assert read_json(out / "certificate.json")["fits"]
