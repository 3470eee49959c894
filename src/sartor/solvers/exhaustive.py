"""Brute force over small spaces: the reference that the other solvers are checked against."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers.base import Problem, Solution, Solver, certify, within
from sartor.solvers.infeasible import contradiction

MOST = 20_000_000
CHUNK = 1 << 16


@final
@dataclass(frozen=True, kw_only=True)
class Exhaustive(Solver):
    """Optimum by trying every architecture; for small spaces and as a reference."""

    def solve(self, problem: Problem) -> Solution:
        """The first best architecture in the order of its picks."""
        start = time.perf_counter()
        count = math.prod(problem.sizes)
        if count > MOST:
            raise BadInput(
                f"exhaustive search tries at most {MOST:.3g} architectures, but this space has {count:.3g}. "
                "Use the solver frontier (one budget) or milp (any number)."
            )
        best, score = _best(problem.score, problem.limits)
        if best is None:
            raise contradiction(problem.limits, _least)
        return certify(problem, best, score, "exhaustive", time.perf_counter() - start)


def _chunks(sizes: tuple[int, ...]) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """All architectures in lexicographic order, as (n, choices) arrays."""
    count = math.prod(sizes)
    for start in range(0, count, CHUNK):
        flat = np.arange(start, min(count, start + CHUNK))
        yield np.stack(np.unravel_index(flat, sizes), axis=1) if sizes else np.empty((1, 0), np.int64)


def _best(score: Quadratic, limits: Sequence[Limit]) -> tuple[Arch | None, float]:
    best, value = None, -math.inf
    for picks in _chunks(score.sizes):
        allowed = np.ones(len(picks), bool)
        for limit in limits:
            allowed &= within(limit, limit.form.batch(picks))
        scores = np.where(allowed, score.batch(picks), -math.inf)
        n = int(np.argmax(scores))
        if scores[n] > value:
            best, value = Arch(tuple(picks[n].tolist())), float(scores[n])
    return best, value


def _least(form: Quadratic, limits: Sequence[Limit]) -> float | None:
    arch, value = _best(form * -1.0, limits)
    return None if arch is None else -value


PLUGIN = Exhaustive
