"""What a solver is asked and what it answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sartor.core.arch import Arch
from sartor.core.errors import BadInput, SolverError
from sartor.core.quadratic import Array, Limit, Quadratic

SLACK = 1e-9  # rounding allowed in a limit, relative to the value; the default of `Limit.holds`


class NotSeparable(BadInput):
    """The problem's choices interact too much for the exact frontier; `milp` solves it one budget at a time."""


def within(limit: Limit, values: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """`Limit.holds` for many values of the limit's form at once."""
    room = SLACK * np.maximum(1.0, np.abs(values))
    return (limit.low - room <= values) & (values <= limit.high + room)


@dataclass(frozen=True, eq=False)
class Problem:
    """Maximise `score` over all architectures that meet every one of `limits` (budgets and structural rules)."""

    score: Quadratic
    limits: tuple[Limit, ...] = ()

    def __post_init__(self) -> None:
        for limit in self.limits:
            if limit.form.sizes != self.score.sizes:
                raise BadInput(
                    f"limit {limit.name} must be over the score's choices {self.score.sizes}, "
                    f"but is over {limit.form.sizes}."
                )

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of options of every choice."""
        return self.score.sizes

    def feasible(self, arch: Arch) -> bool:
        """Whether `arch` meets every limit."""
        return all(limit.holds(arch) for limit in self.limits)


@dataclass(frozen=True, slots=True)
class Solution:
    """An architecture, its score, and a proven upper bound on the score of any feasible architecture."""

    arch: Arch
    score: float
    bound: float
    solver: str
    seconds: float = 0.0

    @property
    def gap(self) -> float:
        """How much better the unknown optimum could be; zero (up to rounding) when proven optimal."""
        return max(0.0, self.bound - self.score)

    @property
    def proven(self) -> bool:
        """Whether the gap is closed up to rounding and the solver's tolerance."""
        return self.gap <= 1e-6 * max(1.0, abs(self.score))

    def to_json(self) -> dict[str, Any]:
        """For solution.json; an unknown bound is null."""
        known = math.isfinite(self.bound)
        return {
            "picks": list(self.arch.picks),
            "score": self.score,
            "bound": self.bound if known else None,
            "gap": self.gap if known else None,
            "proven": self.proven,
            "solver": self.solver,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class Least:
    """The architecture with the smallest `value` of a form, and a proven lower `bound` on any architecture's."""

    arch: Arch
    value: float
    bound: float


@dataclass(frozen=True, eq=False)
class Frontier:
    """Every optimal trade-off between one cost and the score: strictly increasing in both.

    Point ``n`` costs ``cost[n]`` and scores ``score[n]``; no architecture that costs as little
    scores more. `picks` is the (points, choices) array of the architectures themselves.
    """

    cost: Array
    score: Array
    picks: np.ndarray[Any, np.dtype[np.int64]]

    def __len__(self) -> int:
        return len(self.cost)

    def arch(self, n: int) -> Arch:
        """The architecture of one point."""
        return Arch(tuple(int(p) for p in self.picks[n]))

    def best(self, budget: float) -> int | None:
        """The index of the best point that costs at most `budget`; None where even the cheapest costs more."""
        room = SLACK * np.maximum(1.0, np.abs(self.cost))  # the same rounding that Limit.holds allows
        affordable = int(np.count_nonzero(self.cost <= budget + room))
        return affordable - 1 if affordable else None

    def to_json(self) -> dict[str, Any]:
        """For frontier.json."""
        return {"cost": self.cost.tolist(), "score": self.score.tolist(), "picks": self.picks.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Frontier:
        """Read what `to_json` wrote."""
        return cls(
            np.asarray(data["cost"], np.float64),
            np.asarray(data["score"], np.float64),
            np.asarray(data["picks"], np.int64).reshape(len(data["cost"]), -1),
        )


class Solver(ABC):
    """A frozen dataclass whose fields are its options.

    `exact` says whether the answer is the proven optimum of every problem in the solver's scope, given
    the time; a heuristic's answer is feasible and its bound true, but may be infinite.
    """

    exact: ClassVar[bool] = True

    @abstractmethod
    def solve(self, problem: Problem) -> Solution:
        """The best architecture found, certified; raises Infeasible where no architecture meets the limits."""


def certify(problem: Problem, arch: Arch, bound: float, solver: str, seconds: float) -> Solution:
    """A Solution whose feasibility and score are computed afresh: a solver's word is never taken for them."""
    broken = [limit.name for limit in problem.limits if not limit.holds(arch, slack=1e-6)]
    if broken:
        raise SolverError(f"{solver} returned {arch.picks}, which violates {', '.join(broken)}.")
    score = problem.score(arch)
    if score > bound + 1e-6 * max(1.0, abs(score)):
        raise SolverError(f"{solver} claims that nothing beats {bound:g}, yet its own answer scores {score:g}.")
    return Solution(arch, score, max(bound, score), solver, seconds)
