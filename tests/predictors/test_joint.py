import numpy as np
import pytest

from sartor.core.arch import Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.predictors.joint import Paths, correlation, estimate_jointly, rescale_to, without_difficulty

CHOICES = (
    Choice("stage1.depth", ("1", "2")),
    Choice("stage1.block1", ("a", "b", "c")),
    Choice("stage1.block2", ("a", "b", "c"), ((0, (1,)),)),
    Choice("stage2.block1", ("a", "b")),
)
# What each decision adds to the chance of being right; sums of zero over the options of a choice.
DEPTH, BLOCK1, BLOCK2, BLOCK3 = [-0.06, 0.06], [-0.05, 0.0, 0.05], [0.04, -0.06, 0.02], [0.03, -0.03]


def simulate(rng, images, paths, binary=True):
    ids = np.repeat(np.arange(images), paths)
    picks = np.stack([rng.integers(len(c.options), size=len(ids)) for c in CHOICES], 1)
    difficulty = rng.uniform(-0.3, 0.3, images)[ids]
    chance = 0.5 + difficulty + np.take(DEPTH, picks[:, 0]) + np.take(BLOCK1, picks[:, 1])
    chance += (picks[:, 0] == 1) * np.take(BLOCK2, picks[:, 2]) + np.take(BLOCK3, picks[:, 3])
    outcome = (rng.random(len(ids)) < chance).astype(float) if binary else chance
    return picks, ids, outcome


def entries_of(score):
    return np.concatenate([score.linear[0], score.linear[1], score.pairs[0, 2][1], score.linear[3]])


TRUTH = np.array([*DEPTH, *BLOCK1, *BLOCK2, *BLOCK3])


def test_means_and_least_squares_agree_in_the_limit():
    picks, ids, outcome = simulate(np.random.default_rng(0), 4000, 50, binary=False)
    squares = estimate_jointly(CHOICES, picks, ids, outcome)
    means = estimate_jointly(CHOICES, picks, ids, outcome, how="means")
    np.testing.assert_allclose(entries_of(squares), TRUTH, atol=0.002)
    np.testing.assert_allclose(entries_of(means), TRUTH, atol=0.002)
    assert squares.constant == pytest.approx(0.5, abs=0.02)
    assert not squares.pairs[0, 2][0].any()  # an inactive block adds nothing


def test_equation_3_as_printed_counts_the_depth_in_its_blocks_too():
    picks, ids, outcome = simulate(np.random.default_rng(0), 2000, 50, binary=False)
    printed = estimate_jointly(CHOICES, picks, ids, outcome, how="means", against="everything")
    np.testing.assert_allclose(printed.pairs[0, 2][1], np.array(BLOCK2) + DEPTH[1], atol=0.003)


@pytest.mark.parametrize("how", ["least squares", "means"])
def test_intervals_cover_at_their_nominal_rate(how):
    """0/1 outcomes, strongly correlated inside an image: over 1,000 intervals, 95 % hold the truth."""
    hits = []
    for seed in range(110):
        score = estimate_jointly(CHOICES, *simulate(np.random.default_rng(seed), 250, 8), how=how)
        hits.append(np.abs(entries_of(score) - TRUTH) < 1.96 * entries_of(score.errors))
    assert 0.92 < np.mean(hits) < 0.98
    assert np.min(np.mean(hits, 0)) > 0.88  # every single entry too


def test_errors_are_the_spread_over_repetitions():
    scores = [estimate_jointly(CHOICES, *simulate(np.random.default_rng(s), 250, 8)) for s in range(120)]
    spread = np.std([entries_of(s) for s in scores], 0)
    claimed = np.mean([entries_of(s.errors) for s in scores], 0)
    np.testing.assert_allclose(claimed, spread, rtol=0.2)
    level = np.std([s.constant for s in scores])
    assert np.mean([s.errors.constant for s in scores]) == pytest.approx(level, rel=0.2)


def test_difficulty_as_control_variate_shrinks_the_errors_without_bias():
    def run(control):
        rng = np.random.default_rng
        return [
            entries_of(estimate_jointly(CHOICES, *simulate(rng(s), 200, 10, binary=False), control=control))
            for s in range(60)
        ]

    plain, controlled = np.array(run(False)), np.array(run(True))
    assert (controlled.std(0) < 0.7 * plain.std(0)).all()
    np.testing.assert_allclose(controlled.mean(0), TRUTH, atol=4 * controlled.std(0).max() / np.sqrt(60))


def test_control_keeps_the_mean_and_survives_single_paths():
    rng = np.random.default_rng(0)
    y = rng.random(100)
    np.testing.assert_allclose(without_difficulty(y, np.arange(100)), y)
    some = np.concatenate([np.arange(50), np.zeros(50, int)])
    assert without_difficulty(y, some).mean() == pytest.approx(y.mean())


def test_weights_are_precisions():
    rng = np.random.default_rng(0)
    picks, ids, outcome = simulate(rng, 400, 10, binary=False)
    weights = rng.integers(1, 4, len(ids)).astype(float)
    repeated = np.repeat(np.arange(len(ids)), weights.astype(int))
    one = estimate_jointly(CHOICES, picks, ids, outcome, weights=weights, control=False)
    two = estimate_jointly(CHOICES, picks[repeated], ids[repeated], outcome[repeated], control=False)
    np.testing.assert_allclose(entries_of(one), entries_of(two), atol=1e-9)


def test_names_of_images_may_be_anything_and_errors_are_clear():
    rng = np.random.default_rng(0)
    picks, ids, outcome = simulate(rng, 50, 20)
    named = estimate_jointly(CHOICES, picks, np.array([f"img{i}" for i in ids]), outcome)
    np.testing.assert_allclose(entries_of(named), entries_of(estimate_jointly(CHOICES, picks, ids, outcome)))
    with pytest.raises(BadInput, match="at least 2 images"):
        estimate_jointly(CHOICES, picks, np.zeros(len(ids)), outcome)
    with pytest.raises(BadInput, match="id of its image"):
        estimate_jointly(CHOICES, picks, ids[:-1], outcome)
    with pytest.raises(BadInput, match="how must be"):
        estimate_jointly(CHOICES, picks, ids, outcome, how="magic")
    keep = picks[:, 1] < 2
    with pytest.raises(BadInput, match=r"no path takes stage1\.block1 = c"):
        estimate_jointly(CHOICES, picks[keep], ids[keep], outcome[keep], how="means")
    with pytest.raises(BadInput, match="do not determine"):
        estimate_jointly(CHOICES, picks[:5], ids[:5] + np.arange(5), outcome[:5])


def test_the_correlation_is_that_of_the_errors_of_two_scores():
    """Over repeated measurements, entry by entry; difficulty, which both kinds share, is no part of it."""
    rng = np.random.default_rng(8)
    errors, claimed = [], []
    for _ in range(60):
        picks, ids, chance = simulate(rng, 40, 60, binary=False)
        luck = rng.normal(0, 0.2, (2, len(ids)))
        kinds = chance + luck[0], 3 * (chance + 0.6 * luck[0] + 0.8 * luck[1])
        errors.append([entries_of(estimate_jointly(CHOICES, picks, ids, y)) for y in kinds])
        claimed.append(correlation(*kinds, ids))
    left = np.array(errors) - np.mean(errors, 0)
    seen = np.mean(left[:, 0] * left[:, 1]) / np.sqrt(np.mean(left[:, 0] ** 2) * np.mean(left[:, 1] ** 2))
    assert abs(seen - np.mean(claimed)) < 0.07
    assert 0.5 < seen < 0.9
    assert correlation(np.ones(4), np.arange(4.0), np.zeros(4)) == 0.0


def test_a_score_is_expressed_in_another_outcomes_unit_without_changing_the_order():
    rng = np.random.default_rng(0)
    score = Quadratic((3, 4), 5.0, {0: rng.normal(size=3), 1: rng.normal(size=4)}, errors=Quadratic((3, 4), 0.1))
    picks = np.stack([rng.integers(3, size=500), rng.integers(4, size=500)], 1)
    found = rescale_to(score, picks, 7.0 + 2.5 * score.batch(picks))
    np.testing.assert_allclose(found.batch(picks), 7.0 + 2.5 * score.batch(picks))
    assert found.errors is not None
    assert found.errors.constant == pytest.approx(0.25)
    against = rescale_to(score, picks, -score.batch(picks))
    np.testing.assert_allclose(np.diff(against.batch(picks)), np.diff(score.batch(picks)), atol=1e-9)


def test_errors_of_paths_are_those_that_other_paths_of_the_same_images_show():
    """Twenty images that disagree about a decision: its mean over them is measured well, that over others is not."""
    images, each, own = 20, 200, np.random.default_rng(0).normal(0.0, 5.0, 20)
    found = {"paths": [], "images": []}
    values = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        ids = np.tile(np.arange(images), each)
        picks = np.stack([rng.integers(len(c.options), size=len(ids)) for c in CHOICES], 1)
        outcome = own[ids] * (2 * picks[:, 3] - 1) + rng.normal(0.0, 5.0, len(ids))
        paths = Paths(CHOICES, picks, ids)
        for again, errors in found.items():
            score = paths.estimate(outcome, redrawn=again)
            errors.append(score.errors.linear[3][1])
        values.append(score.linear[3][1])
    assert np.mean(values) == pytest.approx(own.mean(), abs=4 * np.std(values) / np.sqrt(60))
    # Somewhat more, because an image's opinion on the decision itself is taken for noise too.
    assert np.std(values) < np.mean(found["paths"]) < 1.5 * np.std(values)
    # The image's own opinion is a part of both: other images would have others.
    assert np.mean(found["images"]) == pytest.approx(np.hypot(own.std() / np.sqrt(images), np.std(values)), rel=0.25)
