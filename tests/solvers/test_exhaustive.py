import numpy as np
import pytest

from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers import exhaustive
from sartor.solvers.base import Problem
from sartor.solvers.exhaustive import Exhaustive


def test_by_hand():
    score = Quadratic((2, 2), 0.0, {0: [0.0, 2.0], 1: [0.0, 1.0]}, {(0, 1): [[0.0, 0.0], [0.0, -3.0]]})
    assert Exhaustive().solve(Problem(score)).arch.picks == (1, 0)
    cost = Quadratic((2, 2), 0.0, {0: [0.0, 5.0]})
    assert Exhaustive().solve(Problem(score, (Limit("latency", cost, 4),))).arch.picks == (0, 1)


def test_ties_go_to_the_first_in_order():
    assert Exhaustive().solve(Problem(Quadratic((3, 4, 2)))).arch.picks == (0, 0, 0)


def test_chunks_change_nothing(make, monkeypatch):
    rng = np.random.default_rng(0)
    sizes = (3, 4, 2, 3)
    problem = Problem(make.form(sizes, make.edges("dense", 4, rng), rng))
    whole = Exhaustive().solve(problem)
    monkeypatch.setattr(exhaustive, "CHUNK", 7)
    assert Exhaustive().solve(problem).arch == whole.arch


def test_a_space_without_choices_has_one_network():
    assert Exhaustive().solve(Problem(Quadratic((), 3.0))).score == 3.0


def test_large_spaces_are_refused():
    with pytest.raises(BadInput, match=r"at most 2e\+07 architectures, but this space has 1e\+08"):
        Exhaustive().solve(Problem(Quadratic((10,) * 8)))


def test_infeasible_is_explained():
    form = Quadratic((3, 3), 0.0, {0: [1.0, 2.0, 3.0], 1: [1.0, 2.0, 3.0]})
    with pytest.raises(Infeasible, match="latency <= 1 cannot be met: the least any network of this space needs is 2"):
        Exhaustive().solve(Problem(form, (Limit("latency", form, 1),)))
    with pytest.raises(Infeasible, match="cannot be met together"):
        Exhaustive().solve(Problem(form, (Limit("latency", form, 3), Limit("size", form, low=4))))
