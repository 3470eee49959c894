import pickle

import numpy as np
import pytest

from sartor.core.arch import Arch
from sartor.core.errors import BadInput, Infeasible, SolverError
from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers.base import Problem, certify, within


def test_certified_rejects_lies():
    score = Quadratic((2,), 0.0, {0: [0.0, 1.0]})
    problem = Problem(score, (Limit("latency", Quadratic((2,), 0.0, {0: [0.0, 9.0]}), 5.0),))
    with pytest.raises(SolverError, match="violates latency"):
        certify(problem, Arch((1,)), 1.0, "liar", 0.0)
    with pytest.raises(SolverError, match="nothing beats -1"):
        certify(problem, Arch((0,)), -1.0, "liar", 0.0)
    assert certify(problem, Arch((0,)), 0.0, "honest", 0.0).gap == 0


def test_within_is_holds_for_many():
    form = Quadratic((5,), 0.0, {0: [-1.0, 1.0 - 1e-10, 1.0, 2.0 + 1e-10, 2.1]})
    limit = Limit("rule", form, high=2.0, low=1.0)
    expected = [limit.holds(Arch((n,))) for n in range(5)]
    assert within(limit, form.batch(np.arange(5)[:, None])).tolist() == expected == [False, True, True, True, False]


def test_limits_must_be_over_the_choices_of_the_score():
    with pytest.raises(BadInput, match=r"limit latency must be over the score's choices \(2, 3\)"):
        Problem(Quadratic((2, 3)), (Limit("latency", Quadratic((2,)), 1.0),))


@pytest.mark.parametrize(
    "terms", [{"linear": {7: [0.0, 1.0]}}, {"pairs": {(0, 7): [[0.0]]}}, {"pairs": {(-1, 0): [[0.0]]}}]
)
def test_terms_of_choices_that_do_not_exist_are_refused(terms):
    with pytest.raises(BadInput, match="does not fit sizes"):
        Quadratic((2, 2), 0.0, **terms)


def test_infeasible_survives_another_process():
    error = pickle.loads(pickle.dumps(Infeasible("no", limit="latency", asked=1.0, least=2.0)))
    assert (str(error), error.limit, error.asked, error.least) == ("no", "latency", 1.0, 2.0)
