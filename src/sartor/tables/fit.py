"""Bring your own tables: a score from measured networks, its frontier against prices, and a check of its ranking.

For people who have measured networks and a latency table from another supernet. The functions take
paths or what the readers of `sartor.tables.files` return, and never import torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.stats import norm, rankdata

from sartor.core.arch import Choice
from sartor.core.errors import BadInput, Infeasible, SolverError
from sartor.core.quadratic import Array, Limit, Quadratic
from sartor.core.registry import PREDICTORS
from sartor.core.seeds import checked
from sartor.core.threads import on_one_thread
from sartor.core.units import parse, show
from sartor.insight.ranking import quality
from sartor.predictors.base import Predictor
from sartor.solvers.base import Frontier, NotSeparable, Problem
from sartor.solvers.frontier import frontier
from sartor.solvers.milp import Milp, cheapest
from sartor.solvers.pareto import pareto
from sartor.tables.files import (
    Cost,
    Samples,
    Score,
    choices_from,
    is_unit,
    read_cost,
    read_samples,
    read_score,
    read_space,
    units,
)

__all__ = [
    "Cost", "Points", "Samples", "Score", "check_tables", "choices_from", "fit_tables", "frontier_tables",
    "limits_from", "read_cost", "read_samples", "read_score", "read_space",
]  # fmt: skip

FOLDS = 5
LEAST = 20  # networks, however small the space: below that nothing can be held out
SWEEP = 24  # budgets tried where the complete frontier is out of reach
SECONDS = 10.0  # for each of them
MANY = 2000  # networks from which on fewer resamples do


@on_one_thread
def fit_tables(
    choices: Sequence[Choice],
    samples: Samples,
    *,
    predictor: str | Predictor = "auto",
    scale: str = "auto",
    unit: str = "",
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> Score:
    """Fit a score to measured networks.

    `scale` is ``value``, the target as it is, or ``rank``, its normal scores: a few networks that
    failed to train then do not outweigh all the others. ``auto`` takes the predictor and the scale
    with the best Kendall correlation on held-out samples, over five folds; what was tried is in the
    score's facts. `predictor` is a name, ``package.module:Class``, or a `Predictor`; `options` are its fields, such as
    ``{"inactive": True}``. A target with a unit of
    time, size or count is a cost, and stays as it is. Options that no sample has are ``unseen`` in the facts: they are
    guessed from those like them, by `linear` with wide errors.
    """
    if predictor == "auto":
        if options:
            raise BadInput(f"options ({', '.join(options)}) are those of one predictor: name it instead of auto.")
        names = dict.fromkeys(("linear", *PREDICTORS.names()))  # the simplest first: it wins a tie
        offered = {name: made for name in names if (made := PREDICTORS.make(name)).suits(choices)}
    else:
        offered = {PREDICTORS.reference(predictor): PREDICTORS.make(predictor, options)}
    checked(seed)
    if unit and unit != "%" and not is_unit(unit):
        raise BadInput(f"the unit must be one of {units()}, % or empty, but is {unit!r}.")
    if scale not in ("auto", "value", "rank"):
        raise BadInput(f"scale must be auto, value or rank, but got {scale!r}.")
    unseen = _unseen(choices, samples)
    scales = [scale] if scale != "auto" else ["value"] if is_unit(unit) else ["value", "rank"]
    tried = {(name, how): _held_out(offered[name], how, choices, samples, seed) for how in scales for name in offered}
    found = {f"{name}, {how}": _quality(p, samples.values, seed, 200) for (name, how), p in tried.items()}
    name, how = max(tried, key=lambda key: found[f"{key[0]}, {key[1]}"]["kendall"]["value"])
    goal = samples.values if how == "value" else _normal_scores(samples.values)
    form = offered[name].fit(samples.picks, goal, choices, np.random.default_rng(seed))
    if not isinstance(form, Quadratic):
        raise BadInput(f"a score must be a Quadratic, but the predictor {name} returned a {type(form).__name__}.")
    facts = {
        "predictor": name,
        "fitted_to": how,
        "samples": len(samples),
        "seed": seed,
        "unseen": unseen,
        "held_out": found,
    } | ({"options": dict(options)} if options else {})
    back = None if how == "value" else _back(tried[name, how], samples.values)
    return Score(form, samples.target, unit, facts, back)


def _normal_scores(values: Array) -> Array:
    return np.asarray(norm.ppf((rankdata(values) - 0.5) / len(values)), np.float64)


def _back(predicted: Array, measured: Array) -> tuple[Array, Array]:
    """The increasing function from held-out scores to measured values that fits best, at no more than 100 knots."""
    order = np.argsort(predicted, kind="stable")
    values = np.asarray(isotonic_regression(measured[order]).x, np.float64)
    keep = np.unique(np.linspace(0, len(order) - 1, 100).round().astype(int))
    return predicted[order][keep], values[keep]


def _unseen(choices: Sequence[Choice], samples: Samples) -> list[str]:
    """The options that no sample has; raises BadInput where there is not a sample for each coefficient of the rest."""
    need, unseen = 1, []
    for i, choice in enumerate(choices):
        runs = np.ones(len(samples), bool)
        for other, allowed in choice.needs:
            runs &= np.isin(samples.picks[:, other], allowed)
        seen = set(samples.picks[runs, i].tolist())
        need += max(0, len(seen) - 1)
        unseen += [f"{choice.name} = {label}" for a, label in enumerate(choice.options) if a not in seen]
    if len(samples) < max(need, LEAST):
        raise BadInput(
            f"{len(samples)} different networks are too few: this space needs at least {max(need, LEAST)}, "
            "and a few times as many for a good ranking."
        )
    return unseen


def _held_out(predictor: Predictor, scale: str, choices: Sequence[Choice], samples: Samples, seed: int) -> Array:
    """Scores of samples that the predictor did not see when it was fitted."""
    rng = np.random.default_rng(seed)
    goal = samples.values if scale == "value" else _normal_scores(samples.values)
    predicted = np.zeros(len(samples))
    for part in np.array_split(rng.permutation(len(samples)), FOLDS):
        rest = np.setdiff1d(np.arange(len(samples)), part)
        predicted[part] = predictor.fit(samples.picks[rest], goal[rest], choices, rng).batch(samples.picks[part])
    return predicted


def _quality(predicted: Array, measured: Array, seed: int, resamples: int = 1000) -> dict[str, Any]:
    """With intervals; of a score fitted to ranks, the squared error is that of its own scale and says nothing."""
    return quality(predicted, measured, np.random.default_rng(seed), 200 if len(measured) > MANY else resamples)


def check_tables(choices: Sequence[Choice], score: Score, samples: Samples, *, seed: int = 0) -> dict[str, Any]:
    """Kendall, Spearman and mean squared error of the score on other measured networks, with 95 % intervals."""
    if len(samples) < 3:
        raise BadInput(f"a ranking needs at least 3 different networks, but there are {len(samples)}.")
    checked(seed)
    ranks = _quality(score.form.batch(samples.picks), samples.values, seed)
    errors = _quality(score.values(samples.picks), samples.values, seed) if score.scale is not None else ranks
    return {"target": samples.target, **ranks, "mse": errors["mse"]}


@dataclass(frozen=True, eq=False)
class Points:
    """A frontier against one cost; `complete` says that it is all of it, and proven.

    `impossible` networks are left out: their cost adds up to less than nothing, so it is not known.
    """

    front: Frontier
    axis: str
    complete: bool
    impossible: int = 0

    @property
    def said(self) -> str:
        """How much of the frontier this is, for people."""
        if self.impossible:
            return f"{self.impossible} left out: their {self.axis} comes to less than zero, so it is wrong about them"
        return "all of them, proven" if self.complete else "the best at evenly spaced budgets"

    def to_json(self, choices: Sequence[Choice], score: Score, costs: Mapping[str, Cost]) -> dict[str, Any]:
        """Every network by name: score, prediction in the target's unit, all costs (in ms, ones, bytes)."""
        predicted = score.values(self.front.picks)
        values = {name: cost.form.batch(self.front.picks) for name, cost in costs.items()}
        points = [
            {
                "score": float(self.front.score[n]),
                "predicted": float(predicted[n]),
                "costs": {name: float(v[n]) for name, v in values.items()},
                "arch": self.front.arch(n).named(choices),
            }
            for n in range(len(self.front))
        ]
        kinds = {name: cost.kind for name, cost in costs.items()}
        return {"target": score.target, "axis": self.axis, "kinds": kinds, "complete": self.complete, "points": points}


def limits_from(texts: Sequence[str], costs: Mapping[str, Cost]) -> dict[str, float]:
    """Limits such as ``params=4M``; each must have a cost of its name, whose kind says how to read it."""
    limits = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(f"a limit must be written as name=value, such as params=4M, but got {text!r}.")
        if name not in costs:
            raise BadInput(f"the limit {text!r} needs prices: add --cost {name}=FILE.")
        limits[name] = parse(value, costs[name].kind, f"the limit on {name}")
    return limits


def frontier_tables(
    choices: Sequence[Choice], score: Score, costs: Mapping[str, Cost], limits: Mapping[str, float] | None = None
) -> Points:
    """Every best trade-off of the score against the first cost without a limit (or the first of all).

    All of them, exactly, where the choices allow it; otherwise the proven best networks at a few
    dozen budgets. Raises Infeasible where no network meets the limits.
    """
    if not costs:
        raise BadInput("a frontier needs at least one cost.")
    limits = limits or {}
    axis = next((name for name in costs if name not in limits), next(iter(costs)))
    rules = tuple(Limit(name, costs[name].form, high) for name, high in limits.items())
    others = tuple(rule for rule in rules if rule.name != axis)
    try:
        front, complete = frontier(score.form, costs[axis].form, others), True
    except NotSeparable:
        front, complete = _sweep(score, costs[axis], others), False
    impossible = int((front.cost < 0).sum())
    if impossible == len(front) > 0:
        raise BadInput(f"{axis} comes to less than zero for every best network. Correct its prices or measure more.")
    keep = (front.cost >= 0) & (front.cost <= limits.get(axis, math.inf))
    front = Frontier(front.cost[keep], front.score[keep], front.picks[keep])
    if not len(front):
        _say_why(choices, costs, rules)
    return Points(front, axis, complete and not impossible, impossible)


def _sweep(score: Score, cost: Cost, rules: tuple[Limit, ...]) -> Frontier:
    """The best networks at evenly spaced budgets, by HiGHS."""
    milp = Milp(time_limit=SECONDS)
    low = cheapest(cost.form, rules, milp)
    top = milp.solve(Problem(score.form, rules))
    found = [low.arch, top.arch]
    for budget in np.linspace(low.value, cost.form(top.arch), SWEEP)[1:-1]:
        try:
            found.append(milp.solve(Problem(score.form, (Limit(cost.name, cost.form, float(budget)), *rules))).arch)
        except (SolverError, Infeasible):
            continue  # out of time, or out by rounding: one point less
    picks = np.unique(np.array([a.picks for a in found], np.int64), axis=0)
    costs, scores = cost.form.batch(picks), score.form.batch(picks)
    keep = pareto(costs, scores)
    return Frontier(costs[keep], scores[keep], picks[keep])


def _say_why(choices: Sequence[Choice], costs: Mapping[str, Cost], rules: Sequence[Limit]) -> None:
    for rule in rules:
        least = cheapest(rule.form)
        if least.value > rule.high:
            kind = costs[rule.name].kind
            raise Infeasible(
                f"{rule.name} <= {show(rule.high, kind)} cannot be met: the least any network of this space needs is "
                f"{show(least.value, kind)}.",
                limit=rule.name, asked=rule.high, least=least.value,
            )  # fmt: skip
    raise Infeasible(
        f"no network of this space meets {' and '.join(r.name for r in rules)} together. Relax one of them."
    )


def open_costs(texts: Sequence[str], choices: Sequence[Choice]) -> dict[str, Cost]:
    """Costs given as ``latency=lut.json``."""
    costs = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise BadInput(f"a cost must be given as name=FILE, such as latency=lut.json, but got {text!r}.")
        costs[name] = read_cost(Path(path), choices, name)
    return costs
