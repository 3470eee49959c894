"""Solvers: the best architecture inside all the budgets, with a proof where there is one. Never imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sartor.core.quadratic import Limit, Quadratic
    from sartor.solvers.base import Least, Problem, Solution

__all__ = ["cheapest", "solve"]


def solve(problem: Problem, solver: str = "auto", **options: Any) -> Solution:
    """The best architecture inside all the limits, by the named solver with its own options.

    ``auto`` takes the exact frontier where the limits and interactions allow it (one budget, choices
    that form a forest) and HiGHS otherwise; `options` are then HiGHS's. Raises Infeasible where no
    architecture meets the limits, with a message that names what could be had.
    """
    from sartor.core.registry import SOLVERS
    from sartor.solvers.base import NotSeparable

    if solver != "auto":
        return SOLVERS[solver](**options).solve(problem)  # type: ignore[no-any-return]
    try:
        return SOLVERS["frontier"]().solve(problem)  # type: ignore[no-any-return]
    except NotSeparable:
        return SOLVERS["milp"](**options).solve(problem)  # type: ignore[no-any-return]


def cheapest(form: Quadratic, limits: Sequence[Limit] = ()) -> Least:
    """The architecture with the smallest value of `form` among those that meet `limits`, before any training."""
    from sartor.solvers.milp import cheapest as least

    return least(form, limits)
