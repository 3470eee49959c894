import numpy as np
import pytest
from scores import STAGE, draw, planted

from sartor.core.arch import Arch, Choice, canonical
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.core.registry import PREDICTORS, SPACES
from sartor.predictors.base import Fitted
from sartor.predictors.bilinear import Bilinear
from sartor.predictors.closed_form import Centred, choose, low_rank, solve
from sartor.predictors.features import Features, linear_terms, pair_term
from sartor.predictors.linear import LeastSquares, contribution_features
from sartor.predictors.quadratic import FullQuadratic

FREE = tuple(Choice(f"c{i}", ("a", "b", "c")) for i in range(5))


def test_design_has_a_one_for_every_active_term():
    picks = np.array([[0, 1, 2, 0], [2, 0, 1, 2]])
    features = contribution_features(STAGE)
    dense = features.design(picks).todense()
    assert dense.shape == (2, 12)
    assert dense.sum(1).tolist() == [2, 4]
    weights = np.arange(12.0)
    np.testing.assert_allclose(features.quadratic(1.0, weights).batch(picks), 1.0 + dense @ weights)


def test_products_with_a_choice_that_may_be_inactive_are_left_out():
    assert pair_term(STAGE, 0, 1) is not None
    assert pair_term(STAGE, 0, 2) is not None  # with its own hub
    assert pair_term(STAGE, 1, 2) is None
    assert pair_term(STAGE, 2, 3) is None
    assert pair_term(STAGE, 2, 3, inactive=True) is not None


@pytest.mark.parametrize("predictor", [Bilinear(), FullQuadratic(), LeastSquares(), LeastSquares(per_hub=True)])
def test_inactive_choices_never_count(predictor):
    rng = np.random.default_rng(0)
    picks = draw(STAGE, 120, rng)
    fitted = predictor.fit(picks, planted(STAGE, rng).batch(picks) + rng.normal(0, 0.1, 120), STAGE, rng)
    assert isinstance(fitted, Fitted)
    shallow = draw(STAGE, 50, rng)
    shallow[:, 0] = 0
    other = shallow.copy()
    other[:, 2:] = rng.integers(3, size=(50, 2))
    np.testing.assert_allclose(fitted.batch(shallow), fitted.batch(other), atol=1e-9)


@pytest.mark.parametrize(("predictor", "pairs", "whole"), [(Bilinear, 60, 100), (FullQuadratic, 115, 300)])
def test_inactive_is_equations_8_and_9_in_full(predictor, pairs, whole):
    """In BINAS's space; and what two blocks are worth together, where both run, only that can know."""
    choices = SPACES["mobile"]().choices
    made = predictor().pairs(choices)
    assert len(made) == whole
    assert sum(pair_term(choices, *pair) is not None for pair in made) == pairs
    rng = np.random.default_rng(0)
    deep, other, worth = draw(STAGE, 300, rng), draw(STAGE, 100, rng), rng.normal(size=(3, 3))
    hubs = {"hubs": ("depth", "block2")} if predictor is Bilinear else {}
    for some in (deep, other):
        some[:, 0] = 2
    y = worth[deep[:, 2], deep[:, 3]]
    errors = []
    for inactive in (False, True):
        fitted = predictor(inactive=inactive, **hubs).fit(deep, y, STAGE, rng)
        errors.append(np.abs(fitted.batch(other) - worth[other[:, 2], other[:, 3]]).max())
    assert errors[1] < 1e-6 < 0.3 < errors[0]


def test_closed_form_equals_ordinary_least_squares():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        picks = draw(FREE, 80, rng)
        features = Features((3,) * 5, (*linear_terms(FREE), pair_term(FREE, 0, 1), pair_term(FREE, 2, 4)))
        design, y = features.design(picks), rng.normal(50, 5, 80)
        constant, weights = solve(design, y, design.shape[1], rng)
        dense = np.column_stack([np.ones(80), design.todense()])
        reference = dense @ np.linalg.lstsq(dense, y, rcond=None)[0]
        np.testing.assert_allclose(constant + design @ weights, reference, atol=1e-8)
        # Of all solutions the one of least norm (the design is not of full rank), as the pseudo-inverse gives it.
        centred = design.todense() - design.todense().mean(0)
        np.testing.assert_allclose(weights, np.linalg.pinv(centred, rcond=1e-10) @ (y - y.mean()), atol=1e-8)


def test_randomised_svd_finds_the_leading_components():
    rng = np.random.default_rng(0)
    design = contribution_features(SPACES["mobile"]().choices).design(draw(SPACES["mobile"]().choices, 400, rng))
    x = Centred.of(design)
    left, values = low_rank(x, 20, rng)
    dense = design.todense() - design.todense().mean(0)
    u, s, _ = np.linalg.svd(dense, full_matrices=False)
    np.testing.assert_allclose(values, s[:20], rtol=0.04)
    np.testing.assert_allclose(values[:10], s[:10], rtol=1e-3)
    np.testing.assert_allclose(left.T @ left, np.eye(20), atol=1e-10)
    np.testing.assert_allclose(x.times(x.transposed_times(left)), dense @ (dense.T @ left), atol=1e-8)
    assert np.linalg.norm(left.T @ u[:, :10]) == pytest.approx(np.sqrt(10), rel=0.03)


@pytest.mark.parametrize(
    ("predictor", "choices", "pairs"),
    [
        (LeastSquares(), STAGE, ()),
        (LeastSquares(ridge=0.0), STAGE, ()),
        (LeastSquares(per_hub=True), STAGE, ((0, 2), (0, 3))),
        (Bilinear(), STAGE, ((0, 1), (0, 2))),
        (FullQuadratic(), FREE, ((0, 1), (2, 3), (1, 4))),
        (Bilinear(hubs=("c0", "c1")), FREE, ((0, 3), (1, 4))),
    ],
)
def test_recovers_a_planted_score(predictor, choices, pairs):
    rng = np.random.default_rng(1)
    truth = planted(choices, rng, pairs)
    train, test = draw(choices, 600, rng), draw(choices, 300, rng)
    fitted = predictor.fit(train, truth.batch(train), choices, rng)
    np.testing.assert_allclose(fitted.batch(test), truth.batch(test), atol=0.02)
    noisy = predictor.fit(train, truth.batch(train) + rng.normal(0, 0.5, 600), choices, rng)
    error = np.mean((noisy.batch(test) - truth.batch(test)) ** 2)
    assert error < 0.25 * 0.6  # well below the noise it was trained on
    assert error < 0.1 * np.var(truth.batch(test))


def test_components_are_chosen_on_held_out_samples():
    """Of pure noise nothing is learnt; of a rich planted score nearly all components are."""
    rng = np.random.default_rng(0)
    picks = draw(FREE, 200, rng)
    pairs = [(i, j) for i in range(5) for j in range(i + 1, 5)]
    features = Features((3,) * 5, (*linear_terms(FREE), *(pair_term(FREE, i, j) for i, j in pairs)))
    design = features.design(picks)
    noise = choose(design, rng.normal(size=200), 100, 5, rng)
    rich = choose(design, planted(FREE, rng, pairs).batch(picks), 100, 5, rng)
    assert noise < 20
    assert rich >= 40


def test_the_papers_space_forms_no_large_matrix():
    """255 entries and their products with all 255: 65,025 columns if they were formed."""
    choices = SPACES["mobile"]().choices
    rng = np.random.default_rng(0)
    picks = draw(choices, 300, rng)
    truth = planted(choices, rng)
    fitted = FullQuadratic(components=80, inactive=True).fit(picks, truth.batch(picks), choices, rng)
    assert len(fitted.pairs) == 300
    held = draw(choices, 100, rng)
    assert np.corrcoef(fitted.batch(held), truth.batch(held))[0, 1] > 0.3


def test_least_squares_errors_cover():
    """95 % intervals of the contrasts hold the planted value about 95 times in 100."""
    rng = np.random.default_rng(0)
    truth = planted(STAGE, rng)
    planted_block = truth.pairs[0, 3][2] - truth.pairs[0, 3][2].mean()
    hits = []
    for _ in range(150):
        picks = draw(STAGE, 250, rng)
        mean = truth.batch(picks)
        noise = rng.normal(size=250) * (0.2 + (picks[:, 1] == 0))  # its variance depends on a decision
        fitted = LeastSquares(ridge=0.0).fit(picks, mean + noise, STAGE, rng)
        for i in (0, 1):
            hits += _hits(fitted.linear[i], fitted.errors.linear[i], _centred_truth(truth, i))
        hits += _hits(fitted.pairs[0, 3][2], fitted.errors.pairs[0, 3][2], planted_block)
    assert 0.92 < np.mean(hits) < 0.98


def _hits(value, error, expected):
    return list(np.abs(value - expected) < 1.96 * error)


def _centred_truth(truth, i):
    """The planted contribution in the fit's gauge: what sums to zero; the depth takes its blocks' means."""
    own = truth.linear[i].copy()
    if i == 0:
        own += sum(t.mean(1) for (a, _), t in truth.pairs.items() if a == 0)
    return own - own.mean()


def test_too_little_to_learn_from():
    rng = np.random.default_rng(0)
    picks = draw(FREE, 8, rng)
    with pytest.raises(BadInput, match="do not determine"):
        LeastSquares(ridge=0.0).fit(picks, np.zeros(8), FREE, rng)
    with pytest.raises(BadInput, match="at least 10 samples"):
        FullQuadratic().fit(picks, np.zeros(8), FREE, rng)
    with pytest.raises(BadInput, match="finite"):
        LeastSquares().fit(picks, np.full(8, np.nan), FREE, rng)
    with pytest.raises(BadInput, match="index of an option"):
        LeastSquares().fit(picks + 7, np.zeros(8), FREE, rng)
    with pytest.raises(BadInput, match="hubs must be names"):
        Bilinear(hubs=("x",)).fit(draw(FREE, 30, rng), np.zeros(30), FREE, rng)
    with pytest.raises(BadInput, match="folds"):
        Bilinear(folds=1)
    two = (*STAGE, Choice("odd", ("a", "b"), ((0, (1,)), (1, (1,)))))
    with pytest.raises(BadInput, match="needs 2: depth, block1"):
        LeastSquares().fit(draw(two, 30, rng), np.zeros(30), two, rng)


@pytest.mark.parametrize("predictor", [Bilinear(), LeastSquares(per_hub=True)], ids=["bilinear", "per hub"])
def test_what_is_about_hubs_is_refused_where_there_are_none(predictor):
    flat = (Choice("a", ("0", "1")), Choice("b", ("0", "1", "2")))
    rng = np.random.default_rng(0)
    with pytest.raises(BadInput, match="needs choices that switch others on, but this space has none"):
        predictor.fit(draw(flat, 40, rng), rng.normal(size=40), flat, rng)


@pytest.mark.parametrize("name", PREDICTORS.names())
def test_every_predictor_recovers_an_additive_score_and_leaves_inactive_choices_alone(name):
    rng = np.random.default_rng(0)
    truth, predictor = planted(STAGE, rng), PREDICTORS.make(name)
    assert predictor.suits(STAGE)
    picks, new = draw(STAGE, 400, rng), draw(STAGE, 100, rng)
    found = predictor.fit(picks, truth.batch(picks), STAGE, rng)
    assert isinstance(found, Quadratic)
    np.testing.assert_allclose(found.batch(new), truth.batch(new), atol=0.05)
    canonical_new = [canonical(STAGE, Arch(tuple(row))).picks for row in new]
    np.testing.assert_allclose(found.batch(canonical_new), found.batch(new))
