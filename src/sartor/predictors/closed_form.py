"""Algorithm 2 of BINAS: least squares in closed form on the leading principal components.

With the centred design ``X = U S V'`` the coefficients on k components are ``W = V S^-1 U' y``.
Since ``V = X' U S^-1``, they are ``W = X' (U S^-2 U' y)``: neither V nor any square matrix of the
features is formed, and X itself is sparse and centred on the fly.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from sartor.core.arch import Choice
from sartor.core.config import check
from sartor.core.quadratic import Array, Quadratic
from sartor.predictors.base import Predictor, check_samples
from sartor.predictors.features import Features, linear_terms, pair_term
from sartor.predictors.linear import LeastSquares
from sartor.predictors.shrinkage import contributions_of

OVERSAMPLE = 10
POWERS = 4
GRAM = 4000
RANK = 1e-9  # singular values below this share of the largest are rounding


@dataclass(frozen=True, eq=False)
class Centred:
    """``X - 1 mean'`` without forming it."""

    matrix: csr_array
    mean: Array

    @classmethod
    def of(cls, matrix: csr_array) -> Centred:
        """Centred by the columns' own means."""
        return cls(matrix, np.asarray(matrix.mean(axis=0)).ravel())

    def times(self, right: Array) -> Array:
        """``X right``."""
        return np.asarray(self.matrix @ right) - self.mean @ right

    def transposed_times(self, right: Array) -> Array:
        """``X' right``."""
        return np.asarray(self.matrix.T @ right - np.multiply.outer(self.mean, right.sum(0)))


def low_rank(x: Centred, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The leading left singular vectors and singular values by randomised subspace iteration.

    Exact up to rounding where `count` reaches the rank; else the error falls with every power. Where
    the sketch would be nearly as wide as there are samples, their Gram matrix is smaller and exact.
    """
    samples = x.matrix.shape[0]
    if 2 * count >= samples and samples <= GRAM:
        return _by_gram(x, count)
    width = min(count + count // 4 + OVERSAMPLE, *x.matrix.shape)  # one-hot spectra are flat: a wide margin
    basis = np.linalg.qr(rng.normal(size=(x.matrix.shape[0], width)))[0]
    for _ in range(POWERS):
        basis = np.linalg.qr(x.times(x.transposed_times(basis)))[0]
    _, values, turn = np.linalg.svd(x.transposed_times(basis), full_matrices=False)
    real = min(count, int(np.count_nonzero(values > RANK * values[:1].max(initial=0.0))))
    return basis @ turn[:real].T, values[:real]


def _by_gram(x: Centred, count: int) -> tuple[Array, Array]:
    return _spectrum(_shares(x.matrix), count)


def _shares(matrix: csr_array) -> Array:
    """How many features two samples have in common."""
    return np.asarray((matrix @ matrix.T).todense(), np.float64)


def _spectrum(shares: Array, count: int) -> tuple[Array, Array]:
    shares = shares - shares.mean(0)
    squares, left = np.linalg.eigh(shares - shares.mean(1)[:, None])
    real = min(count, int(np.count_nonzero(squares > 1e-12 * squares[-1:].max(initial=0.0))))
    return left[:, ::-1][:, :real], np.sqrt(squares[::-1][:real])


def solve(design: csr_array, y: Array, components: int, rng: np.random.Generator) -> tuple[float, Array]:
    """Constant and coefficients on at most `components` principal components (lines 2 to 7)."""
    x = Centred.of(design)
    left, values = low_rank(x, components, rng)
    weights = x.transposed_times(left @ (left.T @ (y - y.mean()) / values**2))
    return float(np.mean(y - design @ weights)), weights  # the uncentred X, as the longer paper has it


def choose(design: csr_array, y: Array, most: int, folds: int, rng: np.random.Generator) -> int:
    """The number of components with the least squared error on held-out samples, over `folds` splits."""
    parts = np.array_split(rng.permutation(len(y)), folds)
    total = np.zeros(most)
    shares = _shares(design) if len(y) <= min(2 * most, GRAM) else None  # what samples share is asked once, not a fold
    for held_out in parts:
        train = np.setdiff1d(np.arange(len(y)), held_out)
        if shares is not None:
            inner, outer = shares[np.ix_(train, train)], shares[np.ix_(held_out, train)]
            left, values = _spectrum(inner, most)
            outside = (outer - inner.mean(0)) @ left  # centring's other terms are constant along left, which sums to 0
        else:
            x = Centred.of(design[train])
            left, values = low_rank(x, most, rng)
            outside = Centred(design[held_out], x.mean).times(x.transposed_times(left))
        share = left.T @ (y[train] - y[train].mean()) / values**2
        predicted = y[train].mean() + np.cumsum(outside * share, axis=1)
        errors = ((predicted - y[held_out][:, None]) ** 2).sum(0)
        if len(errors):
            total += np.pad(errors, (0, most - len(errors)), mode="edge")
    return int(np.argmin(total)) + 1


@dataclass(frozen=True, kw_only=True)
class ClosedForm(Predictor):
    """Linear terms and the products that a subclass names, on principal components.

    `components` is their number; None chooses it on held-out samples, at most `most`. `inactive`
    also multiplies choices that may be inactive with choices other than their hub, as equations 8 and 9 do in full
    (40 of 100 and 185 of 300 pairs of choices in BINAS's space): an inactive block's option then counts, and an
    optimiser will exploit it. Options that no sample has are guessed from those like them (`shrinkage.guess`).
    """

    components: int | None = None
    most: int = 1500
    folds: int = 5
    inactive: bool = False

    def __post_init__(self) -> None:
        check(self, components=">= 1", most=">= 1", folds=">= 2")

    @abstractmethod
    def pairs(self, choices: Sequence[Choice]) -> list[tuple[int, int]]:
        """The pairs of choices whose products are features."""

    def fit(
        self, picks: ArrayLike, targets: ArrayLike, choices: Sequence[Choice], rng: np.random.Generator
    ) -> Quadratic:
        """The least-squares coefficients on the chosen number of components."""
        index, y, sizes = check_samples(picks, targets, choices, least=2 * self.folds)
        products = [pair_term(choices, i, j, self.inactive) for i, j in self.pairs(choices)]
        features = Features(sizes, (*linear_terms(choices), *(t for t in products if t is not None)))
        design = features.design(index)
        most = min(self.most, len(y) - len(y) // self.folds - 2, design.shape[1])
        count = self.components if self.components is not None else choose(design, y, most, self.folds, rng)
        constant, weights = solve(design, y, count, rng)
        if not np.asarray(design[:, : sum(sizes)].sum(0)).all():
            additive, _ = contributions_of(LeastSquares().fit(index, y, choices, rng), choices)
            weights = _with_guesses(weights, features, design, additive)
        return features.quadratic(constant, weights)


def _with_guesses(weights: Array, features: Features, design: csr_array, additive: Array) -> Array:
    """Options that no sample has as far from the mean of their choice as an additive score guesses them to be.

    Their columns are empty, so that their coefficients, and those of all their products, are zero: what the choice's
    terms come to in the samples' mean is given to the option's own coefficient, and the guessed distance from it.
    """
    first, weights = features.first, weights.copy()
    for i in range(len(features.sizes)):
        own = slice(first[i], first[i + 1])  # the choices' own terms are the first ones
        seen = np.asarray(design[:, own].sum(0)).ravel()
        if (seen > 0).all() or not seen.any():
            continue
        mine = np.concatenate([np.arange(*first[n : n + 2]) for n, t in enumerate(features.terms) if i in t.choices])
        mean = float((design[:, mine] @ weights[mine]).sum() / seen.sum())
        worth = additive[own]
        weights[own][seen == 0] = mean + worth[seen == 0] - float(seen @ worth / seen.sum())
    return weights
