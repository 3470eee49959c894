"""A score from a few dozen trained networks: Bayesian regression in which options that are alike are worth alike.

Network n of rung r measured ``y_n = mu_r + s_r (z_n . w + delta_n + noise) + luck``: `z_n` is the one-hot vector of
its active options, `w` what each adds, `delta_n` what is special about this very network, `luck` what is known not to
be, and every rung has a level and a spread of its own: what differs by ten points after an epoch differs by one after
twenty, and so does noise. The last rung's spread is 1, so that the score is in its units. The prior of w is Gaussian
with covariance ``K = sum_m tau_m^2 K_m``, one K_m for every likeness of options (the same family anywhere, the same
width in the same stage, a common trend with the logarithm of a width, ...), as in `shrinkage`. All variances are those
under which the measurements are most likely, so that the trials say themselves which likenesses matter, and how the
rungs spread; with fewer measurements than options that is what makes a fit possible at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve

from sartor.core.arch import Choice, hub
from sartor.core.quadratic import Array, Quadratic
from sartor.core.threads import on_one_thread
from sartor.insight.factors import Parse, factors, levels_of, number
from sartor.predictors.base import Index, check_samples
from sartor.predictors.contributions import assemble
from sartor.predictors.shrinkage import likenesses, lowest, unlikeliness

_LOGS = (-12.0, 3.0)  # of all variances, in units of the measurements' own
_LEVEL = 1e3  # variance of a rung's level: as good as unknown
_SPREAD = 1.0  # standard deviation of the logarithm of a rung's spread, before anything is measured
_CAUTION = 1.0  # weight of the prior on a variance, which keeps few measurements from explaining luck


@final
@dataclass(frozen=True, eq=False)
class Fit:
    """What the trials taught: the score with its errors, and the value of every network that was tried."""

    score: Quadratic
    values: Array  # of the tried networks, at the last rung's level, with what is special about each
    left_out: Array  # what the fit to all other trials predicts of each
    _mean: Array
    _root: Array
    _choices: tuple[Choice, ...]

    def draw(self, rng: np.random.Generator) -> Quadratic:
        """A score from the posterior: its optimum may be the true one (Thompson sampling)."""
        w = self._mean + self._root @ rng.standard_normal(len(self._mean))
        return assemble(self._choices, self.score.sizes, self.score.constant, w)


@on_one_thread
def fit_trials(
    picks: ArrayLike, targets: ArrayLike, rungs: ArrayLike, choices: Sequence[Choice], parse: Parse = factors,
    luck: ArrayLike = 0.0,
) -> Fit:  # fmt: skip
    """Fit the score to measured networks; rows of one architecture share what is special about it.

    `luck` is the variance that each measurement is known to have at least: without it a few are explained to the last
    digit, and networks that nobody tried are promised wonders.
    """
    index, y, sizes = check_samples(picks, targets, choices, least=1)
    rung = np.asarray(rungs, np.int64)
    z, kernels = _one_hot(index, choices), np.concatenate([likenesses(choices, parse), trends(choices, parse)])
    scale, middle = float(np.std(y)) or 1.0, float(np.mean(y))
    same = (index[:, None] == index[None]).all(-1).astype(float)
    parts = [z @ k @ z.T for k in kernels] + [same, np.eye(len(y))]
    known = np.broadcast_to(np.asarray(luck, float), y.shape) / scale**2
    level = _LEVEL * (rung[:, None] == rung[None]) + np.diag(known)
    variances, spreads = _variances(np.stack(parts), level, (y - middle) / scale, rung)
    covariance = np.tensordot(variances, np.stack(parts), 1) * np.outer(spreads, spreads) + level
    prior, special = np.tensordot(variances[: len(kernels)], kernels, 1), variances[len(kernels)]
    inverse = cho_solve(cho_factor(covariance), np.eye(len(y)))
    weights = inverse @ ((y - middle) / scale)
    cross = prior @ z.T * spreads
    mean, spread = cross @ weights, prior - cross @ inverse @ cross.T
    last = (rung == rung.max()).astype(float)
    constant = middle + scale * _LEVEL * float(last @ weights)
    luck = scale * float(np.sqrt(special))  # what may be special about a network that was not tried
    errors = assemble(choices, sizes, luck, scale * np.sqrt(np.maximum(np.diag(spread), 0.0)))
    score = assemble(choices, sizes, constant, scale * mean)
    values = constant + scale * (z @ mean + special * (same @ (spreads * weights)))
    values_root, vectors = np.linalg.eigh((spread + spread.T) / 2)
    root = scale * vectors * np.sqrt(np.maximum(values_root, 0.0))
    return Fit(
        Quadratic(sizes, score.constant, score.linear, score.pairs, errors=errors),
        values, y - scale * weights / np.diag(inverse), scale * mean, root, tuple(choices),
    )  # fmt: skip


def trends(choices: Sequence[Choice], parse: Parse = factors) -> Array:
    """Likeness along a number: options with neighbouring widths or depths differ little, the same way in all places."""
    owner = np.repeat(np.arange(len(choices)), [len(c.options) for c in choices])
    named = [levels_of(choice, parse) for choice in choices]
    found = []
    for factor in sorted({f for levels in named for f in levels}):
        at = np.full(len(owner), np.nan)
        for i, levels in enumerate(named):
            for label, options in levels.get(factor, {}).items():
                at[np.flatnonzero(owner == i)[list(options)]] = number(label)
        known = np.isfinite(at) & (at > 0)
        if len(np.unique(at[known])) > 2:
            line = np.where(known, np.log(np.where(known, at, 1.0)), 0.0)
            for i in np.unique(owner[known]):  # the level of a choice is not the trend's affair
                mine = known & (owner == i)
                line[mine] -= line[mine].mean()
            found += [np.outer(line, line), np.outer(line, line) * (owner[:, None] == owner)]
    return np.stack(found) if found else np.zeros((0, len(owner), len(owner)))


def _one_hot(index: Index, choices: Sequence[Choice]) -> Array:
    """(n, options) zeros and ones; an inactive choice has none."""
    blocks = []
    for i, choice in enumerate(choices):
        block, needed = np.eye(len(choice.options))[index[:, i]], hub(choices, i)
        blocks.append(block if needed is None else block * np.isin(index[:, needed[0]], needed[1])[:, None])
    return np.concatenate(blocks, 1)


def _variances(parts: Array, level: Array, y: Array, rung: Index) -> tuple[Array, Array]:
    """The most likely variance of every part, a little below it, and the spread of every measurement's rung.

    Each variance has an exponential prior.
    """
    flat, rungs = parts.reshape(len(parts), -1), np.unique(rung)
    size = np.maximum(np.trace(parts, axis1=1, axis2=2) / len(y), 1e-9)  # the variance that a unit of each explains
    of = (rung[:, None] == rungs[:-1]).astype(float)

    def height(logs: Array) -> tuple[float, Array]:
        amount, wide = np.exp(logs[: len(parts)]), logs[len(parts) :]
        spreads = np.exp(of @ wide)
        both = np.outer(spreads, spreads)
        spread = np.tensordot(amount / size, parts, 1) * both
        value, slope = unlikeliness(y, spread + level)
        value += _CAUTION * float(amount.sum()) + float(wide @ wide) / (2 * _SPREAD**2)
        by_amount = amount * (flat @ (slope * both).ravel() / size + _CAUTION)
        return value, np.concatenate([by_amount, 2 * of.T @ (slope * spread).sum(1) + wide / _SPREAD**2])

    start = np.concatenate([np.full(len(parts), np.log(0.5 / len(parts))), np.zeros(len(rungs) - 1)])
    bounds = [_LOGS] * len(parts) + [(-_LOGS[1], _LOGS[1])] * (len(rungs) - 1)
    found = lowest(height, start, bounds)
    return np.exp(found[: len(parts)]) / size, np.exp(of @ found[len(parts) :])
