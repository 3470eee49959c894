import numpy as np
import pytest
from binas_transitivity import transitivity_bound

from sartor.core.errors import BadInput


def test_the_papers_number():
    """0.99 and 0.97 guarantee 0.926, which the paper rounds to 0.93."""
    assert transitivity_bound(0.99, 0.97) == pytest.approx(0.926, abs=5e-4)
    assert transitivity_bound(1.0, 0.5) == 0.5


def test_holds_for_any_three_variables():
    rng = np.random.default_rng(0)
    for _ in range(200):
        table = np.corrcoef(rng.normal(size=(3, 3)) @ rng.normal(size=(3, 50)))
        assert table[0, 2] >= transitivity_bound(table[0, 1], table[1, 2]) - 1e-9


def test_correlations_only():
    with pytest.raises(BadInput, match="between -1 and 1"):
        transitivity_bound(1.2, 0.5)
