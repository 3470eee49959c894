"""What the stages decide beyond the solvers."""

from types import SimpleNamespace

import numpy as np
import pytest

from sartor.core.arch import Arch
from sartor.core.quadratic import Limit, Quadratic
from sartor.pipeline import stages
from sartor.solvers.base import Solution


@pytest.mark.parametrize("seed", range(5))
def test_of_equal_scores_under_several_budgets_the_cheapest_is_taken(seed):
    rng, sizes = np.random.default_rng(seed), (3, 4, 4)
    goal = Quadratic(sizes, 0.0, {0: np.array([1.0, 1.0, 0.0])})
    latency, params = (Quadratic(sizes, 0.0, {i: rng.uniform(1, 2, n) for i, n in enumerate(sizes)}) for _ in range(2))
    limits = (Limit("latency", latency, 5.0), Limit("params", params, 4.9))
    cut = SimpleNamespace(budgets={"latency": 5.0, "params": 4.9}, axis="latency", limits=lambda tables: limits)
    every = [Arch((a, b, c)) for a in range(3) for b in range(4) for c in range(4)]
    best = [a for a in every if goal(a) == 1.0 and all(limit.holds(a) for limit in limits)]
    dearest = max(best, key=latency)
    tables = {"latency": SimpleNamespace(form=latency), "params": SimpleNamespace(form=params)}
    found = stages._thrifty(cut, goal, tables, Solution(dearest, 1.0, 1.0, "milp"))
    assert found.score == 1.0
    assert latency(found.arch) == pytest.approx(min(map(latency, best)))
