"""The best of several solvers when no proof is at hand, as the paper does (BINAS, section 4.2.4)."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import final

from sartor.core.config import check
from sartor.core.errors import SolverError
from sartor.solvers.base import NotSeparable, Problem, Solution, Solver, certify
from sartor.solvers.evolution import Evolution
from sartor.solvers.frank_wolfe import FrankWolfe
from sartor.solvers.frontier import ExactFrontier
from sartor.solvers.milp import Milp


@final
@dataclass(frozen=True, kw_only=True)
class Best(Solver):
    """The exact frontier where it applies; else the best of HiGHS, Frank-Wolfe and evolution with the tightest bound.

    HiGHS runs for at most `time_limit` seconds; where it proves the optimum the others are left out.
    """

    time_limit: float = 30.0
    seed: int = 0

    def __post_init__(self) -> None:
        check(self, time_limit="> 0")

    def solve(self, problem: Problem) -> Solution:
        """The highest score found by any of them and the lowest bound proven by any of them."""
        begin = time.perf_counter()
        try:
            return replace(ExactFrontier().solve(problem), solver="best: frontier")
        except NotSeparable:
            pass
        found = []
        with suppress(SolverError):  # nothing found in time: the others still find something
            found.append(Milp(time_limit=self.time_limit).solve(problem))
        if not found or not found[0].proven:
            found += [FrankWolfe(seed=self.seed).solve(problem), Evolution(seed=self.seed).solve(problem)]
        top = max(found, key=lambda solution: solution.score)
        bound = min(solution.bound for solution in found)
        return certify(problem, top.arch, bound, f"best: {top.solver}", time.perf_counter() - begin)


PLUGIN = Best
