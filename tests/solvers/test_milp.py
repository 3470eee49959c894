import math

import numpy as np
import pytest

from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers import cheapest, solve
from sartor.solvers.base import Problem
from sartor.solvers.exhaustive import Exhaustive
from sartor.solvers.milp import Milp, _Model


def dense(make, seed, limits):
    """A random dense problem whose limits hold for about half of the space each, on very different scales."""
    rng = np.random.default_rng(seed)
    sizes = tuple(rng.integers(2, 5, 5))
    edges = make.edges("dense", 5, rng)
    bounds = []
    for n in range(limits):
        form = make.form(sizes, edges if n % 2 == 0 else (), rng) * (10.0 ** (3 * n))
        middle = float(np.median(form.batch(make.every(sizes))))
        bounds.append(Limit(f"limit{n}", form, high=middle) if n < 2 else Limit(f"limit{n}", form, low=middle))
    return Problem(make.form(sizes, edges, rng), tuple(bounds))


@pytest.mark.parametrize("limits", [0, 1, 2, 3])
def test_equals_exhaustive_on_dense_problems(make, limits):
    for seed in range(12):
        problem = dense(make, seed, limits)
        ours, theirs = Milp().solve(problem), Exhaustive().solve(problem)
        assert ours.score == pytest.approx(theirs.score, abs=1e-5)
        assert ours.bound >= theirs.score - 1e-9
        assert ours.proven
        assert problem.feasible(ours.arch)


def test_limits_of_millions_and_of_milliseconds_in_one_model(make):
    rng = np.random.default_rng(0)
    sizes = (6,) * 12
    params = Quadratic(sizes, 1e5, {i: np.sort(rng.integers(1000, 600_000, 6)).astype(float) for i in range(12)})
    latency = Quadratic(sizes, 1e-4, {i: rng.gamma(4, 1e-4, 6) for i in range(12)})
    score = make.form(sizes, [(i, i + 1) for i in range(11)], rng)
    problem = Problem(score, (Limit("params", params, 3e6), Limit("latency", latency, 5e-3)))
    found = Milp().solve(problem)
    assert found.proven
    assert params(found.arch) <= 3e6
    assert latency(found.arch) <= 5e-3 + 1e-9


def test_an_answer_beyond_a_limit_by_a_hair_is_repaired(make):
    """Option 1 scores more and breaks the limit by less than HiGHS's tolerance."""
    sizes = (2, 3, 3)
    cost = Quadratic(sizes, 0.0, {0: [0.0, 1e6 + 0.004], 1: [0.0, 2e6, 9e8], 2: [0.0, 1.0, 2.0]})
    score = Quadratic(sizes, 0.0, {0: [0.0, 1.0], 1: [0.0, 0.1, 0.2]})
    problem = Problem(score, (Limit("params", cost, 1e6),))
    raw = _Model(problem).run(10.0, 1e-6)
    assert raw is not None
    assert not problem.feasible(raw[0])  # or else the case proves nothing
    found = Milp().solve(problem)
    assert problem.feasible(found.arch)
    assert found.score == Exhaustive().solve(problem).score
    assert found.proven


def test_many_hairs_end_in_a_tightened_limit():
    """Forty options break the limit by a hair: cutting them one by one would take too long."""
    sizes = (41, 2)
    over = 1e6 + 0.004 + 1e-5 * np.arange(40)
    cost = Quadratic(sizes, 0.0, {0: np.concatenate([[1e6 - 50.0], over]), 1: [0.0, 9e8]})
    score = Quadratic(sizes, 0.0, {0: np.arange(41.0)})
    problem = Problem(score, (Limit("params", cost, 1e6),))
    found = Milp().solve(problem)
    assert found.arch.picks == (0, 0)
    assert found.bound >= found.score


def test_one_impossible_limit_is_named(make):
    problem = dense(make, 0, 2)
    form = problem.limits[1].form
    least = float(form.batch(make.every(form.sizes)).min())
    bad = Problem(problem.score, (problem.limits[0], Limit("params", form, least - 10)))
    with pytest.raises(Infeasible, match=r"params <= .* cannot be met: the least any network") as caught:
        Milp().solve(bad)
    assert caught.value.limit == "params"
    assert caught.value.least == pytest.approx(least)
    most = float(form.batch(make.every(form.sizes)).max())
    with pytest.raises(Infeasible, match=r"params >= .* cannot be met: the most any network"):
        Milp().solve(Problem(problem.score, (Limit("params", form, low=most + 1),)))


def test_limits_that_clash_say_what_can_be_had():
    sizes = (10,) * 8
    up = Quadratic(sizes, 0.0, {i: np.arange(10.0) for i in range(8)})
    down = Quadratic(sizes, 0.0, {i: np.arange(9.0, -1.0, -1.0) for i in range(8)})
    with pytest.raises(Infeasible) as caught:
        solve(Problem(Quadratic(sizes), (Limit("latency", up, 30), Limit("params", down, 40))))
    assert str(caught.value) == (
        "latency <= 30 and params <= 40 cannot be met together: while the others hold, "
        "latency is at least 32 and params is at least 42. Relax one of them or choose another space."
    )
    assert caught.value.limit is None


def test_out_of_time_returns_a_valid_bound(make):
    rng = np.random.default_rng(4)
    sizes = (6,) * 16
    score = make.form(sizes, make.edges("dense", 16, rng), rng)
    problem = Problem(score, (Limit("latency", make.form(sizes, (), rng), 0.0),))
    found = Milp(time_limit=2.0).solve(problem)
    assert found.seconds < 10
    assert found.bound > found.score
    assert not found.proven
    assert math.isfinite(found.gap)


@pytest.mark.parametrize("kind", ["forest", "dense"])
def test_cheapest_is_the_minimum(make, kind):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sizes = (3, 4, 3, 4)
        form = make.form(sizes, make.edges(kind, 4, rng), rng)
        limit = Limit("other", make.form(sizes, (), rng), 0.0)
        everything = make.every(sizes)
        values = form.batch(everything)
        assert cheapest(form).value == pytest.approx(values.min())
        assert cheapest(form, [limit]).value == pytest.approx(values[limit.form.batch(everything) <= 0].min())


def test_cheapest_falls_back_to_highs(make):
    rng = np.random.default_rng(0)
    sizes = (1, *(4,) * 12)  # 1.7e7 combinations in one cycle, which choice 0 does not open: too many to enumerate
    form = make.form(sizes, [(i + 1, j + 1) for i, j in make.edges("cycle", 12, rng)], rng)
    least = cheapest(form)
    assert least.value == pytest.approx(-Exhaustive().solve(Problem(form * -1.0)).score, abs=1e-6)
    assert least.bound <= least.value
    with pytest.raises(Infeasible, match="meets never"):
        cheapest(form, [Limit("never", form, -1e6)])


def test_bad_options_are_refused():
    with pytest.raises(BadInput, match="time_limit must be above 0"):
        Milp(time_limit=0.0)
    with pytest.raises(BadInput, match="no solver named 'cplex'"):
        solve(Problem(Quadratic((2,))), "cplex")
