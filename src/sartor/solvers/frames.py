"""Frame by frame: where forms have cases, every option of choice 0 makes a plain problem of its own.

The one place that knows it. `frontier` takes the Pareto set of all frames' points, so that whatever is read from a
frontier (the optimum, the least, what is impossible) holds for all frames; solvers of single problems take the best
of the frames' answers with the highest of their bounds. Solvers that only value whole architectures need neither.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from sartor.core.arch import Arch
from sartor.core.errors import Infeasible, SolverError
from sartor.solvers.base import Problem, Solution, certify


def framed(problem: Problem) -> bool:
    """Whether the problem must be solved frame by frame."""
    return any(form.cases for form in (problem.score, *(limit.form for limit in problem.limits)))


def frames(problem: Problem) -> Iterator[Problem]:
    """The problem in every option of choice 0, which then makes no difference any more."""
    for option in range(problem.sizes[0]):
        limits = tuple(replace(limit, form=limit.form.at(option)) for limit in problem.limits)
        yield Problem(problem.score.at(option), limits)


def best_of_frames(problem: Problem, solve: Callable[[Problem, int, float], Solution | None]) -> Solution | None:
    """The best of the frames' solutions and the highest of their bounds; None where no frame has any.

    `solve` gets the problem of a frame, how many frames are still to come, this one included, and the best score of
    those before; None says that the frame has nothing better. A frame in which it finds nothing in time leaves the
    bound open.
    """
    begin = time.perf_counter()
    found: list[tuple[Arch, Solution]] = []
    bound, failed = -math.inf, None
    for option, part in enumerate(frames(problem)):
        try:
            best = max((known.score for _, known in found), default=-math.inf)
            solution = solve(part, problem.sizes[0] - option, best)
        except Infeasible:
            continue
        except SolverError as error:
            bound, failed = math.inf, error
            continue
        if solution is not None:
            found.append((Arch((option, *solution.arch.picks[1:])), solution))
            bound = max(bound, solution.bound)
    if not found and failed is not None:
        raise failed
    if not found:
        return None
    arch, top = max(found, key=lambda pair: pair[1].score)
    return certify(problem, arch, bound, top.solver, time.perf_counter() - begin)
