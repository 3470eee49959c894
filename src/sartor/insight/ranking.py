"""How well a score ranks networks: Kendall, Spearman and mean squared error, each with a bootstrap interval."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from sartor.core.errors import BadInput
from sartor.core.quadratic import Array

Index = NDArray[np.int64]
_MATRIX = 2000  # networks up to which every pair is compared at once


def quality(
    predicted: ArrayLike, measured: ArrayLike, rng: np.random.Generator, resamples: int = 1000
) -> dict[str, Any]:
    """Rank correlations and error over networks, with 95 % percentile intervals from resampling the networks."""
    p, m = np.asarray(predicted, np.float64), np.asarray(measured, np.float64)
    if p.shape != m.shape or p.ndim != 1 or len(p) < 3:
        raise BadInput(f"ranking needs two lists of at least 3 values of one length, but got {p.shape} and {m.shape}.")
    samples = rng.integers(len(p), size=(resamples, len(p)))
    every = np.vstack([np.arange(len(p)), samples])  # all networks as they are, then the resamples
    result: dict[str, Any] = {"networks": len(p)}
    found = {"kendall": _kendall(p, m, every), "spearman": _spearman(p, m, every), "mse": ((p - m) ** 2)[every].mean(1)}
    for name, (value, *draws) in found.items():
        low, high = np.quantile(draws, [0.025, 0.975])
        result[name] = {"value": float(value), "low": float(low), "high": float(high)}
    return result


def _kendall(p: Array, m: Array, samples: Index) -> Array:
    """Kendall's tau-b of every sample; how often a network was drawn weighs its pairs, which are compared once."""
    if len(p) > _MATRIX:
        drawn = [(p[s], m[s]) for s in samples]
        return np.array([stats.kendalltau(a, b).statistic if np.ptp(a) and np.ptp(b) else 0.0 for a, b in drawn])
    count = np.stack([np.bincount(s, minlength=len(p)) for s in samples]).astype(np.float64)
    one, two = np.sign(p[:, None] - p), np.sign(m[:, None] - m)
    agree, apart, too = (((count @ pairs) * count).sum(1) for pairs in (one * two, abs(one), abs(two)))
    return _ratio(agree, np.sqrt(apart * too))


def _spearman(p: Array, m: Array, samples: Index) -> Array:
    one, two = (stats.rankdata(v[samples], axis=1) - (len(p) + 1) / 2 for v in (p, m))
    return _ratio((one * two).sum(1), np.sqrt((one**2).sum(1) * (two**2).sum(1)))


def _ratio(part: Array, whole: Array) -> Array:
    """A constant list has no ranking: its correlation is zero, not undefined."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
