import numpy as np
import pytest
from scipy.stats import binom

from sartor.deploy.probe import visit
from sartor.deploy.timing import InProcess, Timing, interleaved, interval, polished


@pytest.mark.parametrize("n", [6, 9, 15, 40])
def test_interval_has_its_coverage(n):
    low, high = interval(np.arange(n))
    inside = binom.cdf(high, n, 0.5) - binom.cdf(low, n, 0.5)  # P(low-th <= median <= high-th order statistic)
    assert inside >= 0.95
    assert low + high == n - 1


def test_interval_of_few_values_is_their_range():
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_polishing_takes_out_slow_rounds():
    rng = np.random.default_rng(0)
    true = np.array([1.0, 2.0, 5.0, 7.0, 11.0])
    slow = np.where(np.arange(15) % 2 == 0, 1.0, 1.9)  # every other round is almost twice as slow
    noise = np.exp(0.01 * rng.standard_normal((5, 15)))
    noise[2, 3] = 30.0  # and one visit was interrupted
    times = {str(k): true[k] * slow * noise[k] for k in range(5)}
    clean = polished(times)
    found = np.array([np.median(clean[str(k)]) for k in range(5)])
    np.testing.assert_allclose(found / found[0], true, rtol=0.02)


def test_every_round_visits_everything():
    calls = {"a": 0, "b": 0}

    def call(name):
        calls[name] += 1

    seen = []
    watch = InProcess({n: lambda n=n: call(n) for n in calls})
    times = interleaved(watch, list(calls), 4, 0.0, np.random.default_rng(0), tick=seen.append)
    assert seen == [1, 2, 3, 4]
    assert {n: len(t) for n, t in times.items()} == {"a": 4, "b": 4}
    assert calls == {"a": 12, "b": 12}  # one unrecorded call and two recorded ones a visit


def test_visit_records_at_least_two_calls():
    assert len(visit(lambda: None, 0.0)) == 2


def test_timing_summarises_rounds():
    rounds = [[1.0, 1.1, 1.2], [1.0, 1.3, 9.0], [1.1, 1.1, 1.2]]
    timing = Timing.of(rounds, [0.2, 0.2, 0.4], 0.1)
    assert timing.n == 9
    assert timing.p50 == 1.1
    assert timing.p95 > 1.3
    assert timing.low <= timing.p50 <= timing.high
    assert timing.drift == pytest.approx(2.0)
    assert timing.to_json()["p50"] == 1.1
    assert timing.to_json()["unit"] == "ms"
    assert Timing.of(rounds, [0.2], None).drift is None
