"""The learned bilinear predictor (BINAS, equations 7 and 8), by the closed form of algorithm 2.

``ACC = r + alpha' q_alpha + beta' q_beta + alpha' Q beta``: beta are the choices that others need
(the depths), alpha all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from sartor.arch import Choice
from sartor.errors import BadInput
from sartor.predictors._closed_form import choose, solve
from sartor.predictors._features import Features, Term, hubs, linear_terms, pair_term
from sartor.predictors.base import Predictor, checked
from sartor.quadratic import Quadratic


@final
@dataclass(frozen=True, kw_only=True)
class Bilinear(Predictor):
    """Learned bilinear score of hubs (beta) and the rest (alpha) on principal components.

    `components` is their number; None chooses it on held-out samples, at most `most`. `hubs` names
    beta where it is not the choices that others need. `inactive` also multiplies choices that may
    be inactive with choices other than their hub, as the paper does: an inactive block's option
    then counts, and an optimiser will exploit it.
    """

    components: int | None = None
    most: int = 1500
    folds: int = 5
    hubs: tuple[str, ...] | None = None
    inactive: bool = False

    def fit(
        self, picks: ArrayLike, targets: ArrayLike, choices: Sequence[Choice], rng: np.random.Generator
    ) -> Quadratic:
        """Equation 7's minimiser."""
        beta = set(hubs(choices)) if self.hubs is None else {_position(choices, name) for name in self.hubs}
        pairs = [(i, j) for i in sorted(beta) for j in range(len(choices)) if j not in beta]
        return fit_pairs(self, picks, targets, choices, pairs, rng)


def _position(choices: Sequence[Choice], name: str) -> int:
    names = [c.name for c in choices]
    if name not in names:
        raise BadInput(f"hubs must be names of choices ({', '.join(names)}), but got {name!r}.")
    return names.index(name)


def fit_pairs(
    how: Bilinear | FullQuadratic,
    picks: ArrayLike,
    targets: ArrayLike,
    choices: Sequence[Choice],
    pairs: Sequence[tuple[int, int]],
    rng: np.random.Generator,
) -> Quadratic:
    """Algorithm 2 with the given products beside all linear terms."""
    index, y, sizes = checked(picks, targets, choices, least=max(3, 2 * how.folds))
    products: list[Term] = [t for i, j in pairs if (t := pair_term(choices, i, j, how.inactive)) is not None]
    features = Features(sizes, (*linear_terms(choices), *products))
    design = features.design(index)
    most = min(how.most, len(y) - 1 - (len(y) // how.folds), design.shape[1])
    components = how.components if how.components is not None else choose(design, y, most, how.folds, rng)
    return features.quadratic(*solve(design, y, components, rng))


@final
@dataclass(frozen=True, kw_only=True)
class FullQuadratic(Predictor):
    """Learned quadratic score with every pair of choices, on principal components (BINAS, equation 9).

    The options are those of `Bilinear`.
    """

    components: int | None = None
    most: int = 1500
    folds: int = 5
    inactive: bool = False

    def fit(
        self, picks: ArrayLike, targets: ArrayLike, choices: Sequence[Choice], rng: np.random.Generator
    ) -> Quadratic:
        """Equation 9's minimiser."""
        pairs = [(i, j) for i in range(len(choices)) for j in range(i + 1, len(choices))]
        return fit_pairs(self, picks, targets, choices, pairs, rng)
