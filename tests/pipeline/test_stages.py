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


def test_photos_that_are_made_smaller_are_said_to_be():
    from types import SimpleNamespace as Stub

    from sartor.pipeline.order import _summary

    def said(native):
        images = Stub(name="photos", native=native, shrunk=native > 32, skipped=())
        splits = Stub(train=range(6), val=range(2), test=range(2))
        return _summary(Stub(images=images, task=Stub(classes=3, image=32, channels=3), splits=splits))

    assert "made smaller: most have 224 pixels; --image 224 keeps them" in said(224)
    assert "smaller" not in said(32)
