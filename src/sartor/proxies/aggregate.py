"""Rank aggregation of any set of proxies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from sartor.core.errors import BadInput


def aggregate(
    values: Mapping[str, ArrayLike], how: Literal["mean", "log"] = "log", weights: Mapping[str, float] | None = None
) -> NDArray[np.float64]:
    """One number per network from the ranks that every proxy gives it among all; larger is better.

    ``mean`` is the mean rank, ``log`` the mean of ``log(rank / networks)``, which punishes a network that any one
    proxy puts last. What is not finite ranks last; ties share their mean rank. `weights` default to one each.
    """
    columns = {name: np.asarray(v, np.float64) for name, v in values.items()}
    if not columns or len({c.shape for c in columns.values()}) != 1 or next(iter(columns.values())).ndim != 1:
        raise BadInput("aggregation needs at least one proxy, and as many values of each as there are networks.")
    total, weight = np.zeros(len(next(iter(columns.values())))), 0.0
    for name, column in columns.items():
        ranks = stats.rankdata(np.where(np.isfinite(column), column, -np.inf)) / len(column)
        w = 1.0 if weights is None else weights[name]
        total += w * (ranks if how == "mean" else np.log(ranks))
        weight += w
    return total / weight
