import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers import pareto as _pareto
from sartor.solvers import solve
from sartor.solvers.base import Frontier, NotSeparable, Problem
from sartor.solvers.exhaustive import Exhaustive
from sartor.solvers.frontier import ExactFrontier, frontier
from sartor.solvers.milp import Milp
from sartor.solvers.pareto import pareto


def check(front: Frontier, score: Quadratic, cost: Quadratic, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.stack([front.cost, front.score], 1), expected, rtol=0, atol=1e-12)
    assert (np.diff(front.cost) > 0).all()
    assert (np.diff(front.score) > 0).all()
    assert np.array_equal(front.cost, cost.batch(front.picks))
    assert np.array_equal(front.score, score.batch(front.picks))


@pytest.mark.parametrize("values", ["real", "tied"])
@pytest.mark.parametrize("kind", ["none", "forest", "cycle", "dense"])
def test_equals_trying_everything(make, kind, values):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        sizes = tuple(rng.integers(1, 5, rng.integers(3, 7)))
        score = make.form(sizes, make.edges(kind, len(sizes), rng), rng, values)
        cost = make.form(sizes, score.pairs if kind == "forest" else (), rng, values)
        check(frontier(score, cost), score, cost, make.reference(score, cost))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_equals_trying_everything_under_rules(make, count):
    empty = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sizes = tuple(rng.integers(1, 4, 6))
        edges = make.edges("forest", 6, rng)
        score, cost = make.form(sizes, edges, rng), make.form(sizes, edges, rng)
        rules = [make.rule(sizes, rng, count) for _ in range(2)]
        expected = make.reference(score, cost, rules)
        empty += not len(expected)
        check(frontier(score, cost, rules), score, cost, expected)
    assert empty < 40


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), max_size=40), st.integers(1, 8))
def test_the_sieve_loses_nothing(points, bins):
    cost, score = np.array([p[0] for p in points], float), np.array([p[1] for p in points], float)
    expected = [
        n
        for n, (c, s) in enumerate(points)
        if not any(
            (d <= c and t >= s and (d, t) != (c, s)) or ((d, t) == (c, s) and m < n) for m, (d, t) in enumerate(points)
        )
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pareto, "FEW", -1 if points else 0)
        patch.setattr(_pareto, "BINS", bins + 1)
        assert sorted(pareto(cost, score).tolist()) == expected


def test_sums_in_blocks_equal_sums_at_once(make, monkeypatch):
    score, cost = make.paper(5)
    whole = frontier(score, cost)
    monkeypatch.setattr(_pareto, "BLOCK", 1000)
    blocks = frontier(score, cost)
    assert np.array_equal(whole.picks, blocks.picks)


def test_zero_cost_leaves_the_optimum_alone(make):
    rng = np.random.default_rng(1)
    sizes = (3, 2, 4, 3)
    score = make.form(sizes, make.edges("cycle", 4, rng), rng)
    front = frontier(score, Quadratic(sizes))
    assert len(front) == 1
    assert front.score[0] == score.batch(make.every(sizes)).max()


def test_what_makes_no_difference_is_at_its_first_option(make):
    score, cost = make.paper(0)
    picks = frontier(score, cost).picks.reshape(-1, 5, 5)
    assert (picks[..., 3][picks[..., 0] < 1] == 0).all()
    assert (picks[..., 4][picks[..., 0] < 2] == 0).all()
    assert (picks[..., 3] > 0).any()


def test_a_long_chain_and_a_transposed_pair(make):
    rng = np.random.default_rng(2)
    sizes = (2,) * 12
    edges = [(n + 1, n) for n in range(11)]  # given the wrong way round
    score, cost = make.form(sizes, edges, rng), make.form(sizes, edges, rng)
    check(frontier(score, cost), score, cost, make.reference(score, cost))


def test_large_cycles_and_rules_are_refused():
    sizes = (10,) * 9
    ring = {(n + 1, (n + 1) % 8 + 1): np.ones((10, 10)) for n in range(8)}  # past choice 0, which would open it
    with pytest.raises(NotSeparable, match=r"1e\+08 combinations that interact in a cycle.*milp"):
        frontier(Quadratic(sizes, 0.0, {}, ring), Quadratic(sizes))
    params = Limit("params", Quadratic(sizes, 0.0, {i: np.arange(10.0) for i in range(8)}), 20)
    latency = Limit("latency", Quadratic(sizes, 0.0, {i: np.arange(10.0) for i in range(8)}), 30)
    with pytest.raises(BadInput, match=r"joined by latency.*milp"):
        ExactFrontier().solve(Problem(Quadratic(sizes), (params, latency)))


def test_too_many_points_are_refused(make, monkeypatch):
    monkeypatch.setattr(_pareto, "MOST", 1000)
    with pytest.raises(NotSeparable, match="too large"):
        frontier(*make.paper(0))


def test_forms_over_other_choices_are_refused():
    with pytest.raises(BadInput, match="must be over the score's choices"):
        frontier(Quadratic((2, 2)), Quadratic((2, 3)))


def test_solver_equals_exhaustive_at_every_budget(make):
    rng = np.random.default_rng(3)
    sizes = (3, 4, 3, 4, 3)
    edges = make.edges("forest", 5, rng)
    score, cost = make.form(sizes, edges, rng), make.form(sizes, edges, rng)
    rules = (make.rule(sizes, rng, 3),)
    front = frontier(score, cost, rules)
    for budget in [*front.cost, *(front.cost[:-1] + front.cost[1:]) / 2, front.cost[-1] + 1, math.inf]:
        problem = Problem(score, (Limit("latency", cost, float(budget)), *rules))
        ours, theirs = ExactFrontier().solve(problem), Exhaustive().solve(problem)
        assert ours.score == pytest.approx(theirs.score, abs=1e-12)
        assert ours.proven
        assert problem.feasible(ours.arch)


def test_infeasible_names_the_limit_and_the_least(make):
    score, cost = make.paper(0)
    least = float(frontier(score, cost).cost[0])
    with pytest.raises(Infeasible) as caught:
        solve(Problem(score, (Limit("latency", cost, 0.5),)))
    assert str(caught.value) == (
        f"latency <= 0.5 cannot be met: the least any network of this space needs is {least:.6g}. "
        "Raise the budget or choose another space."
    )
    assert (caught.value.limit, caught.value.asked, caught.value.least) == ("latency", 0.5, least)


def test_infeasible_by_a_hair_shows_enough_digits(make):
    score, cost = make.paper(0)
    least = float(frontier(score, cost).cost[0])
    with pytest.raises(Infeasible, match=r"latency <= \d+\.\d{6,}"):
        solve(Problem(score, (Limit("latency", cost, least * (1 - 1e-8)),)))


def test_contradictory_rules_are_named():
    sizes = (2, 2)
    form = Quadratic(sizes, 0.0, {0: np.array([0.0, 1.0]), 1: np.array([0.0, 1.0])})
    with pytest.raises(Infeasible, match="skips >= 3 cannot be met: the most any network of this space reaches is 2"):
        ExactFrontier().solve(Problem(Quadratic(sizes), (Limit("skips", form, low=3),)))
    with pytest.raises(Infeasible, match="0 <= skips <= 1 and convs >= 2 cannot be met together: while"):
        ExactFrontier().solve(Problem(Quadratic(sizes), (Limit("skips", form, 1, 0), Limit("convs", form, low=2))))
    never = Limit("never", Quadratic(sizes, 1.0), high=0, low=-1)
    with pytest.raises(Infeasible, match="never <= 0 cannot be met"):
        ExactFrontier().solve(Problem(Quadratic(sizes), (never,)))


def test_negative_budgets_include_their_own_point():
    sizes = (3,)
    front = frontier(Quadratic(sizes, 0, {0: [0.0, 1.0, 2.0]}), Quadratic(sizes, 0, {0: [-5.0, -3.0, -1.0]}))
    assert [front.best(b) for b in (-6.0, -5.0, -4.0, -3.0, -1.0, 9.0)] == [None, 0, 0, 1, 2, 2]
    again = Frontier.from_json(front.to_json())
    assert np.array_equal(again.picks, front.picks)


def test_paper_space_equals_highs_at_20_budgets(make):
    score, cost = make.paper(0)
    front = frontier(score, cost)
    for budget in np.linspace(front.cost[0], front.cost[-1], 20):
        best = front.best(budget)
        found = Milp().solve(Problem(score, (Limit("latency", cost, float(budget)),)))
        assert found.score == pytest.approx(front.score[best], abs=1e-5)
        assert found.bound >= front.score[best] - 1e-9


def test_paper_space_is_fast_and_deterministic(make):
    score, cost = make.paper(1)
    first = frontier(score, cost)
    start = time.perf_counter()
    second = frontier(score, cost)
    assert time.perf_counter() - start < 0.5  # 5 ms when nothing else runs; a loose guard against a lost order
    assert np.array_equal(first.picks, second.picks)
    assert len(first) > 500
