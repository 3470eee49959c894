"""The time of the complete exact frontier of a chain of stages in several frames, beside HiGHS for single budgets.

Score and costs are synthetic, real-valued, and have the shape of the `edge` space: in every frame (side, stride of the
stem) a chain stem - stage - ... - stage - head. A stage decides on family and width together; its depth is a leaf. Its
first block costs by the width before it, its repeats by the depth. One core; seconds are of the processor, because
machines are shared. Run: python benchmarks/frontier_chain.py
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import TypeVar
from unittest.mock import patch

import numpy as np
from _record import parser, record

from sartor.core.quadratic import Array, Limit, Quadratic
from sartor.solvers import milp, solve
from sartor.solvers.base import Frontier, Problem, Solution
from sartor.solvers.frontier import frontier

FRAMES, STEMS, STAGES, FAMILIES, WIDTHS, DEPTHS, HEADS = 6, 5, 4, 6, 6, 5, 4
OPTIONS = FAMILIES * WIDTHS
SIZES = (FRAMES, STEMS, *(OPTIONS, DEPTHS) * STAGES, HEADS)
CHAIN = (1, *(2 + 2 * k for k in range(STAGES)), 2 + 2 * STAGES)  # stem, stages, head; depths follow their stages
SEEDS = range(5)

Answer = TypeVar("Answer")


def chain(seed: int, spread: float) -> tuple[Quadratic, Quadratic, Quadratic]:
    """Score (percent), latency (milliseconds, other in every frame) and parameters (thousands).

    `spread` is how far options deviate from what family, width and depth alone let expect.
    """
    rng = np.random.default_rng(seed)
    kind = np.repeat(rng.uniform(0.15, 1.5, FAMILIES), WIDTHS)  # multiplications a weight
    wide = [8.0 * 1.4 ** np.arange(STEMS)]
    wide += [12.0 * 1.7**k * 1.35 ** np.tile(np.arange(WIDTHS), FAMILIES) for k in range(STAGES)]
    depth = np.arange(DEPTHS)

    def by_width(before: Array, prices: Array) -> Array:
        """Prices times the width before, each with its own deviation: the same for all options of one width."""
        inputs, row = np.unique(before, return_inverse=True)
        return np.asarray((np.outer(inputs, prices) * rng.lognormal(0.0, 0.15, (len(inputs), len(prices))))[row])

    def priced(pixels: list[float]) -> Quadratic:
        """The sum over stem, first blocks, repeats and head at so many pixels each."""
        linear = {1: 27e-6 * wide[0] * pixels[0] * rng.lognormal(0.0, 0.15, STEMS)}
        pairs = {(CHAIN[-2], CHAIN[-1]): by_width(wide[-1], 64e-6 * np.arange(HEADS) * pixels[-1])}
        for k, (before, here) in enumerate(itertools.pairwise(CHAIN[:-1])):
            pairs[before, here] = by_width(wide[k], 4e-6 * kind * wide[k + 1] * pixels[k + 1])
            again = 9e-6 * kind * wide[k + 1] ** 2 * pixels[k + 1] * rng.lognormal(0.0, 0.15, OPTIONS)
            pairs[here, here + 1] = np.outer(again, depth)
        return Quadratic(SIZES, 0.02, linear, pairs)

    sides = 32.0 * 1.3 ** np.arange(FRAMES)
    latency = Quadratic(SIZES, cases=tuple(priced([*((s / 2**k) ** 2 for k in range(STAGES + 1)), 1.0]) for s in sides))
    params = priced([1e3] * (STAGES + 2))
    gain = {0: 5.0 * np.log(sides / 32), 1: 0.5 * np.arange(STEMS), CHAIN[-1]: 0.3 * np.arange(HEADS)}
    gains = {}
    for k, (before, here) in enumerate(itertools.pairwise(CHAIN[:-1])):
        gain[here] = 1.2 * np.log(kind * wide[k + 1] ** 1.5) + rng.normal(0, 0.4 * spread, OPTIONS)
        gain[here + 1] = 1.5 * np.log1p(depth)
        gains[here, here + 1] = rng.normal(0, 0.15 * spread, (OPTIONS, DEPTHS))
        gains[before, here] = rng.normal(0, 0.1 * spread, (SIZES[before], OPTIONS))
        gains[0, here] = rng.normal(0, 0.1 * spread, (FRAMES, OPTIONS))
    return Quadratic(SIZES, 40.0, gain, gains), latency, params


def near(cost: Quadratic, seed: int, noise: float = 0.05) -> Quadratic:
    """The hardest score: nearly the latency of one frame, so that hardly anything is dominated."""
    rng = np.random.default_rng(seed)
    one = cost.cases[2]
    linear = {i: v * (1 + noise * rng.normal(size=v.shape)) for i, v in one.linear.items()}
    linear[0] = np.linspace(0, 1, FRAMES)
    return Quadratic(SIZES, 0.0, linear, {k: t * (1 + noise * rng.normal(size=t.shape)) for k, t in one.pairs.items()})


def timed(work: Callable[..., Answer], *given: object) -> tuple[Answer, float]:
    """What `work` gives, and the processor seconds it took."""
    start = time.process_time()
    return work(*given), time.process_time() - start


def frontiers() -> list[dict[str, object]]:
    """Points and seconds of complete frontiers over all frames, for three kinds of score."""
    rows: list[dict[str, object]] = []
    for seed in SEEDS:
        for kind in ("rough score", "smooth score", "nearly the latency"):
            score, latency, _ = chain(seed, 1.0 if kind == "rough score" else 0.1)
            score = near(latency, seed) if kind == "nearly the latency" else score
            front, seconds = timed(frontier, score, latency)
            frames = np.bincount(front.picks[:, 0], minlength=FRAMES).tolist()
            rows.append({"seed": seed, "score": kind, "points": len(front), "seconds": seconds, "by_frame": frames})
    return rows


def whole_highs(problem: Problem) -> Solution:
    """HiGHS on every frame with all options: the reference that shares nothing with the frontier."""
    with patch.multiple(milp, survivors=lambda *_: None, ceiling=lambda _: math.inf):
        return milp.Milp(time_limit=600).solve(problem)


def budgets(count: int, front: Frontier, score: Quadratic, latency: Quadratic) -> list[dict[str, float]]:
    """Single budgets, evenly spaced in the logarithm: the frontier's answer beside HiGHS's."""
    rows = []
    for budget in np.geomspace(front.cost[0], front.cost[-1], count + 2)[1:-1]:
        problem = Problem(score, (Limit("latency", latency, float(budget)),))
        reference, seconds = timed(whole_highs, problem)
        exact = float(front.score[front.best(float(budget))])
        rows.append({"budget": float(budget), "highs_s": seconds, "highs": reference.score, "frontier": exact})
    return rows


def pairs_of_budgets(
    front: Frontier, score: Quadratic, latency: Quadratic, params: Quadratic
) -> list[dict[str, float]]:
    """Latency and parameters limited at once, the second to 70 % of what the first alone would take."""
    rows = []
    for share in (0.2, 0.4, 0.6, 0.8):
        n = int(share * len(front))
        most = 0.7 * params(front.arch(n))
        problem = Problem(score, (Limit("latency", latency, float(front.cost[n])), Limit("params", params, most)))
        ours, seconds = timed(solve, problem)
        reference, highs = timed(whole_highs, problem)
        rows.append({"latency": float(front.cost[n]), "params": most, "seconds": seconds, "score": ours.score,
                     "gap": ours.gap, "highs_s": highs, "highs": reference.score})  # fmt: skip
    return rows


def main() -> None:
    parser(__doc__).parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, whatever threads numpy or HiGHS start
    rows = frontiers()
    print(f"{'seed':>4} {'score':<19} {'points':>7} {'seconds':>8}  points by frame")
    for row in rows:
        print(f"{row['seed']:>4} {row['score']:<19} {row['points']:>7} {row['seconds']:>8.2f}  {row['by_frame']}")
    score, latency, params = chain(0, 1.0)
    front = frontier(score, latency)
    singles = budgets(20, front, score, latency)
    print(f"\n{'budget ms':>10} {'HiGHS s':>8} {'HiGHS':>10} {'frontier':>10}")
    for one in singles:
        print(f"{one['budget']:>10.3f} {one['highs_s']:>8.2f} {one['highs']:>10.5f} {one['frontier']:>10.5f}")
    both = pairs_of_budgets(front, score, latency, params)
    print(f"\n{'budget ms':>10} {'params K':>9} {'ours s':>7} {'ours':>10} {'HiGHS s':>8} {'HiGHS':>10}")
    for two in both:
        print(
            f"{two['latency']:>10.3f} {two['params']:>9.3f} {two['seconds']:>7.2f} {two['score']:>10.5f} "
            f"{two['highs_s']:>8.2f} {two['highs']:>10.5f}"
        )
    results = {
        "networks": float(math.prod(SIZES)),
        "cores_used": 1,
        "frontiers": rows,
        "slowest_frontier_s": max(row["seconds"] for row in rows),
        "highs_one_budget": singles,
        "highs_one_budget_median_s": statistics.median(one["highs_s"] for one in singles),
        "largest_difference_to_highs_at_20_budgets": max(abs(one["highs"] - one["frontier"]) for one in singles),
        "two_budgets": both,
        "largest_difference_at_two_budgets": max(abs(two["highs"] - two["score"]) for two in both),
    }
    path = record("frontier_chain", results)
    print(
        f"\n{results['networks']:.2g} networks: whole frontier at most {results['slowest_frontier_s']:.2f} s; one "
        f"HiGHS budget {results['highs_one_budget_median_s']:.2f} s (median of 20); largest difference "
        f"{results['largest_difference_to_highs_at_20_budgets']:.1e}; two budgets at most "
        f"{max(two['seconds'] for two in both):.2f} s, difference {results['largest_difference_at_two_budgets']:.1e}"
    )
    print(f"written: {path}")


if __name__ == "__main__":
    main()
