"""Spearman and Kendall of every training-free proxy with CIFAR-10 accuracy on NAS-Bench-201, beside published values.

Setting: random cells, one cell a stage and 8 channels (the published values: five cells, 16), PyTorch's default
initialisation, batch-norm on batch statistics (SynFlow: none), one batch of 32 real CIFAR-10 images (published: 64),
a network of its own for every cell. Parameters, FLOPs and layers are those of the five-cell network. GraSP, which
costs as much as all others together, is measured on the first cells only; the result says on how many.

Aggregates are rank aggregates (`proxies/_aggregate.py`). The set is chosen on one half of the cells and judged on the
other half; only CIFAR-10 columns are used.

One core. Run: SARTOR_TEST_DATA=.../data python reproduce/nasi_proxies.py [minutes [cells]]
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import record  # noqa: E402

from sartor.arch import Arch  # noqa: E402
from sartor.costs.macs import Macs  # noqa: E402
from sartor.costs.params import Params  # noqa: E402
from sartor.data.tables import read_table  # noqa: E402
from sartor.proxies._aggregate import aggregate  # noqa: E402
from sartor.registry import PROXIES  # noqa: E402
from sartor.spaces.nasbench201 import NasBench201  # noqa: E402
from sartor.task import Task  # noqa: E402

DATA = Path(os.environ.get("SARTOR_TEST_DATA", "../shared/data"))
TASK, BATCH, GRASP = Task(10, 32), 32, 100
PUBLISHED = {"grad_norm": 0.594, "snip": 0.596, "grasp": 0.514, "fisher": 0.360, "synflow": 0.737, "jacob_cov": 0.731,
             "flops": 0.799}  # fmt: skip
MEASURED: dict[str, Any] = {
    **{n: PROXIES[n]() for n in ("synflow", "naswot", "jacob_cov", "expressivity", "zico", "grad_norm", "snip")},
    "fisher": PROXIES["fisher"](),
    "ntk_trace": PROXIES["ntk_trace"](init="kaiming", norm="off"),
    "grasp": PROXIES["grasp"](),
}  # fmt: skip


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(DATA / "cifar10/cifar10_train_part0.npz") as data:
        index = np.random.default_rng(1).choice(len(data["y"]), BATCH, replace=False)
        x = torch.from_numpy(data["x"][index]).permute(0, 3, 1, 2).float()
        y = torch.from_numpy(data["y"][index].astype(np.int64))
    return (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True), y


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    return float(stats.spearmanr(a, b).statistic)


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
    total = aggregate({n: columns[n] for n in names}, how)
    held = aggregate({n: columns[n][judge] for n in names}, how)
    return {"proxies": names, "how": how, "chosen_on": value, "held_out": spearman(held, target[judge]),
            "all": spearman(total, target)}  # fmt: skip


def summary(values: dict[str, list[float]], seconds: dict[str, float], picks: np.ndarray, acc: np.ndarray) -> Any:
    space, count = NasBench201(), len(picks)
    columns = {n: np.asarray(v) for n, v in values.items() if len(v) == count}
    columns["flops"] = Macs().table(space, TASK).form.batch(picks)
    columns["params"] = Params().table(space, TASK).form.batch(picks)
    columns["layers"] = ((picks == 2) | (picks == 3)).sum(1).astype(float)
    found: dict[str, Any] = {}
    for name, v in {**columns, **{n: np.asarray(v) for n, v in values.items() if len(v) < count}}.items():
        ranks = np.where(np.isfinite(v), v, -np.inf)
        found[name] = {
            "cells": len(v), "spearman": spearman(stats.rankdata(ranks), acc[: len(v)]),
            "kendall": float(stats.kendalltau(stats.rankdata(ranks), acc[: len(v)]).statistic),
            "published": PUBLISHED.get(name),
        }  # fmt: skip
        if name in seconds:
            found[name]["networks_per_second"] = len(v) / seconds[name]
    trace = columns["ntk_trace"]
    below = trace < trace.mean()
    found["ntk_trace"]["conditioned"] = {"cells": int(below.sum()), "spearman": spearman(trace[below], acc[below])}
    best = max(columns, key=lambda n: found[n]["spearman"])
    return {"cells": count, "batch": BATCH, "cells_a_stage": 1, "channels": 8, "proxies": found, "best_single": best,
            "aggregate": chosen(columns, acc)}  # fmt: skip


def main(minutes: float = 15.0, cells: float = 1000) -> None:
    torch.set_num_threads(1)
    space = NasBench201().sketch()
    table = read_table([DATA / "nasbench201/nasbench201.csv.gz"], space)
    rows = np.random.default_rng(0).choice(len(table), int(cells), replace=False)
    x, y = batch()
    values: dict[str, list[float]] = {n: [] for n in MEASURED}
    seconds, end = dict.fromkeys(MEASURED, 0.0), time.monotonic() + 60 * minutes
    for n, row in enumerate(rows):
        torch.manual_seed(n)
        net = space.network(Arch(tuple(table.picks[row].tolist())), TASK)
        for name, proxy in MEASURED.items():
            if name != "grasp" or n < GRASP:
                start = time.process_time()
                values[name].append(proxy(net, x, y))
                seconds[name] += time.process_time() - start
        if time.monotonic() > end:
            break
        if n % 50 == 49:
            print(n + 1, flush=True)
    done = rows[: len(values["synflow"])]
    results = summary(values, seconds, table.picks[done], table.column("cifar10_test_200")[done])
    record("nasi_proxies", results)
    for name, entry in sorted(results["proxies"].items(), key=lambda e: -e[1]["spearman"]):
        print(f"{name:<14}{entry['spearman']:7.3f}  published {entry['published']}")
    print(results["aggregate"])


if __name__ == "__main__":
    main(*(float(a) for a in sys.argv[1:3]))
