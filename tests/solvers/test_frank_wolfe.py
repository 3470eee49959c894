import math

import numpy as np
import pytest
from scipy.optimize import linprog

from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers.base import Problem
from sartor.solvers.exhaustive import Exhaustive
from sartor.solvers.frank_wolfe import FrankWolfe, frank_wolfe, search
from sartor.solvers.frontier import frontier
from sartor.solvers.knapsack import greedy, simplex
from sartor.solvers.local import feasible_start
from sartor.solvers.relaxed import Groups, Relaxed, colours


def knapsack(rng):
    sizes = rng.integers(1, 7, rng.integers(1, 7))
    draw = (lambda n: rng.integers(-3, 4, n).astype(float)) if rng.random() < 0.5 else (lambda n: rng.normal(size=n))
    gains, prices = [draw(n) for n in sizes], [draw(n) for n in sizes]
    low, high = sum(t.min() for t in prices), sum(t.max() for t in prices)
    return gains, prices, float(low + rng.choice([0.0, rng.random(), 1.0]) * (high - low))


def value(gains, answer):
    return sum(float(p @ u) for p, u in zip(gains, answer, strict=True))


def reference(gains, prices, room):
    """The linear program by another method, which knows nothing of groups and hulls."""
    sizes = [len(p) for p in gains]
    groups = np.repeat(np.eye(len(sizes)), sizes, axis=1)
    result = linprog(-np.concatenate(gains), np.concatenate(prices)[None], [room], groups, np.ones(len(sizes)))
    return -result.fun


def test_greedy_is_the_linear_program_at_a_vertex():
    for seed in range(200):
        gains, prices, room = knapsack(np.random.default_rng(seed))
        answer = greedy(gains, prices, room)
        assert all(u.sum() == pytest.approx(1) and (u >= 0).all() for u in answer)
        assert value(prices, answer) <= room + 1e-9
        assert value(gains, answer) == pytest.approx(reference(gains, prices, room), abs=1e-7)
        mixed = [u for u in answer if (u > 0).sum() > 1]
        assert len(mixed) <= 1  # lemma G.1
        assert all((u > 0).sum() == 2 for u in mixed)  # lemma G.2


def test_simplex_agrees_with_greedy_and_stays_at_a_vertex():
    for seed in range(40):
        rng = np.random.default_rng(seed)
        gains, prices, room = knapsack(rng)
        answer = simplex(gains, [prices], [-math.inf], [room])
        assert value(gains, answer) == pytest.approx(value(gains, greedy(gains, prices, room)), abs=1e-6)
        others = [rng.normal(size=len(p)) for p in gains]
        middle = value(others, answer)
        both = simplex(gains, [prices, others], [-math.inf, middle - 0.1], [room, middle + 0.1])
        assert sum((u > 0).sum() > 1 for u in both) <= 2


def test_nothing_fits():
    assert greedy([np.array([1.0, 2.0])], [np.array([3.0, 4.0])], 2.5) is None
    assert simplex([np.array([1.0, 2.0])], [[np.array([3.0, 4.0])]], [-math.inf], [2.5]) is None


def test_relaxed_equals_the_quadratic_at_vertices_and_its_gradient_is_right(make):
    rng = np.random.default_rng(0)
    sizes = (3, 2, 4)
    form = make.form(sizes, make.edges("dense", 3, rng), rng)
    groups = Groups(sizes)
    relaxed = Relaxed(form, groups)
    for picks in make.every(sizes):
        assert relaxed(groups.one_hot(picks))[0] == pytest.approx(form.batch(picks[None])[0])
    zeta, step = rng.random(9), 1e-6
    slope = [(relaxed(zeta + step * e)[0] - relaxed(zeta - step * e)[0]) / (2 * step) for e in np.eye(9)]
    np.testing.assert_allclose(relaxed(zeta)[1], slope, rtol=1e-6, atol=1e-8)


def test_blocks_are_the_papers(make):
    score, cost = make.paper(0)
    alpha, beta = colours(25, [score, cost])
    assert beta == [0, 5, 10, 15, 20]
    assert sorted(alpha + beta) == list(range(25))
    rng = np.random.default_rng(0)
    dense = make.form((2,) * 5, make.edges("dense", 5, rng), rng)
    assert colours(5, [dense]) == [[0], [1], [2], [3], [4]]
    assert colours(3, []) == [[0, 1, 2]]


def bipartite(make, seed):
    """A random bilinear score and budget: stars, chains or any bipartite graph, from tight to generous."""
    rng = np.random.default_rng(seed)
    sizes = tuple(int(n) for n in rng.integers(2, 6, rng.integers(3, 9)))
    side = rng.random(len(sizes)) < 0.4
    edges = [(i, j) for i in np.flatnonzero(side) for j in np.flatnonzero(~side) if rng.random() < 0.6]
    score, cost = (make.form(sizes, edges, rng, str(rng.choice(["real", "tied"]))) for _ in range(2))
    values = cost.batch(np.stack([rng.integers(n, size=500) for n in sizes], 1))
    return Problem(score, (Limit("latency", cost, float(np.quantile(values, rng.choice([0.05, 0.3, 0.7, 1.0])))),))


def test_sparse_monotone_and_inside_on_200_random_problems(make):
    """Theorem 3.3 and ascent, at every iterate of every walk; also on problems of the paper's size."""
    moves = 0
    for seed in range(200):
        problem = bipartite(make, seed)
        if seed % 40 == 0:
            score, cost = make.paper(seed)
            problem = Problem(score, (Limit("latency", cost, 10.0 + seed / 8),))
        groups = Groups(problem.sizes)
        cost, limit = Relaxed(problem.limits[0].form, groups), problem.limits[0].high
        _, walks = FrankWolfe(starts=3, climb=False, seed=seed).search(problem)
        for walk in walks:
            assert (np.diff(walk.values) > 0).all()
            moves += len(walk.points) - 1
            for zeta in walk.points:
                support = [len(s) for s in groups.support(zeta)]
                for block in walk.blocks:
                    assert sum(support[i] > 1 for i in block) <= 1
                assert max(support) <= 2
                assert cost(zeta)[0] <= limit + 1e-7
                assert all(zeta[groups.of(i)].sum() == pytest.approx(1) for i in range(len(support)))
    assert moves > 400


def test_stops_where_no_block_gains(make):
    problem = bipartite(make, 3)
    start = feasible_start(problem.sizes, problem.limits)
    blocks = colours(len(problem.sizes), [problem.score, problem.limits[0].form])
    relaxed, calls = Relaxed(problem.score, Groups(problem.sizes)), []

    def objective(zeta):
        calls.append(zeta)
        return relaxed(zeta)

    how = {"blocks": blocks, "multilinear": True, "iterations": 10**9}
    walk = frank_wolfe(objective, problem.sizes, problem.limits, start, np.random.default_rng(1), **how)
    assert 1 < len(walk.points) <= len(calls) < 50


def test_close_to_the_proven_optimum_in_the_papers_space(make):
    gaps, single = [], []
    for seed in range(4):
        score, cost = make.paper(seed)
        front = frontier(score, cost)
        for budget in np.linspace(front.cost[0], front.cost[-1], 5)[1:-1]:
            problem = Problem(score, (Limit("latency", cost, float(budget)),))
            best = front.score[front.best(float(budget))]
            found = FrankWolfe().solve(problem)
            assert cost(found.arch) <= budget + 1e-9
            assert found.score <= best + 1e-9
            gaps.append(best - found.score)
            single.append(best - FrankWolfe(starts=1, climb=False).solve(problem).score)
    assert np.mean(gaps) < 0.05  # percent of accuracy
    assert np.mean(gaps) < 0.2 * np.mean(single)  # what many starts are for


def test_several_limits_and_dense_scores(make):
    exact = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        sizes = (3, 4, 2, 3, 3)
        edges = make.edges("dense", 5, rng)
        limits = []
        for n in range(2):
            form = make.form(sizes, edges[:n], rng) * 10.0 ** (4 * n)
            limits.append(Limit(f"limit{n}", form, high=float(np.median(form.batch(make.every(sizes))))))
        problem = Problem(make.form(sizes, edges, rng), tuple(limits))
        found, best = FrankWolfe(starts=16).solve(problem), Exhaustive().solve(problem)
        assert problem.feasible(found.arch)
        assert found.score <= best.score + 1e-9 <= found.bound + 1e-9
        exact += found.score == pytest.approx(best.score)
    assert exact >= 9


def test_bound_is_proven_where_nothing_interacts(make):
    rng = np.random.default_rng(0)
    sizes = (4,) * 6
    score, cost = make.form(sizes, [], rng), make.form(sizes, [], rng)
    problem = Problem(score, (Limit("latency", cost, float(np.median(cost.batch(make.every(sizes))))),))
    found, best = FrankWolfe().solve(problem), Exhaustive().solve(problem)
    assert best.score <= found.bound + 1e-9 < math.inf
    score, cost = make.paper(0)
    assert FrankWolfe().solve(Problem(score, (Limit("latency", cost, 20.0),))).bound == math.inf


def test_any_differentiable_score():
    """The exponential of a quadratic has the same best network; its gradient is not constant in a block."""
    rng = np.random.default_rng(0)
    sizes = (4,) * 5
    inner = Quadratic(sizes, 0.0, {i: rng.normal(size=4) for i in range(5)}, {(0, 1): rng.normal(size=(4, 4))})
    cost = Quadratic(sizes, 0.0, {i: np.arange(4.0) for i in range(5)})
    limits = (Limit("latency", cost, 7.0),)
    relaxed = Relaxed(inner, Groups(sizes))

    def objective(zeta):
        value, gradient = relaxed(zeta)
        return math.exp(value), math.exp(value) * gradient

    picks, walks = search(objective, lambda p: np.exp(inner.batch(p)), sizes, limits, rng, starts=8)
    assert cost.batch(picks[None])[0] <= 7
    assert all((np.diff(w.values) > 0).all() for w in walks)
    assert inner.batch(picks[None])[0] >= Exhaustive().solve(Problem(inner, limits)).score - 0.1


def test_impossible_budget_and_bad_options(make):
    score, cost = make.paper(0)
    with pytest.raises(Infeasible, match="latency <= 1 cannot be met"):
        FrankWolfe().solve(Problem(score, (Limit("latency", cost, 1.0),)))
    with pytest.raises(BadInput, match="starts"):
        FrankWolfe(starts=0)
    with pytest.raises(BadInput, match="probability"):
        FrankWolfe(probability=1.0)


def test_same_seed_same_answer(make):
    score, cost = make.paper(1)
    problem = Problem(score, (Limit("latency", cost, 24.0),))
    assert FrankWolfe(seed=3).solve(problem).arch == FrankWolfe(seed=3).solve(problem).arch
