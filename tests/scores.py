"""Planted scores: one stage of the mobile space in small, and random functions of its networks."""

import numpy as np

from sartor.core.arch import Choice
from sartor.predictors.features import Features, linear_terms, pair_term

# A depth of 1 to 3, three blocks; blocks 2 and 3 need the depth.
STAGE = (
    Choice("depth", ("1", "2", "3")),
    Choice("block1", ("p", "q", "r")),
    Choice("block2", ("p", "q", "r"), ((0, (1, 2)),)),
    Choice("block3", ("p", "q", "r"), ((0, (2,)),)),
)


def draw(choices, count, rng):
    """Random networks."""
    return np.stack([rng.integers(len(c.options), size=count) for c in choices], 1)


def planted(choices, rng, pairs=()):
    """A random score in which inactive choices do not count."""
    sizes = tuple(len(c.options) for c in choices)
    terms = [*linear_terms(choices), *(pair_term(choices, i, j) for i, j in pairs)]
    features = Features(sizes, tuple(terms))
    return features.quadratic(70.0, rng.normal(size=features.first[-1]))
