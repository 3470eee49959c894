"""How well a score ranks networks: Kendall, Spearman and mean squared error, each with a bootstrap interval."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from sartor.core.errors import BadInput


def quality(
    predicted: ArrayLike, measured: ArrayLike, rng: np.random.Generator, resamples: int = 1000
) -> dict[str, Any]:
    """Rank correlations and error over networks, with 95 % percentile intervals from resampling the networks."""
    p, m = np.asarray(predicted, np.float64), np.asarray(measured, np.float64)
    if p.shape != m.shape or p.ndim != 1 or len(p) < 3:
        raise BadInput(f"ranking needs two lists of at least 3 values of one length, but got {p.shape} and {m.shape}.")
    samples = rng.integers(len(p), size=(resamples, len(p)))
    result: dict[str, Any] = {"networks": len(p)}
    for name, statistic in (("kendall", _kendall), ("spearman", _spearman), ("mse", _mse)):
        draws = [statistic(p[s], m[s]) for s in samples]
        low, high = np.quantile(draws, [0.025, 0.975])
        result[name] = {"value": statistic(p, m), "low": float(low), "high": float(high)}
    return result


def _finite(value: float) -> float:
    """A constant list has no ranking: its correlation is zero, not undefined."""
    return float(value) if np.isfinite(value) else 0.0


def _kendall(p: np.ndarray, m: np.ndarray) -> float:
    if np.ptp(p) == 0 or np.ptp(m) == 0:
        return 0.0
    return _finite(stats.kendalltau(p, m).statistic)


def _spearman(p: np.ndarray, m: np.ndarray) -> float:
    if np.ptp(p) == 0 or np.ptp(m) == 0:
        return 0.0
    return _finite(stats.spearmanr(p, m).statistic)


def _mse(p: np.ndarray, m: np.ndarray) -> float:
    return float(np.mean((p - m) ** 2))
