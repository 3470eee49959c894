"""Least squares in the basis of BINAS's contributions (equation 3), from sampled networks.

A coefficient per option of every choice, counted where the choice is active; with `per_hub` one
per option and option of the hub, which is the full ``Q`` of equation 4 inside a stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from sartor.core.arch import Choice, needed_hubs
from sartor.core.config import check
from sartor.core.quadratic import Quadratic
from sartor.predictors.base import Predictor, check_samples
from sartor.predictors.features import Features, Term, linear_terms
from sartor.predictors.regression import regress
from sartor.predictors.shrinkage import guess


def contribution_features(choices: Sequence[Choice], per_hub: bool = False) -> Features:
    """The columns: options of active choices, or pairs of hub option and option of what it activates."""
    terms = linear_terms(choices)
    if per_hub and needed_hubs(choices, "a coefficient per hub option"):
        terms = [t if t.gate is None else Term((t.gate, *t.choices), t.gate, t.allowed) for t in terms]
    return Features(tuple(len(c.options) for c in choices), tuple(terms))


@final
@dataclass(frozen=True, kw_only=True)
class LeastSquares(Predictor):
    """Ridge regression on the active options, with standard errors for every coefficient.

    `ridge` is relative to the mean diagonal of the normal equations; None chooses it by generalised
    cross-validation. The errors are those of the ridge estimate: they do not include its bias. Options that no sample
    has are guessed from those like them, with errors that say so (`shrinkage.guess`).
    """

    ridge: float | None = None
    per_hub: bool = False

    def __post_init__(self) -> None:
        check(self, ridge=">= 0")

    def fit(
        self, picks: ArrayLike, targets: ArrayLike, choices: Sequence[Choice], rng: np.random.Generator
    ) -> Quadratic:
        """The coefficients, each choice's summing to zero over its options."""
        index, y, _ = check_samples(picks, targets, choices)
        features = contribution_features(choices, self.per_hub)
        design = features.design(index)
        found = regress(design, features.contrasts(), y, ridge=self.ridge)
        weights, errors = found.weights, found.errors
        seen = np.asarray(design.sum(0)).ravel() > 0
        if not seen.all() and not self.per_hub:
            weights, errors = guess(weights, errors, seen, choices)
        return features.quadratic(found.constant, weights, (found.constant_error, errors))


PLUGIN = LeastSquares
