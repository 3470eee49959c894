"""Spearman and Kendall of every training-free proxy with CIFAR-10 accuracy on NAS-Bench-201, beside published values.

Two settings of random cells with PyTorch's default initialisation and batch-norm on batch statistics (SynFlow and the
NTK's trace: none), every cell with weights and with a batch of real CIFAR-10 images of its own:

published  the benchmark's own networks (five cells a stage, 16 channels), 64 images: what Abdelfattah et al.
           (arXiv:2101.08134) measured, apart from their random crops and flips
sketch     the small networks that `sartor score` looks at (one cell a stage, 8 channels), 32 images

Parameters, FLOPs and layers are those of the benchmark's networks. What is not finite ranks last. Aggregates are rank
aggregates (`proxies/aggregate.py`); the set is chosen on one half of the cells and judged on the other half; only
CIFAR-10 columns are used.

Run: SARTOR_TEST_DATA=.../data python reproduce/nasi_proxies.py [--setting published] [--cells 2000] [--device cuda]
[--workers 8] [--minutes 10], then the same with --speeds and nothing else running: networks a second of every proxy.
What is measured is kept in runs/parts: a run goes on where one was stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nasi_data import Cifar, Lines, nasbench201, spread
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import record  # noqa: E402

from sartor.bench.tables import Table  # noqa: E402
from sartor.core.arch import Arch  # noqa: E402
from sartor.core.registry import PROXIES  # noqa: E402
from sartor.core.task import Task  # noqa: E402
from sartor.costs.macs import Macs  # noqa: E402
from sartor.costs.params import Params  # noqa: E402
from sartor.proxies.aggregate import aggregate  # noqa: E402
from sartor.spaces.nasbench201.space import NasBench201  # noqa: E402

TASK, TIMED = Task(10, 32), 20
SETTINGS = {"published": (5, 16, 64), "sketch": (1, 8, 32)}  # cells a stage, channels, images
TARGETS = ("cifar10_test_200", "cifar10valid_oritest_200")
PUBLISHED = {"grad_norm": 0.594, "snip": 0.596, "grasp": 0.514, "fisher": 0.360, "synflow": 0.737, "jacob_cov": 0.731,
             "flops": 0.799}  # fmt: skip
MEASURED: dict[str, Any] = {
    **{n: PROXIES[n]() for n in ("synflow", "naswot", "jacob_cov", "expressivity", "zico", "grad_norm", "snip")},
    "fisher": PROXIES["fisher"](),
    "ntk_trace": PROXIES["ntk_trace"](init="kaiming", norm="off"),
    "grasp": PROXIES["grasp"](),
}  # fmt: skip


def measured(row: int, table: Table, setting: str, images: Cifar, seconds: dict[str, float] | None = None) -> Any:
    """Every proxy of one cell, and how long each took."""
    cells, channels, count = SETTINGS[setting]
    torch.manual_seed(row)
    net = NasBench201(cells=cells, channels=channels).network(Arch(tuple(table.picks[row].tolist())), TASK)
    net, (x, y) = net.to(images.device), images.batch(count, row)
    values = {}
    for name, proxy in MEASURED.items():
        start = time.perf_counter()
        try:
            values[name] = proxy(net, x, y)
        except torch.linalg.LinAlgError:  # no eigenvalues: ranks last
            values[name] = float("nan")
        if seconds is not None:
            seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
    return values


def work(a: argparse.Namespace) -> None:
    """Measure the cells of one worker."""
    torch.set_num_threads(1)
    shard, shards = (int(n) for n in a.shard.split("/"))
    table, images, lines = nasbench201(), Cifar(a.device), Lines(f"nasi_proxies_{a.setting}", shard, shards)
    end = time.monotonic() + 60 * a.minutes
    for row in lines.mine(sampled(table, a.cells)):
        if time.monotonic() > end:
            break
        lines.add(key=row, values=measured(row, table, a.setting, images))


def sampled(table: Table, cells: int) -> list[int]:
    order: list[int] = np.random.default_rng(0).permutation(len(table)).tolist()
    return order[:cells]


def speeds(setting: str, device: str) -> dict[str, float]:
    """Networks a second of every proxy, alone on the device; the first cells only warm up."""
    torch.set_num_threads(1)
    table, images = nasbench201(), Cifar(device)
    for row in sampled(table, 3):
        measured(row, table, setting, images)
    seconds: dict[str, float] = {}
    for row in sampled(table, TIMED):
        measured(row, table, setting, images, seconds)
    return {name: TIMED / s for name, s in seconds.items()}


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    return float(stats.spearmanr(a, b).statistic)


def interval(v: np.ndarray, target: np.ndarray, draws: int = 200) -> list[float]:
    """95 % of bootstrapped Spearman correlations."""
    rng = np.random.default_rng(0)
    found = [spearman(v[i], target[i]) for i in rng.integers(len(v), size=(draws, len(v)))]
    return [round(float(q), 3) for q in np.quantile(found, (0.025, 0.975))]


def chosen(columns: dict[str, np.ndarray], target: np.ndarray, most: int = 5) -> dict[str, Any]:
    """The best aggregate of up to `most` proxies on the even cells, judged on the odd ones."""
    fit, judge = np.arange(len(target)) % 2 == 0, np.arange(len(target)) % 2 == 1
    best: tuple[float, tuple[str, ...], str] = (-1.0, (), "log")
    for size in range(2, most + 1):
        for names in itertools.combinations(columns, size):
            for how in ("log", "mean"):
                value = spearman(aggregate({n: columns[n][fit] for n in names}, how), target[fit])
                best = max(best, (value, names, how))
    value, names, how = best
    held = aggregate({n: columns[n][judge] for n in names}, how)
    return {"proxies": names, "how": how, "chosen_on": value, "held_out": spearman(held, target[judge]),
            "all": spearman(aggregate({n: columns[n] for n in names}, how), target)}  # fmt: skip


def summary(lines: list[dict[str, Any]], setting: str, table: Table) -> dict[str, Any]:
    rows = np.array([line["key"] for line in lines])
    picks, space = table.picks[rows], NasBench201()
    columns = {n: np.array([line["values"][n] for line in lines]) for n in MEASURED}
    columns["flops"] = Macs().table(space, TASK).form.batch(picks)
    columns["params"] = Params().table(space, TASK).form.batch(picks)
    columns["layers"] = ((picks == 2) | (picks == 3)).sum(1).astype(float)
    main, half = (table.column(t)[rows] for t in TARGETS)
    found: dict[str, Any] = {}
    for name, v in columns.items():
        ranks = stats.rankdata(np.where(np.isfinite(v), v, -np.inf))
        found[name] = {
            "spearman": spearman(ranks, main), "interval": interval(ranks, main),
            "kendall": float(stats.kendalltau(ranks, main).statistic), "spearman_25k": spearman(ranks, half),
            "published": PUBLISHED.get(name), "not_finite": int((~np.isfinite(v)).sum()),
        }  # fmt: skip
    trace = columns["ntk_trace"]
    below = trace < trace.mean()
    found["ntk_trace"]["conditioned"] = {"cells": int(below.sum()), "spearman": spearman(trace[below], main[below])}
    cells, channels, count = SETTINGS[setting]
    return {"setting": setting, "cells": len(rows), "batch": count, "cells_a_stage": cells, "channels": channels,
            "targets": TARGETS, "proxies": found, "best_single": max(columns, key=lambda n: found[n]["spearman"]),
            "aggregate": chosen(columns, main)}  # fmt: skip


def correlated(a: argparse.Namespace) -> None:
    """All workers, then the table of correlations; speeds of an earlier run are kept."""
    start = time.monotonic()
    failed = spread(a.workers)
    seconds, table, before = time.monotonic() - start, nasbench201(), recorded(a.setting)
    wanted = set(sampled(table, a.cells))
    lines = {line["key"]: line for line in Lines(f"nasi_proxies_{a.setting}").all() if line["key"] in wanted}
    results = summary([lines[key] for key in sorted(lines)], a.setting, table)
    results |= {"seconds_of_this_run": round(seconds, 1), "workers": a.workers, "failed_workers": failed,
                "device": a.device, "networks_per_second": before.get("networks_per_second", {})}  # fmt: skip
    record(f"nasi_proxies_{a.setting}", results)
    for name, entry in sorted(results["proxies"].items(), key=lambda e: -e[1]["spearman"]):
        print(f"{name:<14}{entry['spearman']:7.3f} {entry['interval']}  published {entry['published']}")
    print(len(lines), "cells", results["aggregate"], flush=True)


def timed(a: argparse.Namespace) -> None:
    """Networks a second on one core and on the device, put beside the correlations."""
    results = recorded(a.setting)
    for device in dict.fromkeys(("cpu", a.device)):
        results.setdefault("networks_per_second", {})[device] = found = speeds(a.setting, device)
        print(device, {name: round(value, 1) for name, value in found.items()}, flush=True)
    record(f"nasi_proxies_{a.setting}", results)


def recorded(setting: str) -> dict[str, Any]:
    path = ROOT / f"benchmarks/results/nasi_proxies_{setting}.json"
    found: dict[str, Any] = json.loads(path.read_text())["results"] if path.exists() else {}
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--setting", choices=SETTINGS, default="published")
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--shard", help="I/N: only the cells of worker I of N, and no summary")
    parser.add_argument("--speeds", action="store_true", help="only time every proxy, with nothing else running")
    a = parser.parse_args()
    if a.shard:
        work(a)
    elif a.speeds:
        timed(a)
    else:
        correlated(a)


if __name__ == "__main__":
    main()
