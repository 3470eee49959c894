"""Any quadratic score under any number of quadratic limits, to proven optimality, with HiGHS.

One binary ``x[i, a]`` per option with ``sum_a x[i, a] = 1``. A pair term needs the products
``y[a, b] = x[i, a] x[j, b]``, which for one-hot vectors are exactly the ``y >= 0`` with

``sum_b y[a, b] = x[i, a]``  and  ``sum_a y[a, b] = x[j, b]``:

the convex hull of one pair of choices, hence tighter than the usual three inequalities a product,
and exact whenever x is integer.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, vstack

from sartor.core.arch import Arch
from sartor.core.config import check
from sartor.core.errors import Infeasible, SolverError
from sartor.core.quadratic import Array, Limit, Quadratic
from sartor.solvers.base import Least, NotSeparable, Problem, Solution, Solver, certify
from sartor.solvers.frames import best_of_frames, framed
from sartor.solvers.frontier import frontier
from sartor.solvers.infeasible import contradiction
from sartor.solvers.interactions import support
from sartor.solvers.multipliers import ceiling, restricted, survivors

SPREAD = 1e2  # every row spans about this much, so that HiGHS's tolerance of 1e-6 is 1e-8 of the form's range
REPAIRS = 8


@final
@dataclass(frozen=True, kw_only=True)
class Milp(Solver):
    """Proven optimum of any quadratic score under any number of quadratic limits (HiGHS).

    After `time_limit` seconds the best architecture found so far is returned with the bound proven
    so far. `gap` is the relative gap, of the score above its least conceivable value, at which the
    search stops.
    """

    time_limit: float = 60.0
    gap: float = 1e-6

    def __post_init__(self) -> None:
        check(self, time_limit="> 0", gap=">= 0")

    def solve(self, problem: Problem) -> Solution:
        """The best architecture found, certify, and the proven bound."""
        solution = self._attempt(problem)
        if solution is None:
            raise contradiction(problem.limits, self._least)
        return solution

    def _attempt(self, problem: Problem, worth: float = -math.inf) -> Solution | None:
        """The solution, or None where there is provably none, or none that scores `worth`.

        Frame by frame where there are cases; without the options that the optimum provably has not.
        """
        start = time.perf_counter()
        if framed(problem):
            return best_of_frames(
                problem, lambda part, left, best: self._share(start, left)._attempt(part, best), ceiling, worth
            )
        options = survivors(problem, worth)
        if options is None:
            return self._run(problem)
        if not all(len(kept) for kept in options):
            return None
        limits = tuple(replace(limit, form=restricted(limit.form, options)) for limit in problem.limits)
        found = self._share(start, 1)._run(Problem(restricted(problem.score, options), limits))
        if found is None:
            return None
        arch = Arch(tuple(int(kept[pick]) for kept, pick in zip(options, found.arch.picks, strict=True)))
        return certify(problem, arch, max(found.bound, worth), "milp", time.perf_counter() - start)

    def _run(self, problem: Problem) -> Solution | None:
        """The solution, or None where HiGHS proves that there is none.

        HiGHS meets a limit up to its tolerance only. An answer outside a limit is cut off and the
        model solved again. Cutting off the answer alone keeps the proof; where that does not help,
        the limit is tightened as well and the bound stays the one proven before.
        """
        start = time.perf_counter()
        model = _Model(problem)
        bound, tightened = math.inf, False
        for attempt in range(REPAIRS):
            left = self.time_limit - (time.perf_counter() - start)
            answer = model.run(max(left, 0.01), self.gap)
            if answer is None and not tightened:
                return None
            if answer is None:
                break
            arch, proven = answer
            bound = bound if tightened else min(bound, proven)
            broken = [n for n, limit in enumerate(problem.limits) if not limit.holds(arch)]
            if not broken:
                return certify(problem, arch, bound, "milp", time.perf_counter() - start)
            for n in broken:
                model.cut(n, arch)
                if attempt >= REPAIRS // 2:
                    model.tighten(n, arch)
                    tightened = True
        raise SolverError(
            "milp found only architectures that miss a limit by less than HiGHS's tolerance: "
            "relax the limits slightly, or round their coefficients."
        )

    def _share(self, start: float, count: int) -> Milp:
        """The same solver for the next of `count` problems: with half of the time that is left, the last with all."""
        left = self.time_limit - (time.perf_counter() - start)
        return replace(self, time_limit=max(left / min(count, 2), 0.01))

    def _least(self, form: Quadratic, limits: Sequence[Limit]) -> float | None:
        try:
            least = cheapest(form, limits, replace(self, time_limit=self.time_limit / 4))
        except (Infeasible, SolverError):
            return None
        return least.value if least.value - least.bound <= 1e-6 * max(1.0, abs(least.value)) else least.bound


def cheapest(
    form: Quadratic, limits: Sequence[Limit] = (), fallback: Milp | None = None, known: Arch | None = None
) -> Least:
    """The architecture with the smallest value of `form` among those that meet `limits`.

    From the frontier's dynamic programming where the structure allows it, else with HiGHS, which is faster where an
    architecture that meets them is `known`.
    """
    try:
        front = frontier(Quadratic(form.sizes), form, limits)
    except NotSeparable:
        worth = -math.inf if known is None else -form(known)
        found = (fallback or Milp())._attempt(Problem(form * -1.0, tuple(limits)), worth)
        if found is not None and found.score >= worth:
            return Least(found.arch, form(found.arch), -found.bound)
        if known is not None:
            return Least(known, -worth, -worth if found is None else -found.bound)
    else:
        if len(front):
            return Least(front.arch(0), float(front.cost[0]), float(front.cost[0]))
    raise Infeasible(f"no network of this space meets {', '.join(limit.name for limit in limits)}.")


@dataclass(frozen=True, eq=False)
class _Row:
    """A form as a row over the model's columns: ``form = constant + row @ columns / scale``."""

    row: Array
    constant: float
    scale: float


@dataclass(eq=False)
class _Model:
    """The linear model of one problem, its limits' present bounds, and the cuts added so far."""

    problem: Problem
    first: list[int] = field(init=False)
    blocks: dict[tuple[int, int], int] = field(init=False)
    width: int = field(init=False)

    def __post_init__(self) -> None:
        sizes = self.problem.sizes
        forms = [self.problem.score, *(limit.form for limit in self.problem.limits)]
        self.first = [0, *np.cumsum(sizes).tolist()]
        self.width = self.first[-1]
        self.blocks = {}
        for i, j in sorted({k for form in forms for k, table in form.pairs.items() if table.any()}):
            self.blocks[i, j] = self.width
            self.width += sizes[i] * sizes[j]
        self.score = self._row(self.problem.score)
        self.limits = [self._row(limit.form) for limit in self.problem.limits]
        self.high = np.array([limit.high for limit in self.problem.limits])
        self.low = np.array([limit.low for limit in self.problem.limits])
        self.structure, self.ones = self._structure()
        self.cuts: list[Array] = []
        self.most: list[float] = []

    def _row(self, form: Quadratic) -> _Row:
        """Every term is shifted to a minimum of zero, for the sake of its digits, and all are scaled alike."""
        row, constant, span = np.zeros(self.width), form.constant, 0.0
        places = [(self.first[i], v) for i, v in form.linear.items()]
        places += [(self.blocks[k], t) for k, t in form.pairs.items() if t.any()]
        for start, table in places:
            row[start : start + table.size] += (table - table.min()).ravel()
            constant += float(table.min())
            span += float(np.ptp(table))
        scale = SPREAD / span if span > 0 else 1.0
        return _Row(row * scale, constant, scale)

    def _structure(self) -> tuple[csr_array, Array]:
        """One option a choice; the products' sums over either side equal the other side's option."""
        sizes = self.problem.sizes
        rows = [np.repeat(np.arange(len(sizes)), sizes)]
        columns = [np.arange(self.first[-1])]
        values = [np.ones(self.first[-1])]
        count = len(sizes)
        for (i, j), start in self.blocks.items():
            products = start + np.arange(sizes[i] * sizes[j]).reshape(sizes[i], sizes[j])
            for choice, table in ((i, products), (j, products.T)):
                here = count + np.arange(sizes[choice])
                rows += [np.repeat(here, table.shape[1]), here]
                columns += [table.ravel(), self.first[choice] + np.arange(sizes[choice])]
                values += [np.ones(table.size), -np.ones(sizes[choice])]
                count += sizes[choice]
        entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
        matrix = coo_array(entries, shape=(count, self.width)).tocsr()
        return matrix, (np.arange(count) < len(sizes)).astype(np.float64)

    def cut(self, n: int, arch: Arch) -> None:
        """Forbid what `arch` picks for the choices that limit `n` depends on: it breaks the limit, whatever else."""
        chosen = support(self.problem.limits[n].form)
        row = np.zeros(self.width)
        row[[self.first[i] + arch.picks[i] for i in chosen]] = 1.0
        self.cuts.append(row)
        self.most.append(len(chosen) - 1.0)

    def tighten(self, n: int, arch: Arch) -> None:
        """Move limit `n` inwards by twice what `arch` misses it by."""
        limit = self.problem.limits[n]
        value = limit.form(arch)
        self.high[n] -= 2 * max(0.0, value - limit.high)
        self.low[n] += 2 * max(0.0, limit.low - value)

    def run(self, seconds: float, gap: float) -> tuple[Arch, float] | None:
        """The best architecture by HiGHS's account and its bound on the score; None where it proves infeasibility."""
        shift = np.array([r.constant for r in self.limits])
        scale = np.array([r.scale for r in self.limits])
        matrix = vstack([self.structure, *(csr_array(v[None]) for v in [r.row for r in self.limits] + self.cuts)])
        low = np.concatenate([self.ones, (self.low - shift) * scale, np.full(len(self.cuts), -np.inf)])
        high = np.concatenate([self.ones, (self.high - shift) * scale, self.most])
        integer = (np.arange(self.width) < self.first[-1]).astype(np.int64)
        with _words_aside():
            result = milp(
                -self.score.row,
                integrality=integer,
                bounds=Bounds(0.0, 1.0),
                constraints=LinearConstraint(matrix.tocsc(), low, high),
                options={"time_limit": seconds, "mip_rel_gap": gap},
            )
        # "Unbounded or infeasible" comes as status 4; nothing between 0 and 1 is unbounded.
        if result.status == 2 or (result.status == 4 and "nfeasible" in str(result.message)):
            return None
        if result.x is None:
            raise SolverError(
                f"milp found no architecture in {seconds:.3g} s: raise time_limit. HiGHS: {result.message}"
            )
        return self._decode(result.x), self._bound(result)

    def _decode(self, x: Array) -> Arch:
        return Arch(tuple(int(np.argmax(x[a:b])) for a, b in zip(self.first, self.first[1:], strict=False)))

    def _bound(self, result: Any) -> float:
        if result.mip_dual_bound is None or not math.isfinite(result.mip_dual_bound):
            return math.inf
        return self.score.constant - float(result.mip_dual_bound) / self.score.scale


@contextlib.contextmanager
def _words_aside() -> Iterator[None]:
    """HiGHS rarely writes a line to standard output, silent or not; results may be going there as JSON."""
    try:
        sys.stdout.flush()
        kept = os.dup(1)
    except OSError:  # a process without standard output
        yield
        return
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


PLUGIN = Milp
