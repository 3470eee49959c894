import numpy as np
import pytest

from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers.base import Problem
from sartor.solvers.best import Best
from sartor.solvers.evolution import Evolution, Settings, evolve
from sartor.solvers.exhaustive import Exhaustive
from sartor.solvers.frontier import frontier
from sartor.solvers.local import allowed, feasible_start, neighbours, polish, retreat, uniform
from sartor.solvers.milp import cheapest


def test_never_outside_the_limits(make):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        sizes = tuple(int(n) for n in rng.integers(2, 6, 6))
        edges = make.edges(str(rng.choice(["none", "forest", "dense"])), 6, rng)
        score, cost = make.form(sizes, edges, rng), make.form(sizes, edges, rng)
        budget = float(np.quantile(cost.batch(make.every(sizes)), rng.choice([0.0, 0.01, 0.3, 1.0])))
        limits = (Limit("latency", cost, budget), Limit("rule", make.form(sizes, [], rng), high=100.0, low=-100.0))
        seen = []

        def watch(picks, score=score, seen=seen):
            seen.append(picks)
            return score.batch(picks)

        found = evolve(watch, sizes, limits, rng, Settings(iterations=20))
        assert allowed(limits, np.concatenate(seen)).all()
        assert (np.diff(found.history) >= 0).all()
        assert found.score == score.batch(found.picks[None])[0] == found.history[-1]


def test_a_budget_that_one_network_meets_does_not_hang(make):
    score, cost = make.paper(0)
    least = cheapest(cost)
    found = Evolution(iterations=50).solve(Problem(score, (Limit("latency", cost, least.value),)))
    assert cost(found.arch) <= least.value + 1e-9
    with pytest.raises(Infeasible, match="cannot be met"):
        Evolution().solve(Problem(score, (Limit("latency", cost, least.value - 0.1),)))


def test_published_settings_come_close_to_the_optimum(make):
    gaps = []
    for seed in range(3):
        score, cost = make.paper(seed)
        front = frontier(score, cost)
        budget = float(np.mean(front.cost[[0, -1]]))
        found = Evolution(seed=seed).solve(Problem(score, (Limit("latency", cost, budget),)))
        gaps.append(front.score[front.best(budget)] - found.score)
    assert min(gaps) >= 0
    assert max(gaps) < 0.6  # percent of accuracy


def test_any_callable_score():
    target = np.array([2, 0, 3, 1])
    found = evolve(lambda p: -(p != target).sum(1).astype(float), (4,) * 4, (), np.random.default_rng(0))
    assert (found.picks == target).all()


def test_same_seed_same_answer(make):
    score, cost = make.paper(1)
    problem = Problem(score, (Limit("latency", cost, 24.0),))
    one, two, other = (Evolution(iterations=30, seed=s).solve(problem) for s in (5, 5, 6))
    assert one.arch == two.arch
    assert one.arch != other.arch


def test_settings_are_checked():
    for wrong in ({"population": 0}, {"parents": 0}, {"mutants": 0, "crossovers": 0}, {"mutation": 0.0}):
        with pytest.raises(BadInput):
            Evolution(**wrong)


def test_retreat_ends_inside_and_changes_nothing_that_is_inside(make):
    _, cost = make.paper(0)
    limits = (Limit("latency", cost, 15.0),)
    rng = np.random.default_rng(0)
    anchor = feasible_start(cost.sizes, limits)
    picks = uniform(cost.sizes, 200, rng)
    back = retreat(picks, anchor, limits, rng)
    good = allowed(limits, picks)
    assert not good.all()
    assert allowed(limits, back).all()
    assert (back[good] == picks[good]).all()
    assert ((back == picks) | (back == anchor)).all()


def test_polish_ends_at_a_local_optimum(make):
    score, cost = make.paper(0)
    limits = (Limit("latency", cost, 20.0),)
    picks = polish(score.batch, cost.sizes, limits, feasible_start(cost.sizes, limits))
    near = neighbours(picks, cost.sizes)
    assert len(near) == sum(cost.sizes) - len(cost.sizes)
    assert ((near != picks).sum(1) == 1).all()
    inside = near[allowed(limits, near)]
    assert score.batch(inside).max() <= score.batch(picks[None])[0]


def clashing(make):
    rng = np.random.default_rng(0)
    sizes = (5,) * 14
    dense = make.edges("dense", 14, rng)
    score, cost = make.form(sizes, dense, rng), make.form(sizes, [], rng)
    return Problem(score, (Limit("latency", cost, 0.0),))


def test_best_returns_the_best_of_them_with_a_true_bound(make):
    problem = clashing(make)
    found = Best(time_limit=1.0).solve(problem)
    assert problem.feasible(found.arch)
    assert found.score >= max(Evolution().solve(problem).score, -np.inf)
    assert found.bound >= found.score
    assert found.solver.startswith("best: ")
    small = Problem(Quadratic((2, 2), 0.0, {0: [0.0, 1.0]}))
    assert Best().solve(small).score == Exhaustive().solve(small).score
    assert Best().solve(small).proven
