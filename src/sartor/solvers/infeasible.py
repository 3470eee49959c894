"""Why nothing fits: messages that name the limit, what was asked and what can be had."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from sartor.core.errors import Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers.base import within

# The least value of a form while limits hold, or None where it is not known or nothing meets them.
Least = Callable[[Quadratic, Sequence[Limit]], float | None]


def cannot(side: Limit, reached: float) -> Infeasible:
    """One limit, which has one finite side, cannot be met on its own: the best any network does is `reached`."""
    upper = side.high < math.inf
    asked = side.high if upper else side.low
    digits = next((d for d in range(6, 17) if f"{asked:.{d}g}" != f"{reached:.{d}g}"), 17)
    best = "the least any network of this space needs is" if upper else "the most any network of this space reaches is"
    advice = "Raise the budget" if upper else "Lower the requirement"
    return Infeasible(
        f"{_asks(side, digits)} cannot be met: {best} {reached:.{digits}g}. {advice} or choose another space.",
        limit=side.name,
        asked=asked,
        least=reached,
    )


def contradiction(limits: Sequence[Limit], least: Least) -> Infeasible:
    """No architecture meets `limits`: name the one that is impossible alone, or say that they clash."""
    limits = [limit for limit in limits if _sides(limit)]
    sides = [side for limit in limits for side in _sides(limit)]
    for side in sides:
        reached = _reached(side, (), least)
        if reached is not None and not _meets(side, reached):
            return cannot(side, reached)
    have = []
    for n, side in enumerate(sides):
        reached = _reached(side, sides[:n] + sides[n + 1 :], least)
        if reached is not None:
            have.append(f"{side.name} is {'at least' if side.high < math.inf else 'at most'} {reached:.6g}")
    known = f" while the others hold, {' and '.join(have)}." if have else " even all but one of them clash."
    return Infeasible(
        f"{' and '.join(_asks(limit) for limit in limits)} cannot be met together:{known} "
        "Relax one of them or choose another space."
    )


def _sides(limit: Limit) -> list[Limit]:
    upper = [Limit(limit.name, limit.form, high=limit.high)] if limit.high < math.inf else []
    lower = [Limit(limit.name, limit.form, low=limit.low)] if limit.low > -math.inf else []
    return upper + lower


def _asks(limit: Limit, digits: int = 6) -> str:
    low, high = f"{limit.low:.{digits}g}", f"{limit.high:.{digits}g}"
    if limit.low == -math.inf:
        return f"{limit.name} <= {high}"
    if limit.high == math.inf:
        return f"{limit.name} >= {low}"
    return f"{limit.name} = {low}" if limit.low == limit.high else f"{low} <= {limit.name} <= {high}"


def _meets(side: Limit, value: float) -> bool:
    return bool(within(side, np.asarray(value)))


def _reached(side: Limit, others: Sequence[Limit], least: Least) -> float | None:
    """The value nearest to the limit's good side: the least for an upper limit, the most for a lower one."""
    if side.high < math.inf:
        return least(side.form, others)
    negative = least(side.form * -1.0, others)
    return None if negative is None else -negative
