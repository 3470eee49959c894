import numpy as np
from binas_ablation import ablate
from scores import STAGE, draw, planted

from sartor.core.quadratic import Quadratic


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
