from dataclasses import replace

import numpy as np
import pytest

from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.core.registry import SPACES
from sartor.predictors.contributions import assemble
from sartor.predictors.shrinkage import contributions_of, likenesses, shrink_score, shrink_with_hint

CHOICES = SPACES["mobile"]().choices
SIZES = tuple(len(c.options) for c in CHOICES)


def measured(truth, error, rng, luck=None):
    noisy = truth + error * (rng.normal(size=255) if luck is None else luck)
    values, errors = assemble(CHOICES, SIZES, 70.0, noisy), assemble(CHOICES, SIZES, 0.1, np.full(255, error))
    return Quadratic(SIZES, 70.0, values.linear, values.pairs, errors)


def alike(rng):
    """Contributions with a factor's effect in common, and something of their own."""
    effect = np.zeros(255)
    for kernel in likenesses(CHOICES)[1:]:
        effect += np.linalg.cholesky(kernel + 1e-9 * np.eye(255)) @ rng.normal(0, 0.1, 255)
    return effect + rng.normal(0, 0.05, 255)


def test_reads_contributions_back():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=255)
    value, error = contributions_of(measured(truth, 1e-12, rng), CHOICES)
    np.testing.assert_allclose(value, truth, atol=1e-9)
    assert (error == 1e-12).all()


def test_closer_to_the_truth_where_contributions_are_alike():
    rng = np.random.default_rng(0)
    for _ in range(3):
        truth = alike(rng)
        score = measured(truth, 0.3, rng)
        before, after = (contributions_of(s, CHOICES)[0] for s in (score, shrink_score(score, CHOICES)))
        assert np.mean((after - truth) ** 2) < 0.5 * np.mean((before - truth) ** 2)


def test_no_worse_where_they_have_nothing_in_common():
    rng = np.random.default_rng(1)
    truth = rng.normal(0, 0.3, 255)
    score = measured(truth, 0.3, rng)
    before, after = (contributions_of(s, CHOICES)[0] for s in (score, shrink_score(score, CHOICES)))
    assert np.mean((after - truth) ** 2) < 0.75 * np.mean((before - truth) ** 2)  # one half is what is possible


def test_precise_measurements_stay_what_they_are():
    rng = np.random.default_rng(2)
    truth = rng.normal(size=255)
    after, error = contributions_of(shrink_score(measured(truth, 1e-3, rng), CHOICES), CHOICES)
    np.testing.assert_allclose(after, truth, atol=0.01)
    np.testing.assert_allclose(error, 1e-3, rtol=0.05)


def test_posterior_intervals_cover():
    rng = np.random.default_rng(3)
    hits = []
    for _ in range(4):
        truth = alike(rng)
        after, error = contributions_of(shrink_score(measured(truth, 0.3, rng), CHOICES), CHOICES)
        hits.append(np.abs(after - truth) < 1.96 * error)
    assert 0.9 < np.mean(hits) < 0.99


def distance(score, truth):
    return np.mean((contributions_of(score, CHOICES)[0] - truth) ** 2)


def test_a_precise_hint_helps_where_it_is_right_about_most():
    """Closer than either alone, although the hint has another unit and is wrong about a part of it."""
    for seed in (4, 5):
        rng = np.random.default_rng(seed)
        hint = alike(rng)
        truth = 0.3 * hint + rng.normal(0, 0.03, 255)
        score, precise = measured(truth, 0.1, rng), measured(hint, 0.02, rng)
        found = shrink_with_hint(score, precise, 0.0, CHOICES)
        assert distance(found, truth) < 0.6 * distance(shrink_score(score, CHOICES), truth)
        slope = np.dot(hint, truth) / np.dot(hint, hint)  # which nobody knows
        assert distance(found, truth) < 1.2 * np.mean((slope * contributions_of(precise, CHOICES)[0] - truth) ** 2)
        assert found.constant == score.constant


def test_a_hint_about_something_else_does_no_harm():
    rng = np.random.default_rng(5)
    truth, other = alike(rng), rng.normal(size=255)
    score = measured(truth, 0.3, rng)
    alone, found = shrink_score(score, CHOICES), shrink_with_hint(score, measured(other, 0.01, rng), 0.0, CHOICES)
    assert distance(found, truth) < 1.1 * distance(alone, truth)


def test_many_measurements_make_up_their_own_mind():
    rng = np.random.default_rng(6)
    hint = alike(rng)
    truth = hint + rng.normal(0, 0.2, 255)
    after, error = contributions_of(
        shrink_with_hint(measured(truth, 1e-3, rng), measured(hint, 1e-3, rng), 0.0, CHOICES), CHOICES
    )
    np.testing.assert_allclose(after, truth, atol=0.01)
    np.testing.assert_allclose(error, 1e-3, rtol=0.05)


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_intervals_cover_whatever_the_errors_share(correlation):
    rng = np.random.default_rng(7)
    hits = []
    for _ in range(3):
        hint = alike(rng)
        truth = 0.5 * hint + rng.normal(0, 0.05, 255)
        luck = rng.normal(size=(2, 255))
        luck[1] = correlation * luck[0] + np.sqrt(1 - correlation**2) * luck[1]
        score, second = measured(truth, 0.2, rng, luck[0]), measured(hint, 0.1, rng, luck[1])
        after, error = contributions_of(shrink_with_hint(score, second, correlation, CHOICES), CHOICES)
        hits.append(np.abs(after - truth) < 1.96 * error)
    assert 0.9 < np.mean(hits) < 0.99


def test_needs_contributions_with_errors():
    rng = np.random.default_rng(0)
    score = measured(rng.normal(size=255), 0.1, rng)
    with pytest.raises(BadInput, match="standard errors"):
        shrink_score(Quadratic(SIZES, 0.0, score.linear, score.pairs), CHOICES)
    extra = {**score.pairs, (0, 5): rng.normal(size=(3, 3))}
    with pytest.raises(BadInput, match="a score of contributions"):
        shrink_score(Quadratic(SIZES, 0.0, score.linear, extra, score.errors), CHOICES)
    with pytest.raises(BadInput, match="a score of contributions"):
        shrink_score(replace(score, cases=(Quadratic(SIZES),) * SIZES[0]), CHOICES)
    linear = {i: v for i, v in score.linear.items() if i != 1}
    with pytest.raises(BadInput, match=r"every option of stage1\.block1"):
        shrink_score(Quadratic(SIZES, 0.0, linear, score.pairs, score.errors), CHOICES)
