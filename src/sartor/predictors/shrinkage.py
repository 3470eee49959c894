"""Noisy contributions made better by what they have in common (empirical Bayes).

A measured contribution is the true one plus an error of known size. The true ones are not arbitrary:
squeeze-excitation helps in most blocks or in few, expansion 6 is worth alike in neighbouring places.
With a Gaussian prior whose covariance is a sum of such likenesses,

``K = sum_m tau_m^2 K_m``,  ``K_m[p, q] = 1`` where p and q share what m names (a level; a level and a stage; ...),

the variances tau are those under which the measurements are most likely, and the best estimate is the
posterior mean ``K (K + diag(errors^2))^-1 d``. Nothing is assumed about which likeness matters: where
the measurements show none its variance is zero, and where they are precise they stay what they are.

A second score of the same decisions, in whatever unit, can lend a hand (`shrink_with_hint`): the true contributions
are then ``beta h + u``, with h those of the second score and u a difference with a prior of its own, and beta, too, is
the most likely one. Many measurements of the first make up their own mind, few follow the second, and the errors say
how far the two may be apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

from sartor.core.arch import Choice, hub
from sartor.core.errors import BadInput
from sartor.core.quadratic import Array, Quadratic
from sartor.core.threads import on_one_thread
from sartor.insight.factors import Parse, factors, levels_of, place
from sartor.predictors.contributions import assemble

_LEAST = 1e-10  # variance of an error, in squares of the score's unit
_LOGS = (-14.0, 3.0)  # of the kernels' variances


@on_one_thread
def shrink_score(score: Quadratic, choices: Sequence[Choice], parse: Parse = factors) -> Quadratic:
    """The posterior mean of a score of contributions, with the posterior's standard deviations as errors."""
    value, error = contributions_of(score, choices)
    scale = _scale(value)
    noise = np.diag((error / scale) ** 2 + _LEAST)
    kernels = likenesses(choices, parse)
    prior = _mixed(_variances(value / scale, noise, kernels), kernels)
    mean, spread = _posterior(prior, noise, value / scale, len(value))
    return _with_contributions(score, choices, scale * mean, scale * spread)


@on_one_thread
def guess(
    value: Array, error: Array, seen: NDArray[np.bool_], choices: Sequence[Choice], parse: Parse = factors
) -> tuple[Array, Array]:
    """Contributions and errors with those of options that no measurement has `seen` put in; the others stay.

    An unseen option is worth what options like it are, as far as the seen ones show that likeness matters. Its error
    is the posterior's, and as much again as such guesses of the seen options, each left out in turn, would be off: the
    most likely prior is too sure of itself.
    """
    kernels, scale = likenesses(choices, parse), _scale(value[seen])
    known, noise = value[seen] / scale, np.diag((error[seen] / scale) ** 2 + _LEAST)
    among = np.ascontiguousarray(kernels[:, seen][:, :, seen])
    prior = _mixed(_variances(known, noise, among), kernels)
    cross = prior[np.ix_(~seen, seen)]
    inverse = cho_solve(cho_factor(prior[np.ix_(seen, seen)] + noise), np.eye(len(known)))
    left_out = (inverse @ known) / np.diag(inverse)
    value, error = value.copy(), error.copy()
    value[~seen] = scale * (cross @ inverse @ known)
    spread = np.diag(prior)[~seen] - ((cross @ inverse) * cross).sum(1)
    error[~seen] = scale * np.sqrt(np.maximum(spread, 0.0) + np.mean(left_out**2))
    return value, error


@on_one_thread
def shrink_with_hint(
    score: Quadratic, hint: Quadratic, correlation: float, choices: Sequence[Choice], parse: Parse = factors
) -> Quadratic:
    """The same for a score that may follow `hint`; `correlation` is that of their errors."""
    (value, error), (other, spread) = (contributions_of(s, choices) for s in (score, hint))
    scale, unit, count = _scale(value), _scale(other), len(value)
    error, spread = error / scale, spread / unit
    both = np.diag(correlation * error * spread)
    noise = np.block([[np.diag(error**2 + _LEAST), both], [both, np.diag(spread**2 + _LEAST)]])
    values, kernels = np.concatenate([value / scale, other / unit]), likenesses(choices, parse)
    halves = (slice(count), slice(count, None))
    alone = [_mixed(_variances(values[p], noise[p, p], kernels), kernels) for p in halves]
    # The most likely prior ranks best, but its deviations, which take it for certain, are a fifth or more too small.
    means, _ = _posterior(_prior_with_hint(values, noise, *alone, caution=0.0), noise, values, count)
    _, spreads = _posterior(_prior_with_hint(values, noise, *alone, caution=0.5), noise, values, count)
    return _with_contributions(score, choices, scale * means, scale * spreads)


def _posterior(prior: Array, noise: Array, values: Array, count: int) -> tuple[Array, Array]:
    """Means and standard deviations of the first `count` contributions."""
    wanted = prior[:count]
    weights = cho_solve(cho_factor(prior + noise), wanted.T)
    return weights.T @ values, np.sqrt(np.maximum(np.diag(wanted[:, :count] - wanted @ weights), 0.0))


def _with_contributions(score: Quadratic, choices: Sequence[Choice], mean: Array, spread: Array) -> Quadratic:
    """The score with other contributions and errors."""
    new = assemble(choices, score.sizes, score.constant, mean)
    level = score.errors.constant if score.errors is not None else 0.0
    errors = assemble(choices, score.sizes, level, spread)
    return Quadratic(score.sizes, new.constant, new.linear, new.pairs, errors=errors)


def _scale(value: Array) -> float:
    return float(np.sqrt(np.mean(value**2))) or 1.0


def contributions_of(score: Quadratic, choices: Sequence[Choice]) -> tuple[Array, Array]:
    """All contributions and their errors, choice by choice, as `contributions.assemble` takes them."""
    if score.errors is None:
        raise BadInput("shrinking needs a score with standard errors.")
    values, errors = [], []
    for i, choice in enumerate(choices):
        needed = hub(choices, i)
        if needed is None:
            pair = score.linear.get(i), score.errors.linear.get(i)
        else:
            other, active = needed
            key, flip = ((other, i), False) if other < i else ((i, other), True)
            tables = [form.pairs.get(key) for form in (score, score.errors)]
            rows = [None if t is None else (t.T if flip else t)[active[0]] for t in tables]
            pair = rows[0], rows[1]
        if pair[0] is None or pair[1] is None:
            raise BadInput(f"shrinking needs a contribution, with its error, for every option of {choice.name}.")
        values.append(pair[0])
        errors.append(pair[1])
    found, spread = np.concatenate(values), np.concatenate(errors)
    assembled = assemble(choices, score.sizes, score.constant, found)
    same = assembled.pairs.keys() == score.pairs.keys() and not score.cases
    same = same and all((assembled.pairs[k] == t).all() for k, t in score.pairs.items())
    if not same or assembled.linear.keys() != score.linear.keys():
        raise BadInput(
            "shrinking needs a score of contributions: one number per option, due while its choice is active."
        )
    return found, spread


def likenesses(choices: Sequence[Choice], parse: Parse = factors) -> Array:
    """Matrices of ones where two options share a level: anywhere, in a group, in a position, in the same choice."""
    owner = np.repeat(np.arange(len(choices)), [len(c.options) for c in choices])
    group, position = (np.array([place(choices[int(i)])[k] for i in owner]) for k in (0, 1))
    named = [levels_of(choice, parse) for choice in choices]
    found = [np.eye(len(owner)), (owner[:, None] == owner).astype(float)]
    for factor in sorted({f for levels in named for f in levels}):
        level = np.full(len(owner), "", dtype=object)
        for i, levels in enumerate(named):
            for label, options in levels.get(factor, {}).items():
                level[np.flatnonzero(owner == i)[list(options)]] = label
        alike = (level[:, None] == level) & (level != "")
        for where in (np.zeros(len(owner)), group, position, owner):
            found.append((alike & (where[:, None] == where)).astype(float))
    return np.stack(list({kernel.tobytes(): kernel for kernel in found}.values()))


def _mixed(variances: Array, kernels: Array) -> Array:
    return np.asarray(np.tensordot(variances, kernels, 1))


def _variances(value: Array, noise: Array, kernels: Array) -> Array:
    """The kernels' variances of greatest marginal likelihood; `value` is scaled to a mean square of one."""
    many, flat = len(kernels), kernels.reshape(len(kernels), -1)

    def misfit(logs: Array) -> tuple[float, Array]:
        height, slope = unlikeliness(value, _mixed(np.exp(logs), kernels) + noise)
        return height, np.exp(logs) * (flat @ slope.ravel())

    return np.exp(lowest(misfit, np.full(many, np.log(1.0 / many)), [_LOGS] * many))


def _prior_with_hint(values: Array, noise: Array, own: Array, hint: Array, *, caution: float) -> Array:
    """The same for two scores, the first ``beta h + u``: the covariance of the true contributions of both.

    `own` and `hint` are the priors that suit each of them alone. h has the second's; u is in part like h, in part
    as the first score would have it, and in part everyone's own: ``nu_1 hint + nu_2 own + nu_3 I``. More freedom would
    fit errors. `caution` is the power of every nu by which the likelihood is multiplied: above 0 none vanishes.
    """
    half = len(hint)
    parts = np.stack([hint, own, np.eye(half)])
    flat, many = parts.reshape(len(parts), -1), len(parts)

    def covariance(at: Array) -> Array:
        beta, u = at[-1], np.tensordot(np.exp(at[:-1]), parts, 1)
        return np.block([[beta**2 * hint + u, beta * hint], [beta * hint, hint]])

    def misfit(at: Array) -> tuple[float, Array]:
        height, slope = unlikeliness(values, covariance(at) + noise)
        first, cross = slope[:half, :half].ravel(), slope[:half, half:]
        of_u = np.exp(at[:-1]) * (flat @ first) - caution
        of_beta = 2 * at[-1] * (flat[0] @ first) + 2 * np.sum(cross * hint)
        return height - caution * float(at[:-1].sum()), np.array([*of_u, of_beta])

    start = np.array([np.log(0.1)] * many + [1.0])  # both scores come with a mean square of one
    return covariance(lowest(misfit, start, [_LOGS] * many + [(0.0, 3.0)]))


def lowest(misfit: Any, start: Array, bounds: list[tuple[float, float]]) -> Array:
    """Where the misfit is least; beyond a thousandth of a unit of log-likelihood nothing changes any more."""
    options = {"ftol": 1e-6, "maxiter": 300}
    return np.asarray(minimize(misfit, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x)


def unlikeliness(value: Array, covariance: Array) -> tuple[float, Array]:
    """Minus the logarithm of a normal density, and its derivative by the covariance."""
    factor, lower = cho_factor(covariance, lower=True)
    half, _ = dpotri(factor, lower=lower)
    inverse = np.tril(half) + np.tril(half, -1).T
    alpha = inverse @ value
    height = float(np.log(np.diag(factor)).sum() + 0.5 * value @ alpha)
    return height, 0.5 * (inverse - np.outer(alpha, alpha))
