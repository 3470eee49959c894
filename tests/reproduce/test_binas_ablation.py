import numpy as np
from binas_ablation import ablate

from sartor.core.arch import Choice
from sartor.core.quadratic import Quadratic
from sartor.predictors.features import Features, linear_terms, pair_term

STAGE = (
    Choice("depth", ("1", "2", "3")),
    Choice("block1", ("p", "q", "r")),
    Choice("block2", ("p", "q", "r"), ((0, (1, 2)),)),
    Choice("block3", ("p", "q", "r"), ((0, (2,)),)),
)


def draw(choices, count, rng):
    return np.stack([rng.integers(len(c.options), size=count) for c in choices], 1)


def planted(choices, rng, pairs=()):
    """A random score in which inactive choices do not count."""
    sizes = tuple(len(c.options) for c in choices)
    terms = [*linear_terms(choices), *(pair_term(choices, i, j) for i, j in pairs)]
    features = Features(sizes, tuple(terms))
    return features.quadratic(70.0, rng.normal(size=features.first[-1]))


def test_ablation_of_table_2():
    rng = np.random.default_rng(0)
    score = planted(STAGE, rng, ((0, 1),))
    variants = ablate(score, STAGE)
    picks = draw(STAGE, 100, rng)
    assert list(variants) == ["full", "no depth terms", "no block terms"]
    assert 0 not in variants["no depth terms"].linear
    assert set(variants["no block terms"].linear) == {0}
    assert not variants["no block terms"].pairs
    parts = variants["no depth terms"].batch(picks) + variants["no block terms"].batch(picks) - score.constant
    np.testing.assert_allclose(parts, score.batch(picks))
    assert isinstance(variants["full"], Quadratic)
