"""Trainings planned in seconds: how long they become, that nothing else changes, and that a slow one is shortened."""

import time

import numpy as np
import pytest
import tiny
import torch

from sartor.engine import plan
from sartor.engine.device import Way
from sartor.engine.fit import Training, fit, nothing
from sartor.engine.length import Length
from sartor.engine.plan import Pacer, planned, seconds_per_step
from sartor.engine.recipe import Recipe


class Alone:
    """An engine of one process."""

    def agree(self, value):
        return value


def test_progress_is_the_share_of_the_epochs():
    length = Length(4.0)
    assert [length.progress(at) for at in (0, 1, 2.5, 4)] == [0, 0.25, 0.625, 1]


def test_a_slow_training_is_shortened_and_its_schedule_still_ends(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    length = Length(10.0, until=1100.0)
    length.keep(Alone(), 0.0)
    now = 1060.0  # three epochs took a minute: two more fit into the forty seconds that are left
    length.keep(Alone(), 3.0)
    assert length.end == pytest.approx(5.0)
    assert length.progress(3.0) == pytest.approx(0.3) and length.progress(5.0) == pytest.approx(1.0)
    again = Length(10.0, until=None)
    again.load_state_dict(length.state_dict())
    assert [again.progress(at) for at in (3, 4, 5)] == [length.progress(at) for at in (3, 4, 5)]


def test_a_training_that_has_become_faster_goes_on_for_longer(monkeypatch):
    """A neighbour was busy while the training was planned, or for its first seconds."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    length, at = Length(10.0, until=200.0, filled=True), 0.0
    while now < 60:  # a tenth of the speed that was planned
        length.keep(Alone(), at)
        now, at = now + 0.5, at + 0.005
    assert length.end == pytest.approx(2.0, abs=0.1)
    slow = length.progress(at)
    while at < length.end:  # then twice that speed
        length.keep(Alone(), at)
        now, at = now + 0.5, at + 0.05
    assert 190 < now < 203 and length.end == pytest.approx(0.6 + 14, abs=0.7)
    assert slow < 0.4 and length.progress(at) == pytest.approx(1.0, abs=0.01)


def test_a_time_that_is_only_a_limit_is_not_filled(monkeypatch):
    """A trial is as long as its rung says, however much of the search's time is left."""
    now, length = 0.0, Length(10.0, until=1000.0)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for epoch in range(10):
        length.keep(Alone(), float(epoch))
        now += 20.0
    assert length.end == 10.0


def test_a_training_in_time_keeps_its_epochs(monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    length = Length(10.0, until=100.0)
    for epoch in range(1, 10):
        now = 10.0 * epoch
        length.keep(Alone(), float(epoch))
    assert length.end == 10.0


def _training(tmp_path, epochs=2, **recipe):
    job = tiny.job(tmp_path)
    torch.manual_seed(0)
    net = job.space.network(job.space.heaviest, job.task)
    loss = lambda x, y, drawn: {"loss": torch.nn.functional.cross_entropy(net(x), y)}  # noqa: E731
    return Training(
        "timed", net, loss, Recipe(epochs=epochs, batch=16, **recipe), job.feed, job.splits.train, job.run, draw=nothing
    )


def test_timing_steps_changes_nothing(tmp_path):
    t = _training(tmp_path)
    before = {k: v.clone() for k, v in t.net.state_dict().items()}
    assert seconds_per_step(t) > 0
    assert all(torch.equal(v, before[k]) for k, v in t.net.state_dict().items())
    assert all(p.grad is None for p in t.net.parameters())


def test_seconds_decide_the_epochs_and_a_resumed_run_keeps_them(tmp_path, monkeypatch):
    t = _training(tmp_path)
    monkeypatch.setattr("sartor.engine.plan.seconds_per_step", lambda t, patience, hopeless: 0.5)
    steps = len(t.feed.batches(t.index, 16, "timed"))
    first = planned(t, 100.0)
    assert first.length.end == pytest.approx(0.97 * 100 / (0.5 * steps), rel=0.01)
    monkeypatch.setattr("sartor.engine.plan.seconds_per_step", lambda *told: pytest.fail("timed again"))
    assert planned(t, 1.0).length.end == first.length.end


def test_a_part_of_an_epoch_can_be_the_end(tmp_path):
    from dataclasses import replace

    t = _training(tmp_path)
    steps = len(t.feed.batches(t.index, 16, "timed"))
    seen = []
    after = lambda t, optimiser, epoch, step, steps: seen.append((epoch, step, optimiser.param_groups[0]["lr"]))  # noqa: E731
    history = fit(replace(t, length=Length(1 + 2 / steps), after=after))
    assert len(history) == 2 and len(seen) == steps + 2
    rates = [rate for *_, rate in seen]
    assert np.argmax(rates) < len(rates) - 1 and rates[-1] < 0.3 * max(rates)


def test_the_way_is_chosen_anew_where_steps_take_another_time(tmp_path, monkeypatch):
    """A neighbour comes, and one thread is faster; it goes, and both are. Steps that vary a little change nothing."""
    now, slow, timed = 0.0, False, []
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def fastest(t, patience):
        timed.append(now)
        return (0.3, Way(1, 1)) if slow else (0.1, Way(2, 1))

    monkeypatch.setattr(plan, "fastest", fastest)
    training, pacer = _training(tmp_path), Pacer(0.1)

    def steps(seconds, until):
        nonlocal now
        while now < until:
            now += seconds
            pacer(training, 0.5)

    steps(0.13, 60)
    assert timed == []
    slow = True
    steps(1.0, 71)  # waiting threads spin, until one alone is chosen
    steps(0.3, 180)
    assert len(timed) == 1 and 60 < timed[0] < 85
    slow = False
    steps(0.12, 240)
    assert len(timed) == 2 and 180 < timed[1] < 205
    assert pacer.step == 0.1
