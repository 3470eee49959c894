"""Why: what each design decision adds to the score and what it costs (BINAS, section 4.2.2 and appendix J).

The worth of a decision is a contrast: the mean score with one level of a factor (kernel 5) less the
mean with another (kernel 3), every other choice uniformly random and the choice itself active. It is
a weighted sum of the score's coefficients, so that its standard error follows from theirs, and the
same weights on a cost's coefficients give its price. Averaged over the choices of a group ("stage3"
of "stage3.block2") or over one position in all groups ("block2") they are appendix J's averages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from sartor.core.arch import Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Array, Quadratic
from sartor.insight.factors import Parse, factors, levels_of, number, place
from sartor.solvers.base import Frontier

SURE = 1.959964  # half the width of a 95 % interval, in standard errors


@dataclass(frozen=True, slots=True)
class Contrast:
    """Going from one level of a factor to another at one choice: the options of either level."""

    choice: int
    factor: str
    start: str
    end: str
    low: tuple[int, ...]
    high: tuple[int, ...]


def contrasts(choices: Sequence[Choice], parse: Parse = factors) -> list[Contrast]:
    """Every step between neighbouring levels of every factor of every choice.

    Numbers step from each to the next ("depth" 2 -> 3 -> 4), marks from off to on; options that are
    neither are compared with all the others of their choice.
    """
    found = []
    for i, choice in enumerate(choices):
        for factor, levels in levels_of(choice, parse).items():
            ordered = sorted(levels, key=lambda level: (level != "off", number(level)))
            if all(math.isfinite(number(level)) for level in ordered) or set(ordered) == {"off", "on"}:
                steps = [Contrast(i, factor, a, b, levels[a], levels[b]) for a, b in pairwise(ordered)]
            else:
                rest = {a: tuple(o for b in levels if b != a for o in levels[b]) for a in levels}
                steps = [Contrast(i, factor, "others", a, rest[a], levels[a]) for a in levels if rest[a]]
            found += steps
    return found


Functional = list[tuple[float, list[Array]]]  # factors and independent distributions over every choice's options


def _functional(choices: Sequence[Choice], step: Contrast, share: float = 1.0) -> Functional:
    ends = []
    for sign, options in ((share, step.high), (-share, step.low)):
        point = [np.full(len(c.options), 1.0 / len(c.options)) for c in choices]
        for other, active in choices[step.choice].needs:
            point[other] = np.isin(np.arange(len(point[other])), active) / len(active)
        point[step.choice] = np.isin(np.arange(len(point[step.choice])), options) / len(options)
        ends.append((sign, point))
    return ends


class _Measured:
    """A quadratic as independent numbers with errors.

    A block's contribution stands in its pair table once for every depth that runs it: that is one
    number, measured once, and must not be averaged as if it were several.
    """

    def __init__(self, form: Quadratic, choices: Sequence[Choice]) -> None:
        self.form, self.known = form, form.errors is not None
        self.columns: dict[tuple[int, ...], np.ndarray[Any, np.dtype[np.int64]]] = {}
        values: list[Array] = []
        variances: list[Array] = []
        count = 0
        terms: dict[tuple[int, ...], Array] = {(i,): v for i, v in form.linear.items()}
        terms.update({(i, j): t for (i, j), t in form.pairs.items()})
        for key, table in terms.items():
            error = _errors(form, key, table)
            rows = _shared(choices, key, table, error)
            if rows is None:
                self.columns[key] = count + np.arange(table.size).reshape(table.shape)
            else:
                axis, active = rows
                width = table.shape[1 - axis]
                lines = np.full((table.shape[axis], width), -1)
                lines[list(active)] = count + np.arange(width)
                self.columns[key] = lines if axis == 0 else lines.T
                table, error = (np.moveaxis(t, axis, 0)[active[0]] for t in (table, error))
            values.append(table.ravel())
            variances.append(error.ravel() ** 2)
            count += table.size
        self.values = np.concatenate([*values, np.zeros(1)])  # the last, zero, is that of blocks the depth leaves out
        self.variances = np.concatenate([*variances, np.zeros(1)])
        self.columns = {key: np.where(at < 0, count, at) for key, at in self.columns.items()}
        # Every entry of every term is a product of two shares; the second one of a linear term is a one at the end.
        starts = np.cumsum([0, *form.sizes])
        first, second = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for key in self.columns:
            rows = starts[key[0]] + np.arange(form.sizes[key[0]])
            others = starts[[-1]] if len(key) == 1 else starts[key[1]] + np.arange(form.sizes[key[1]])
            first.append(np.repeat(rows, len(others)))
            second.append(np.tile(others, len(rows)))
        self.factors = np.concatenate(first), np.concatenate(second)
        self.at = np.concatenate([np.zeros(0, np.int64), *(c.ravel() for c in self.columns.values())])

    def __call__(self, functional: Functional) -> tuple[float, float | None]:
        """Value and standard error of the weighted sum."""
        weight = np.zeros(len(self.values))
        for share, point in functional:
            shares = np.concatenate([*point, np.ones(1)])
            weight += np.bincount(self.at, share * shares[self.factors[0]] * shares[self.factors[1]], len(weight))
        weight[-1] = 0.0
        error = float(np.sqrt(weight**2 @ self.variances)) if self.known else None
        return float(weight @ self.values), error


def _errors(form: Quadratic, key: tuple[int, ...], table: Array) -> Array:
    if form.errors is None:
        return np.zeros_like(table)
    if len(key) == 1:
        return form.errors.linear.get(key[0], np.zeros_like(table))
    return form.errors.pairs.get((key[0], key[1]), np.zeros_like(table))


def _shared(
    choices: Sequence[Choice], key: tuple[int, ...], table: Array, error: Array
) -> tuple[int, tuple[int, ...]] | None:
    """The hub's axis and its active options where the table holds one row of numbers, repeated."""
    if len(key) == 1:
        return None
    for axis, (one, other) in enumerate([(key[0], key[1]), (key[1], key[0])]):
        for active in (allowed for needed, allowed in choices[other].needs if needed == one):
            lines, spread = np.moveaxis(table, axis, 0), np.moveaxis(error, axis, 0)
            idle = np.setdiff1d(np.arange(len(lines)), active)
            same = (lines[list(active)] == lines[active[0]]).all() and (spread[list(active)] == spread[active[0]]).all()
            if same and not lines[idle].any():
                return axis, tuple(active)
    return None


@dataclass(frozen=True, eq=False)
class _Why:
    """What turns a functional into a line of the explanation."""

    score: _Measured
    costs: dict[str, _Measured] = field(default_factory=dict)

    def line(self, functional: Functional) -> dict[str, Any]:
        gain, error = self.score(functional)
        line: dict[str, Any] = {"gain": gain, "error": error, "low": None, "high": None}
        if error is not None:
            line |= {"low": gain - SURE * error, "high": gain + SURE * error}
        line["prices"] = {}
        for name, cost in self.costs.items():
            price, doubt = cost(functional)
            per, spread = None, None
            if abs(price) > 1e-12 * max(1.0, float(np.abs(cost.values).max())):
                per = gain / price
                if error is not None:
                    spread = math.hypot(error, per * (doubt or 0.0)) / abs(price)
            line["prices"][name] = {"price": price, "error": doubt, "gain_per_unit": per, "gain_per_unit_error": spread}
        return line


def explain(
    score: Quadratic,
    choices: Sequence[Choice],
    costs: Mapping[str, Quadratic],
    *,
    parse: Parse = factors,
    unit: str = "%",
    cost_units: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Contributions, prices and design rules, as numbers and strings only.

    ``decisions`` has every step at every choice; ``groups`` and ``positions`` their averages; ``trends``
    how a step's worth changes from group to group; ``rules`` say in words what is certain: only where
    the 95 % interval excludes zero, hence nothing where the score has no errors. Where prices depend on
    the frame, they are told around one architecture (`Quadratic.around`).
    """
    if any(form.cases for form in (score, *costs.values())):
        raise BadInput("what differs by frame is explained around an architecture: give form.around(arch).")
    why = _Why(_Measured(score, choices), {name: _Measured(form, choices) for name, form in costs.items()})
    units = {name: (cost_units or {}).get(name, "") for name in costs}
    steps = contrasts(choices, parse)
    names = [place(c) for c in choices]
    decisions = [
        {"choice": choices[s.choice].name, **_head(s), **why.line(_functional(choices, s))} for s in steps
    ]  # fmt: skip
    groups = _averages(why, choices, steps, [g for g, _ in names], "group")
    positions = _averages(why, choices, steps, [p for _, p in names], "position")
    trends = _trends(why, choices, steps, [g for g, _ in names])
    told = groups if any(p for _, p in names) else [{"group": d["choice"], **d} for d in decisions]
    rules = [_rule(line, unit, units) for line in told if _sure(line)]
    rules += [_trend_rule(line, unit) for line in trends if _sure(line)]
    return {
        "unit": unit,
        "cost_units": units,
        "errors_known": score.errors is not None,
        "decisions": decisions,
        "groups": groups,
        "positions": positions,
        "trends": trends,
        "rules": rules,
    }


def _head(step: Contrast) -> dict[str, str]:
    return {"factor": step.factor, "from": step.start, "to": step.end}


def _kinds(steps: Iterable[Contrast]) -> list[tuple[str, str, str]]:
    return list(dict.fromkeys((s.factor, s.start, s.end) for s in steps))


def _averages(
    why: _Why, choices: Sequence[Choice], steps: Sequence[Contrast], label: Sequence[str], noun: str
) -> list[dict[str, Any]]:
    """Appendix J: the mean of a step over all choices with one label."""
    lines = []
    for name in dict.fromkeys(label):
        for kind in _kinds(steps):
            mine = [s for s in steps if label[s.choice] == name and (s.factor, s.start, s.end) == kind]
            if mine and name:
                total = [part for s in mine for part in _functional(choices, s, 1.0 / len(mine))]
                lines.append({noun: name, **_head(mine[0]), "choices": len(mine), **why.line(total)})
    return lines


def _trends(
    why: _Why, choices: Sequence[Choice], steps: Sequence[Contrast], group: Sequence[str]
) -> list[dict[str, Any]]:
    """The slope of a step's worth over the groups' numbers (stage 1, 2, ...), by least squares."""
    lines = []
    for kind in _kinds(steps):
        mine = [s for s in steps if (s.factor, s.start, s.end) == kind]
        numbers = [re.search(r"(\d+)$", group[s.choice]) for s in mine]
        at = np.array([float(m.group(1)) for m in numbers if m is not None])
        stems = {re.sub(r"\d+$", "", group[s.choice]) for s in mine}
        if len(at) < len(mine) or len(set(at)) < 3 or len(stems) > 1:
            continue
        share = (at - at.mean()) / float(((at - at.mean()) ** 2).sum())
        total = [part for s, w in zip(mine, share, strict=True) for part in _functional(choices, s, float(w))]
        lines.append({"along": stems.pop(), **_head(mine[0]), **why.line(total)})
    return lines


def _sure(line: Mapping[str, Any]) -> bool:
    return line["low"] is not None and (line["low"] > 0 or line["high"] < 0)


def _doing(line: Mapping[str, Any]) -> str:
    if line["to"] == "on":
        return f"adding {line['factor']}"
    if line["from"] == "others":
        return f"taking {line['to']} instead of another option"
    return f"raising {line['factor']} from {line['from']} to {line['to']}"


def _rule(line: Mapping[str, Any], unit: str, units: Mapping[str, str]) -> str:
    verb = "adds" if line["gain"] > 0 else "loses"
    ends = sorted(abs(line[end]) for end in ("low", "high"))
    text = f"In {line['group']}, {_doing(line)} {verb} {abs(line['gain']):.3g} {unit} ({ends[0]:.3g} to {ends[1]:.3g})"
    for name, price in line["prices"].items():
        scale, of = _scale(price["price"], units[name])
        amount = f"{abs(price['price']) / scale:.3g} {of}{' of ' if units[name] else ' ' if of else ''}{name}"
        if price["gain_per_unit"] is None:
            text += f" at no cost in {name}"
        elif price["price"] < 0:
            text += f" and saves {amount}"
        else:
            per = f" ({price['gain_per_unit'] * scale:.3g} {unit} per {of or 'unit'})" if line["gain"] > 0 else ""
            text += f" for {amount}{per}"
    return text + "."


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Thousands, millions or milliards of counts and bytes, whichever suits; times stay as they are."""
    if unit in ("", "B"):
        for scale, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "K")):
            if abs(value) >= scale * 0.9995:
                return scale, prefix + unit
    return 1.0, unit


def _trend_rule(line: Mapping[str, Any], unit: str) -> str:
    more = "more" if line["gain"] > 0 else "less"
    what = _doing(line)
    return (
        f"{what[0].upper()}{what[1:]} is worth {more} in later {line['along'].rstrip('._- ')}s: "
        f"{line['gain']:+.3g} {unit} from each to the next ({line['low']:+.3g} to {line['high']:+.3g})."
    )


def shadow_prices(front: Frontier) -> list[dict[str, float]]:
    """What one more unit of budget buys along the frontier.

    ``step`` is the slope to the next network; ``price`` that of the frontier's concave envelope, the
    multiplier of the budget in the relaxed problem, which falls steadily as the budget grows.
    """
    hull: list[int] = []
    for n in range(len(front)):
        while len(hull) > 1 and _slope(front, hull[-2], hull[-1]) <= _slope(front, hull[-1], n):
            hull.pop()
        hull.append(n)
    lines = []
    for n in range(len(front) - 1):
        after = int(np.searchsorted(hull, n, side="right"))
        price = _slope(front, hull[after - 1], hull[after])
        lines.append(
            {
                "cost": float(front.cost[n]),
                "score": float(front.score[n]),
                "step": _slope(front, n, n + 1),
                "price": price,
            }
        )
    return lines


def _slope(front: Frontier, a: int, b: int) -> float:
    return float((front.score[b] - front.score[a]) / (front.cost[b] - front.cost[a]))
