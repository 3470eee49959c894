import numpy as np
import pytest

from sartor.core.errors import SartorError
from sartor.core.task import Task
from sartor.costs.latency.calibration import Fit, fit, lightest, networks
from sartor.costs.params import Params
from sartor.spaces.mobile.space import Mobile

TASK = Task(10, 8, 1)
SPACE = Mobile(preset="tiny")


def test_fit_finds_the_line():
    x = np.linspace(1, 9, 12)
    line = fit(x.tolist(), (0.5 + 1.2 * x).tolist())
    assert line.intercept == pytest.approx(0.5)
    assert line.scale == pytest.approx(1.2)
    assert max(map(abs, line.errors)) < 1e-9
    assert max(map(abs, line.left_out)) < 1e-9
    assert line.to_json()["held_out_worst_error"] < 1e-9


def test_the_overhead_of_timing_parts_alone_is_found_where_networks_have_more_or_fewer():
    n = np.arange(4, 16) % 7 + 3.0
    bare = np.linspace(1, 9, 12)
    line = fit((bare + 0.1 * n).tolist(), (0.5 + 1.2 * bare).tolist(), n.tolist(), 0.15)
    assert (line.overhead, line.scale, line.intercept) == pytest.approx((0.1, 1.2, 0.5))
    assert max(map(abs, line.left_out)) < 1e-9
    assert Fit.from_json(line.to_json()) == line
    assert fit((bare + 0.1 * n).tolist(), (0.5 + 1.2 * bare).tolist()).overhead == 0
    assert fit((bare + 0.1 * n)[:8].tolist(), (0.5 + 1.2 * bare)[:8].tolist(), n[:8].tolist(), 0.15).overhead == 0


def test_fit_survives_json_and_nonsense_does_not():
    line = fit([1.0, 2.0, 4.0, 5.0], [1.1, 2.0, 4.1, 5.3])
    assert Fit.from_json(line.to_json()) == line
    for wrong in (None, {}, [], line.to_json() | {"scale": -1}, line.to_json() | {"intercept_ms": float("nan")}):
        assert Fit.from_json(wrong) is None


def test_held_out_errors_are_larger_than_fitted_ones():
    rng = np.random.default_rng(0)
    x = np.linspace(1, 9, 12)
    line = fit(x.tolist(), (x * np.exp(0.1 * rng.standard_normal(12))).tolist())
    assert np.mean(np.abs(line.left_out)) > np.mean(np.abs(line.errors))


def test_a_falling_line_is_replaced_by_one_through_zero():
    line = fit([1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
    assert line.intercept == 0
    assert line.scale > 0


def test_parts_without_time_are_an_error():
    with pytest.raises(SartorError, match="no measurable time"):
        fit([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])


def test_networks_span_the_space():
    size = Params().table(SPACE, TASK).form
    assert lightest(SPACE, size) == SPACE.smallest
    chosen = networks(SPACE, size, 10, np.random.default_rng(0))
    assert chosen[:2] == [SPACE.smallest, SPACE.heaviest]
    assert len(set(chosen)) == len(chosen) == 12
    values = [size(a) for a in chosen[2:]]
    assert values[0] < np.median(values) < values[-1]
    assert chosen == networks(SPACE, size, 10, np.random.default_rng(0))
