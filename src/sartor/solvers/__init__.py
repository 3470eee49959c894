"""Solvers: the best architecture inside all the budgets, with a proof where there is one. Never imports torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sartor.core.arch import Arch
    from sartor.core.quadratic import Limit, Quadratic
    from sartor.solvers.base import Least, Problem, Solution, Solver

__all__ = ["cheapest", "solve"]


def solve(problem: Problem, solver: str | Solver | type[Solver] = "auto", **options: Any) -> Solution:
    """The best architecture inside all the limits, by a solver: a name, ``module:Class``, a class or an instance.

    ``auto`` takes the exact frontier where the limits and interactions allow it (one budget, choices
    that form a forest) and HiGHS otherwise; `options` are then HiGHS's. Raises Infeasible where no
    architecture meets the limits, with a message that names what could be had.
    """
    from sartor.solvers.base import NotSeparable

    if solver != "auto":
        return _made(solver, options).solve(problem)
    try:
        return _made("frontier", {}).solve(problem)
    except NotSeparable:
        return _made("milp", options).solve(problem)


def _made(solver: str | Solver | type[Solver], options: Mapping[str, Any]) -> Solver:
    from sartor.core.registry import SOLVERS

    made: Solver = SOLVERS.make(solver, options)
    return made


def cheapest(form: Quadratic, limits: Sequence[Limit] = (), known: Arch | None = None) -> Least:
    """The architecture with the smallest value of `form` among those that meet `limits`; one of them may be `known`."""
    from sartor.solvers.milp import cheapest as least

    return least(form, limits, known=known)
