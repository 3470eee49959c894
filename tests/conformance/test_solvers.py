"""The law of every solver: on small problems inside its scope it agrees with trying everything.

A heuristic (`exact` is false) may find less, but never more, never outside the limits, and its bound is true.
"""

import math

import numpy as np
import pytest

from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.registry import SOLVERS
from sartor.solvers import solve
from sartor.solvers.base import Problem, Solver

SIZES = (3, 4, 2, 3)
EVERY = np.stack(np.unravel_index(np.arange(math.prod(SIZES)), SIZES), 1)


def form(rng, edges):
    linear = {i: rng.normal(size=n) for i, n in enumerate(SIZES)}
    return Quadratic(SIZES, rng.normal(), linear, {(i, j): rng.normal(size=(SIZES[i], SIZES[j])) for i, j in edges})


def problems():
    """Without limits, with one, with several; a star, a cycle and a dense graph; from generous to impossible."""
    for seed, edges in enumerate(
        [[(0, 1), (0, 3)], [(0, 1), (1, 2), (2, 3), (0, 3)], [(0, 2), (1, 3), (0, 1), (2, 3)]]
    ):
        rng = np.random.default_rng(seed)
        score, cost, other = form(rng, edges), form(rng, edges), form(rng, [])
        yield Problem(score)
        for share in (-0.1, 0.0, 0.2, 0.6, 1.0):
            values = cost.batch(EVERY)
            budget = Limit("latency", cost, float(values.min() + share * np.ptp(values)))
            yield Problem(score, (budget,))
            yield Problem(score, (budget, Limit("rule", other, high=1.0, low=-1.0)))


@pytest.mark.parametrize("solver", ["auto", *SOLVERS.names()])
def test_agrees_with_trying_everything(solver):
    solved, exact = 0, solver == "auto" or SOLVERS[solver].exact
    for problem in problems():
        allowed = [a for a in EVERY if all(x.low <= x.form.batch(a[None])[0] <= x.high + 1e-9 for x in problem.limits)]
        try:
            found = solve(problem, solver)
        except Infeasible:
            assert not allowed
            continue
        except BadInput:
            continue  # outside the solver's scope, and said so
        best = problem.score.batch(np.array(allowed)).max()
        assert problem.feasible(found.arch)
        assert found.score == problem.score(found.arch)
        assert found.score <= best + 1e-9
        assert found.bound >= best - 1e-6
        if found.proven or exact:
            assert found.score == pytest.approx(best, abs=1e-5)
        else:
            assert found.score >= best - 0.5 * np.ptp(problem.score.batch(EVERY))
        solved += 1
    assert solved >= 5


@pytest.mark.parametrize("solver", SOLVERS.names())
def test_is_a_documented_solver(solver):
    assert issubclass(SOLVERS[solver], Solver)
    assert SOLVERS.summary(solver)


@pytest.mark.parametrize("solver", SOLVERS.names())
def test_same_problem_same_answer(solver):
    problem = next(problems())
    assert solve(problem, solver).arch == solve(problem, solver).arch
