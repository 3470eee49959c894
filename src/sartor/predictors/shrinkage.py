"""Noisy contributions made better by what they have in common (empirical Bayes).

A measured contribution is the true one plus an error of known size. The true ones are not arbitrary:
squeeze-excitation helps in most blocks or in few, expansion 6 is worth alike in neighbouring places.
With a Gaussian prior whose covariance is a sum of such likenesses,

``K = sum_m tau_m^2 K_m``,  ``K_m[p, q] = 1`` where p and q share what m names (a level; a level and a stage; ...),

the variances tau are those under which the measurements are most likely, and the best estimate is the
posterior mean ``K (K + diag(errors^2))^-1 d``. Nothing is assumed about which likeness matters: where
the measurements show none its variance is zero, and where they are precise they stay what they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from sartor.arch import Choice
from sartor.errors import BadInput
from sartor.factors import Parse, factors, levels_of, place
from sartor.predictors._features import hub
from sartor.predictors.contributions import assemble
from sartor.quadratic import Array, Quadratic


def shrunk(score: Quadratic, choices: Sequence[Choice], parse: Parse = factors) -> Quadratic:
    """The posterior mean of a score of contributions, with the posterior's standard deviations as errors."""
    value, error = contributions_of(score, choices)
    scale = float(np.sqrt(np.mean(value**2))) or 1.0
    kernels = likenesses(choices, parse)
    noise = (error / scale) ** 2 + 1e-10
    prior = _prior(value / scale, noise, kernels)
    weights = cho_solve(cho_factor(prior + np.diag(noise)), prior)
    mean = scale * (weights.T @ (value / scale))
    spread = scale * np.sqrt(np.maximum(np.diag(prior - prior @ weights), 0.0))
    sizes = score.sizes
    new = assemble(choices, sizes, score.constant, mean)
    level = score.errors.constant if score.errors is not None else 0.0
    return Quadratic(sizes, new.constant, new.linear, new.pairs, errors=assemble(choices, sizes, level, spread))


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
    again = assemble(choices, score.sizes, score.constant, found)
    same = again.pairs.keys() == score.pairs.keys() and all((again.pairs[k] == t).all() for k, t in score.pairs.items())
    if not same or again.linear.keys() != score.linear.keys():
        raise BadInput(
            "shrinking needs a score of contributions: one number an option, due while its choice is active."
        )
    return found, spread


def likenesses(choices: Sequence[Choice], parse: Parse = factors) -> list[Array]:
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
    return list({kernel.tobytes(): kernel for kernel in found}.values())


def _prior(value: Array, noise: Array, kernels: Sequence[Array]) -> Array:
    """The covariance of greatest marginal likelihood; `value` is scaled to a mean square of one."""
    stack = np.stack(kernels)

    def misfit(logs: Array) -> tuple[float, Array]:
        tau = np.exp(logs)
        factor = cho_factor(np.tensordot(tau, stack, 1) + np.diag(noise), lower=True)
        alpha = cho_solve(factor, value)
        inverse = cho_solve(factor, np.eye(len(value)))
        gradient = np.einsum("ij,mij->m", inverse, stack) - np.einsum("i,mij,j->m", alpha, stack, alpha)
        return float(np.log(np.diag(factor[0])).sum() + 0.5 * value @ alpha), 0.5 * tau * gradient

    start = np.full(len(stack), np.log(1.0 / len(stack)))
    best = minimize(misfit, start, jac=True, method="L-BFGS-B", bounds=[(-14.0, 3.0)] * len(stack))
    return np.tensordot(np.exp(best.x), stack, 1)
