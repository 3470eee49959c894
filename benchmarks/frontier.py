"""The time of the complete exact frontier of BINAS's full space, beside HiGHS for single budgets.

Score and latency table are synthetic, with the structure of BINAS's equations 4 and 5 and
plausible magnitudes (percent, milliseconds). One core. Run: python benchmarks/frontier.py
"""

from __future__ import annotations

import math
import os
import statistics
import time

import numpy as np
from _record import parser, record

from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers.base import Problem
from sartor.solvers.exhaustive import Exhaustive
from sartor.solvers.frontier import ExactFrontier, frontier
from sartor.solvers.milp import Milp

STAGES, BLOCKS, CONFIGURATIONS = 5, 4, 12
SEEDS = range(5)
REPEATS = 30


def space(seed: int, stages: int = STAGES, configurations: int = CONFIGURATIONS) -> tuple[Quadratic, Quadratic]:
    """Score and latency: depth (2, 3 or 4) is the hub of a stage; blocks 3 and 4 count where the depth reaches them."""
    rng = np.random.default_rng(seed)
    sizes = (3, *[configurations] * BLOCKS) * stages
    gains, gain_pairs, prices, price_pairs = {}, {}, {}, {}
    for stage in range(stages):
        hub = stage * (1 + BLOCKS)
        gains[hub] = np.sort(rng.normal(0, 0.4, 3))
        for n in range(1, BLOCKS + 1):
            price = np.sort(rng.gamma(4, 0.25, configurations)) * (1 + 0.2 * stage)
            gain = 0.25 * np.log(price) + rng.normal(0, 0.1, configurations)
            if n <= 2:
                gains[hub + n], prices[hub + n] = gain, price
                continue
            active = (np.arange(3) >= n - 2).astype(float)[:, None]
            price_pairs[hub, hub + n] = active * price
            gain_pairs[hub, hub + n] = active * (gain + rng.normal(0, 0.03, (3, configurations)))
    return Quadratic(sizes, 70.0, gains, gain_pairs), Quadratic(sizes, 3.0, prices, price_pairs)


def timings() -> list[dict[str, float]]:
    """Median, best and worst time of the complete frontier, a seed each."""
    rows = []
    for seed in SEEDS:
        score, cost = space(seed)
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            front = frontier(score, cost)
            seconds.append(time.perf_counter() - start)
        rows.append(
            {
                "seed": seed,
                "points": len(front),
                "median_ms": 1e3 * statistics.median(seconds),
                "best_ms": 1e3 * min(seconds),
                "worst_ms": 1e3 * max(seconds),
            }
        )
    return rows


def highs(budgets: int) -> list[dict[str, float]]:
    """HiGHS for evenly spaced single budgets of seed 0, each with the frontier's answer beside it."""
    score, cost = space(0)
    front = frontier(score, cost)
    rows = []
    for budget in np.linspace(front.cost[0], front.cost[-1], budgets + 2)[1:-1]:
        found = Milp().solve(Problem(score, (Limit("latency", cost, float(budget)),)))
        exact = float(front.score[front.best(float(budget))])
        rows.append(
            {
                "budget_ms": float(budget),
                "seconds": found.seconds,
                "score": found.score,
                "proven_gap": found.gap,
                "frontier_score": exact,
                "difference": abs(found.score - exact),
            }
        )
    return rows


def exhaustive(count: int) -> float:
    """The largest difference to trying everything, over small spaces of the same structure and their budgets."""
    worst = 0.0
    for seed in range(count):
        score, cost = space(seed, stages=1, configurations=6)
        values = cost.batch(np.stack(np.unravel_index(np.arange(math.prod(cost.sizes)), cost.sizes), 1))
        for budget in np.quantile(values, [0.0, 0.25, 0.5, 0.75, 1.0]):
            problem = Problem(score, (Limit("latency", cost, float(budget)),))
            worst = max(worst, abs(ExactFrontier().solve(problem).score - Exhaustive().solve(problem).score))
    return worst


def main() -> None:
    parser(__doc__).parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one core, whatever threads numpy or HiGHS start
    ours, singles, checks, small = timings(), highs(10), highs(20), exhaustive(10)
    median = statistics.median(row["median_ms"] for row in ours)
    seconds = [row["seconds"] for row in singles]
    print(f"{'seed':>4} {'points':>7} {'median ms':>10} {'best ms':>8}")
    for row in ours:
        print(f"{row['seed']:>4} {row['points']:>7} {row['median_ms']:>10.2f} {row['best_ms']:>8.2f}")
    print(f"\n{'budget ms':>9} {'HiGHS s':>8} {'HiGHS':>9} {'frontier':>9}")
    for row in singles:
        print(f"{row['budget_ms']:>9.3f} {row['seconds']:>8.3f} {row['score']:>9.5f} {row['frontier_score']:>9.5f}")
    results = {
        "networks": float(sum(CONFIGURATIONS**depth for depth in (2, 3, 4)) ** STAGES),  # inactive blocks not counted
        "cores_used": 1,
        "frontier": ours,
        "frontier_median_ms": median,
        "highs_one_budget": singles,
        "highs_one_budget_median_s": statistics.median(seconds),
        "one_highs_budget_over_whole_frontier": statistics.median(seconds) / (median / 1e3),
        "ten_highs_budgets_over_whole_frontier": sum(seconds) / (median / 1e3),
        "largest_difference_to_highs_at_20_budgets": max(row["difference"] for row in checks),
        "largest_difference_to_exhaustive": small,
    }
    path = record("frontier", results)
    print(f"\nwhole frontier {median:.2f} ms; one HiGHS budget {statistics.median(seconds):.3f} s (median of 10)")
    print(
        f"largest difference: HiGHS {results['largest_difference_to_highs_at_20_budgets']:.1e}, exhaustive {small:.1e}"
    )
    print(f"written: {path}")


if __name__ == "__main__":
    main()
