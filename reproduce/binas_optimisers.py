"""Figure 4 of BINAS: the optimisers beside each other, over budgets and seeds, against the proven optimum.

Give a finished run directory and its measured score and latency table are used. Without one, both
are made: the latency of every block from its exact count of multiply-accumulates in the paper's
frame at 224 pixels (6 M a millisecond, a seeded spread of 15 % a block, a fixed overhead), the score
from plausible contributions with diminishing returns. The result says which of the two it was.

One core. Run: python reproduce/binas_optimisers.py [runs/NAME]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import record  # noqa: E402

from sartor.core.errors import SartorError  # noqa: E402
from sartor.core.quadratic import Limit, Quadratic  # noqa: E402
from sartor.core.registry import COSTS, SPACES  # noqa: E402
from sartor.core.task import Task  # noqa: E402
from sartor.costs.base import CostTable, priced  # noqa: E402
from sartor.predictors.contributions import assemble, entries  # noqa: E402
from sartor.runs.directory import Run  # noqa: E402
from sartor.solvers.base import Problem  # noqa: E402
from sartor.solvers.evolution import Evolution  # noqa: E402
from sartor.solvers.frank_wolfe import FrankWolfe  # noqa: E402
from sartor.solvers.frontier import frontier  # noqa: E402
from sartor.solvers.milp import Milp  # noqa: E402
from sartor.solvers.relaxed import Groups  # noqa: E402

BUDGETS = 10
SEEDS = range(5)
SOLVERS = {
    "algorithm 1": lambda seed: FrankWolfe(starts=1, climb=False, seed=seed),
    "ours: 64 starts": lambda seed: FrankWolfe(seed=seed),
    "evolution": lambda seed: Evolution(seed=seed),
    "HiGHS": lambda seed: Milp(),
}


def measured(run: Path) -> tuple[Quadratic, Quadratic, str]:
    finished = Run.open(run)
    score = Quadratic.from_json(finished.read("score.json")["score"])
    return score, CostTable.from_json(finished.read("costs/latency.json")).form, f"measured: {run.name}"


def made(seed: int = 0) -> tuple[Quadratic, Quadratic, str]:
    """Score in percent and latency in milliseconds."""
    rng = np.random.default_rng(seed)
    space, task = SPACES["mobile"](preset="paper"), Task(classes=1000, image=224)
    parts = list(space.parts(task))
    counts = COSTS["macs"]().table(space, task).prices
    spread = {key: float(np.exp(0.15 * rng.normal())) for key in sorted(counts)}
    table = {k: type(p).exact(p.value / 6e6 * spread[k] + 0.15) for k, p in counts.items()}
    latency = priced(space, parts, table)
    delta = []
    for entry in entries(space.choices):
        choice = space.choices[entry.choice]
        stage, option = int(choice.name[5]), choice.options[entry.option]
        if choice.name.endswith("depth"):
            delta.append((-0.5, 0.1, 0.4)[entry.option] * (0.5 + 0.25 * stage) + 0.03 * rng.normal())
            continue
        block = int(choice.name[-1])
        width = {"3": -0.15, "4": 0.0, "6": 0.15}[option[1]] * (0.4 + 0.3 * stage)
        rest = 0.04 * ("k5" in option) + 0.04 * stage * ("_se" in option)
        delta.append((width + rest) / block**0.5 + 0.03 * rng.normal())
    return assemble(space.choices, space.sizes, 70.0, np.array(delta)), latency, f"made, seed {seed}"


def published_rounding(problem: Problem, seed: int) -> float:
    """The relative violation of algorithm 1's plain argmax, without our way back into the budget."""
    _, walks = FrankWolfe(starts=1, climb=False, seed=seed).search(problem)
    picks = Groups(problem.sizes).argmax(walks[0].points[-1])
    limit = problem.limits[0]
    return max(0.0, float(limit.form.batch(picks[None])[0]) / limit.high - 1.0)


def compare(score: Quadratic, latency: Quadratic) -> tuple[list[dict], float, int]:
    start = time.perf_counter()
    front = frontier(score, latency)
    seconds = time.perf_counter() - start
    rows = []
    for budget in np.linspace(front.cost[0], front.cost[-1], BUDGETS + 2)[1:-1]:
        problem = Problem(score, (Limit("latency", latency, float(budget)),))
        best = float(front.score[front.best(float(budget))])
        row = {"budget_ms": float(budget), "optimum": best, "solvers": {}}
        for name, build in SOLVERS.items():
            found = [build(seed).solve(problem) for seed in (SEEDS if name != "HiGHS" else [0])]
            row["solvers"][name] = {
                "gap_percent": [best - x.score for x in found],
                "violation_ms": max(0.0, *(latency(x.arch) - budget for x in found)),
                "seconds": [x.seconds for x in found],
                "proven": all(x.proven for x in found),
            }
        row["violation_of_plain_argmax"] = [published_rounding(problem, seed) for seed in SEEDS]
        rows.append(row)
    return rows, seconds, len(front)


def summary(rows: list[dict]) -> dict:
    table = {}
    for name in SOLVERS:
        gaps = [g for row in rows for g in row["solvers"][name]["gap_percent"]]
        table[name] = {
            "mean_gap_percent": statistics.mean(gaps),
            "worst_gap_percent": max(gaps),
            "optimal_share": sum(g <= 1e-5 for g in gaps) / len(gaps),
            "worst_violation_ms": max(row["solvers"][name]["violation_ms"] for row in rows),
            "median_seconds": statistics.median(s for row in rows for s in row["solvers"][name]["seconds"]),
        }
    return table


def draw(rows: list[dict], seconds: float, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    budgets = [row["budget_ms"] for row in rows]
    for name in SOLVERS:
        gaps = np.array([np.broadcast_to(row["solvers"][name]["gap_percent"], len(SEEDS)) for row in rows])
        mean = gaps.mean(1)
        left.errorbar(budgets, mean, [mean - gaps.min(1), gaps.max(1) - mean], marker="o", ms=3, capsize=2, label=name)
        right.plot(budgets, [statistics.median(row["solvers"][name]["seconds"]) for row in rows], marker="o", ms=3)
    right.axhline(seconds, color="black", ls="--", lw=1, label="exact frontier: all budgets at once")
    left.set(xlabel="latency budget (ms)", ylabel="below the proven optimum (% accuracy)")
    left.set_yscale("symlog", linthresh=0.01)
    right.set(xlabel="latency budget (ms)", ylabel="seconds, one core", yscale="log")
    left.legend(frameon=False, fontsize=8)
    right.legend(frameon=False, fontsize=8)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="a finished run; without one, a problem is made")
    args = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    try:
        score, latency, origin = measured(args.run) if args.run else made()
    except SartorError as error:
        parser.error(str(error))
    rows, seconds, points = compare(score, latency)
    table = summary(rows)
    argmax = [v for row in rows for v in row["violation_of_plain_argmax"]]
    print(f"{origin}; the exact frontier: {points} networks in {1e3 * seconds:.1f} ms\n")
    print(f"{'':<17}{'mean gap':>10}{'worst':>8}{'optimal':>9}{'violation':>11}{'seconds':>9}")
    for name, x in table.items():
        print(
            f"{name:<17}{x['mean_gap_percent']:>10.4f}{x['worst_gap_percent']:>8.3f}{x['optimal_share']:>9.0%}"
            f"{x['worst_violation_ms']:>11.1e}{x['median_seconds']:>9.3f}"
        )
    results = {
        "problem": origin, "frontier_points": points, "frontier_seconds": seconds, "seeds": len(SEEDS),
        "summary": table, "plain_argmax_over_budget_share": sum(v > 1e-9 for v in argmax) / len(argmax),
        "plain_argmax_worst_violation": max(argmax), "budgets": rows,
    }  # fmt: skip
    over = results["plain_argmax_over_budget_share"]
    print(f"\nplain argmax of algorithm 1 is over the budget in {over:.0%} of runs, by up to {max(argmax):.1%}")
    figure = ROOT / "reproduce/figures/binas_optimisers.png"
    draw(rows, seconds, figure)
    print(f"written: {record('binas_optimisers', results)}, {figure}")


if __name__ == "__main__":
    main()
