"""Theorem 3.1's bound, on accuracies that meet its conditions exactly."""

import itertools

import numpy as np
import pytest
from binas_predictors import bound

from sartor.core.arch import Choice

CHOICES = tuple(Choice(name, ("p", "q", "r")) for name in "abcd")


def test_the_bound_holds_where_the_theorem_does_and_is_as_wide_as_the_sizes_not_the_sum():
    """Right or wrong, given which the decisions are independent: P(right | all) = P(right) prod (1 + e_i)."""
    rng, mean = np.random.default_rng(0), 60.0
    shares = rng.uniform(-0.03, 0.03, (4, 3))
    shares -= shares.mean(1, keepdims=True)  # uniform options: their mean is the mean
    shares[1] = shares[0]
    shares[3] = shares[2]
    conditional = (mean * (1 + shares)).reshape(-1)
    picks = np.array(list(itertools.product(range(3), repeat=4)))
    measured = mean * np.prod([1 + shares[i][picks[:, i]] for i in range(4)], 0)
    found = bound(CHOICES, mean, conditional, picks, measured)
    assert found["epsilon"] == pytest.approx(np.abs(shares).max())
    assert found["share_within"] == 1.0 and found["factor_for_all"] <= 1.0
    assert found["mean_departure"] < 0.1 < found["spread"]
    # contributions that cancel: the sum says nothing would depart, the sizes say how far it may
    cancel = CHOICES[:2], mean, mean * np.array([0.98, 1.0, 1.02] * 2), [[0, 2], [2, 0]]
    found = bound(*cancel, [mean * 0.98 * 1.02] * 2)
    assert found["share_within"] == 1.0 and 0 < found["factor_for_all"] < 1
