"""Weighted ridge regression on one-hot features, with errors that allow for clusters of samples.

``A = [1, X C]`` where C spans the coefficients that sum to zero over a choice's options; the fit is
``phi = (A' W A + lambda R)^-1 A' W y`` and its covariance the sandwich

``H^-1 (sum over clusters g of  A_g' W_g e_g e_g' W_g A_g) H^-1``,

which holds whatever the residuals' variances and whatever their correlation inside a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from sartor.core.errors import BadInput
from sartor.core.quadratic import Array
from sartor.core.threads import on_one_thread
from sartor.predictors.base import Index

GRID = np.logspace(-6, 2, 25)  # ridge strengths tried, relative to the mean diagonal
_CELLS = 2_000_000  # of the design that are written out at once


@dataclass(frozen=True, eq=False)
class Fit:
    """Constant and one-hot coefficients, with their standard errors, and the ridge that was used."""

    constant: float
    weights: Array
    constant_error: float
    errors: Array
    ridge: float


@on_one_thread
def regress(
    design: csr_array,
    contrasts: Array,
    y: Array,
    *,
    weights: Array | None = None,
    clusters: Index | None = None,
    ridge: float | None = 0.0,
) -> Fit:
    """Fit; `clusters` numbers the samples' clusters from 0 (None: every sample its own); ridge None: chosen by GCV."""
    return Regression(design, contrasts, weights).fit(y, clusters=clusters, ridge=ridge)


class Regression:
    """Samples and weights, ready for any number of targets. The design stays sparse: ten million are no matter."""

    def __init__(self, design: csr_array, contrasts: Array, weights: Array | None = None) -> None:
        self.design, self.contrasts = design, contrasts
        self.weights = w = np.ones(design.shape[0]) if weights is None else weights
        sums = np.asarray(design.T @ w) @ contrasts
        inner = contrasts.T @ _gram(design, w) @ contrasts
        self.normal = np.block([[np.array([[w.sum()]]), sums[None]], [sums[:, None], inner]])  # A' W A

    def fit(self, y: Array, *, clusters: Index | None = None, ridge: float | None = 0.0) -> Fit:
        """Coefficients and errors, see `regress`."""
        w, contrasts, normal = self.weights, self.contrasts, self.normal
        right = np.concatenate([[w @ y], contrasts.T @ np.asarray(self.design.T @ (w * y))])  # A' W y
        penalty = np.zeros(len(normal))
        penalty[1:] = 1.0  # the contrasts are orthonormal: this is the coefficients' own squared norm
        level = float(np.mean(np.diag(normal)[1:])) if len(normal) > 1 else 0.0
        if ridge is None:
            ridge = _generalised_cross_validation(normal, right, level, float(w @ y**2))
        hessian = normal + np.diag(penalty * level * ridge)
        scale = np.sqrt(np.maximum(np.diag(hessian), 1e-300))
        if ridge == 0 and (len(y) < len(normal) or np.linalg.cond(hessian / np.outer(scale, scale)) > 1e12):
            raise BadInput(
                f"{len(y)} samples do not determine {len(normal)} coefficients: measure more networks, such that every "
                "option occurs, or use a ridge."
            )
        factor = cho_factor(hessian)
        phi = cho_solve(factor, right)
        residual = y - phi[0] - np.asarray(self.design @ (contrasts @ phi[1:]))
        inverse = cho_solve(factor, np.eye(len(phi)))
        covariance = _sandwich(self.design, contrasts, w * residual, clusters, inverse)
        spread = np.sqrt(np.maximum(((contrasts @ covariance[1:, 1:]) * contrasts).sum(1), 0.0))
        return Fit(float(phi[0]), contrasts @ phi[1:], float(np.sqrt(covariance[0, 0])), spread, float(ridge))


def _gram(design: csr_array, w: Array) -> Array:
    """``X' W X``, a few thousand samples at a time: dense products are several times as fast as sparse ones."""
    samples, columns = design.shape
    total, together = np.zeros((columns, columns)), max(1, _CELLS // max(1, columns))
    for start in range(0, samples, together):
        some = design[start : start + together].toarray()
        total += some.T @ (w[start : start + together, None] * some)
    return total


def _sandwich(design: csr_array, contrasts: Array, scores: Array, clusters: Index | None, bread: Array) -> Array:
    if clusters is None:
        count, squares = len(scores), scores**2
        inner, cross, total = _gram(design, squares), np.asarray(design.T @ squares), squares.sum()
    else:
        count = int(clusters.max()) + 1
        parts, totals = _cluster_sums(design, scores, clusters, count), np.bincount(clusters, scores, count)
        inner, cross, total = parts.T @ parts, parts.T @ totals, totals @ totals
    inner, cross = contrasts.T @ inner @ contrasts, contrasts.T @ cross
    meat = np.block([[np.array([[total]]), cross[None]], [cross[:, None], inner]])
    # The customary correction for few clusters and for the coefficients spent.
    spare = max(1, len(scores) - len(bread))
    return np.asarray((count / max(1, count - 1)) * ((len(scores) - 1) / spare) * (bread @ meat @ bread))


def _cluster_sums(design: csr_array, scores: Array, clusters: Index, count: int) -> Array:
    """(clusters, columns): the sum of ``score x`` over every cluster's samples."""
    order = np.argsort(clusters, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(clusters, minlength=count))])
    member = csr_array((scores[order], order, starts), shape=(count, len(scores)))
    return np.asarray((member @ design).todense())


def _generalised_cross_validation(normal: Array, right: Array, level: float, squares: float) -> float:
    """The ridge with the least ``RSS / (1 - df / n)^2``, all of them from one decomposition.

    The constant has no penalty: without it, what is left is ``V diag(d) V'``, and every ridge adds to d alone.
    """
    total, sums = normal[0, 0], normal[0, 1:]
    d, vectors = np.linalg.eigh(normal[1:, 1:] - np.outer(sums, sums) / total)
    d, z = np.maximum(d, 0.0)[:, None], (vectors.T @ (right[1:] - sums * right[0] / total))[:, None]
    with_ridge = d + level * GRID
    explained = (z**2 * (with_ridge + level * GRID) / with_ridge**2).sum(0)
    rest = 1.0 - (1.0 + (d / with_ridge).sum(0)) / total
    errors = np.where(rest > 1e-3, (squares - right[0] ** 2 / total - explained) / np.maximum(rest, 1e-3) ** 2, np.inf)
    return float(GRID[np.argmin(errors)]) if np.isfinite(errors).any() else float(GRID[-1])
