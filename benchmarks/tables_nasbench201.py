"""`sartor tables` on NAS-Bench-201: a score from 500 random cells, its ranking of the other 15,125, three frontiers.

Each frontier is against a device's latency that is itself fitted to the same 500 cells. What it is
worth is read off the benchmark: the true accuracy and latency of the cells it proposes, beside the
true frontier of all 15,625. One core. Run: SARTOR_TEST_DATA=... python benchmarks/tables_nasbench201.py
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _record import parser, record
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
from tables_nasbench201 import DEVICES, convert, data_folder

from sartor.solvers.pareto import pareto
from sartor.tables.files import Cost, read_samples, read_space
from sartor.tables.fit import check_tables, fit_tables, frontier_tables

SEEDS = range(3)


def truth(folder: Path, choices, target):
    """Picks and values of all 15,625 cells."""
    parts = [read_samples(folder / f"{name}.csv", choices, target) for name in ("samples", "held_out")]
    return np.concatenate([p.picks for p in parts]), np.concatenate([p.values for p in parts])


def regret(cost, score, mine):
    """How far below the true frontier, in percent of accuracy, the best proposed cell is at 20 true budgets."""
    best = pareto(cost, score)
    low, high = max(cost[best].min(), cost[mine].min()), cost[best].max()
    gaps = []
    for budget in np.linspace(low, high, 20):
        gaps.append(score[best][cost[best] <= budget].max() - score[mine][cost[mine] <= budget].max())
    return gaps


def one(seed: int, folder: Path, root: Path) -> dict:
    convert(root, folder, 500, seed)
    choices = read_space(folder / "space.toml")
    start = time.perf_counter()
    score = fit_tables(choices, read_samples(folder / "samples.csv", choices, "top1"), seed=seed)
    seconds = time.perf_counter() - start
    ranking = check_tables(choices, score, read_samples(folder / "held_out.csv", choices, "top1"), seed=seed)
    picks, accuracy = truth(folder, choices, "top1")
    where = {tuple(p): n for n, p in enumerate(picks.tolist())}
    devices = {}
    for device in DEVICES:
        fitted = fit_tables(choices, read_samples(folder / "samples.csv", choices, device), unit="ms", seed=seed)
        _, latency = truth(folder, choices, device)
        start = time.perf_counter()
        points = frontier_tables(choices, score, {"latency": Cost("latency", fitted.form, "time", "ms")})
        drawn = time.perf_counter() - start
        mine = np.array([where[tuple(p)] for p in points.front.picks.tolist()])
        gaps = regret(latency, accuracy, mine)
        devices[device] = {
            "latency_predictor": fitted.facts["predictor"],
            "latency_spearman": float(stats.spearmanr(fitted.form.batch(picks), latency).statistic),
            "latency_median_relative_error": float(np.median(np.abs(fitted.form.batch(picks) / latency - 1))),
            "frontier_points": len(points.front),
            "complete": points.complete,
            "frontier_seconds": drawn,
            "true_accuracy_of_the_best_proposed": float(accuracy[mine].max()),
            "mean_regret_percent": float(np.mean(gaps)),
            "worst_regret_percent": float(np.max(gaps)),
        }
    return {
        "seed": seed,
        "predictor": score.facts["predictor"],
        "fitted_to": score.facts["fitted_to"],
        "held_out_in_turn": {k: v["kendall"]["value"] for k, v in score.facts["held_out"].items()},
        "fit_seconds": seconds,
        "ranking_of_the_others": ranking,
        "devices": devices,
    }


def main() -> None:
    parser(__doc__).parse_args()
    root = data_folder()
    if root is None:
        print("skipped: set SARTOR_TEST_DATA to the folder that holds nasbench201 and nasbench201_hw.")
        return
    rows = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(one(seed, Path(folder), root))
        ranking = rows[-1]["ranking_of_the_others"]
        print(f"seed {seed}: Kendall {ranking['kendall']['value']:.3f}, Spearman {ranking['spearman']['value']:.3f}")
        for name, found in rows[-1]["devices"].items():
            best, mean = found["true_accuracy_of_the_best_proposed"], found["mean_regret_percent"]
            likeness = f"{found['frontier_points']:>3} points, latency Spearman {found['latency_spearman']:.3f}"
            print(f"  {name:<10} {likeness}, mean regret {mean:.2f} %, best {best:.2f} %")
    path = record("tables_nasbench201", {"samples": 500, "cells": 15_625, "best_accuracy": 94.3733, "seeds": rows})
    print(f"written: {path}")


if __name__ == "__main__":
    main()
