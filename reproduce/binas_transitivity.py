"""What two correlations say of a third: the bound of BINAS, equation 46."""

from __future__ import annotations

import numpy as np

from sartor.core.errors import BadInput


def transitivity_bound(predicted_supernet: float, supernet_alone: float) -> float:
    """The least correlation of predictions with networks trained alone that two known correlations allow.

    ``Cor(P, S) >= Cor(P, O) Cor(O, S) - sqrt((1 - Cor(P, O)^2) (1 - Cor(O, S)^2))`` (BINAS, equation 46),
    with P predicted, O measured in the supernet, S trained alone. It holds for Pearson's and, as
    Pearson's on ranks, for Spearman's correlation; not for Kendall's.
    """
    one, two = float(predicted_supernet), float(supernet_alone)
    if not (-1 <= one <= 1 and -1 <= two <= 1):
        raise BadInput(f"correlations must lie between -1 and 1, but got {one} and {two}.")
    return one * two - float(np.sqrt((1 - one**2) * (1 - two**2)))
