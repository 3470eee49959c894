"""Algorithm 2 of BINAS: least squares in closed form on the leading principal components.

With the centred design ``X = U S V'`` the coefficients on k components are ``W = V S^-1 U' y``.
Since ``V = X' U S^-1``, they are ``W = X' (U S^-2 U' y)``: neither V nor any square matrix of the
features is formed, and X itself is sparse and centred on the fly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from sartor.quadratic import Array

OVERSAMPLE = 10
POWERS = 4
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
        return np.asarray(self.matrix.T @ right) - np.multiply.outer(self.mean, right.sum(0))


def low_rank(x: Centred, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """The leading left singular vectors and singular values by randomised subspace iteration.

    Exact up to rounding where `count` reaches the rank; else the error falls with every power.
    """
    width = min(count + OVERSAMPLE, *x.matrix.shape)
    basis = np.linalg.qr(rng.normal(size=(x.matrix.shape[0], width)))[0]
    for _ in range(POWERS):
        basis = np.linalg.qr(x.times(x.transposed_times(basis)))[0]
    _, values, turn = np.linalg.svd(x.transposed_times(basis), full_matrices=False)
    real = min(count, int(np.count_nonzero(values > RANK * values[:1].max(initial=0.0))))
    return basis @ turn[:real].T, values[:real]


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
    for held_out in parts:
        train = np.setdiff1d(np.arange(len(y)), held_out)
        x = Centred.of(design[train])
        left, values = low_rank(x, most, rng)
        share = left.T @ (y[train] - y[train].mean()) / values**2
        outside = Centred(design[held_out], x.mean)
        predicted = y[train].mean() + np.cumsum(outside.times(x.transposed_times(left)) * share, axis=1)
        errors = ((predicted - y[held_out][:, None]) ** 2).sum(0)
        if len(errors):
            total += np.pad(errors, (0, most - len(errors)), mode="edge")
    return int(np.argmin(total)) + 1
