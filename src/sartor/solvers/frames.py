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


def best_of_frames(
    problem: Problem,
    solve: Callable[[Problem, int, float], Solution | None],
    ceiling: Callable[[Problem], float] = lambda part: math.inf,
    worth: float = -math.inf,
) -> Solution | None:
    """The best of the frames' solutions and the highest of their bounds; None where no frame has any.

    Frames come in the order of their `ceiling`, a bound on the score; those that cannot have more than `worth` or than
    what was found are left out. `solve` gets a frame's problem, how many frames are to come, this one included, and the
    best score so far; None says that the frame has nothing as good. A frame in which it finds nothing in time leaves
    the bound open.
    """
    begin = time.perf_counter()
    parts = list(frames(problem))
    promise = [ceiling(part) for part in parts]
    found: Solution | None = None
    bound, failed = -math.inf, None
    for count, option in enumerate(sorted(range(len(parts)), key=lambda n: -promise[n])):
        best = max(worth, found.score) if found else worth
        if promise[option] < best:
            break
        try:
            solution = solve(parts[option], len(parts) - count, best)
        except Infeasible:
            continue
        except SolverError as error:
            bound, failed = math.inf, error
            continue
        if solution is not None:
            bound = max(bound, solution.bound)
        if solution is not None and (found is None or solution.score > found.score):
            found = replace(solution, arch=Arch((option, *solution.arch.picks[1:])))
    if found is None and failed is not None:
        raise failed
    if found is None:
        return None
    return certify(problem, found.arch, bound, found.solver, time.perf_counter() - begin)
