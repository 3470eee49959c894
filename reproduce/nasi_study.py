"""NASI on NAS-Bench-201, CIFAR-10: what the paper leaves open, studied.

Every setting that changes the gradients (initialisation and its scale, batch-norm, depth, width, batch, labels, images,
whether `none` is drawn) is searched afresh, seed by seed; the gradients of every step are kept, so that mu, nu and the
number of steps are compared on the same ones. Only the column ``cifar10_test_200`` decides. Beside it: random search
and the space's mean.

One core. Run: SARTOR_TEST_DATA=.../data python reproduce/nasi_study.py [minutes]
Settings come in the order of their importance; those that the minutes do not reach are named, and the next run goes on
there (delete benchmarks/results/nasi_study.json to begin anew).
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import record  # noqa: E402

from sartor.core.arch import Arch  # noqa: E402
from sartor.core.seeds import Seeds  # noqa: E402
from sartor.core.task import Task  # noqa: E402
from sartor.methods.nasi import NASI, Reward, _noise, _smaller  # noqa: E402
from sartor.spaces.nasbench201.space import NasBench201  # noqa: E402

DATA = Path(os.environ.get("SARTOR_TEST_DATA", "../shared/data"))
LONG, SHORT = 200, 60  # steps
TEN, FOUR = range(100, 110), range(100, 104)  # none of the seeds that the defaults were looked for with
# name: (seeds, steps, options of the method, options of the sketch); where nothing is said: the defaults
SETTINGS: dict[str, tuple[range, int, dict[str, Any], dict[str, Any]]] = {
    "default": (TEN, LONG, {}, {}),
    "gaussian images": (TEN, LONG, {"images": "gaussian"}, {}),
    "random labels": (TEN, LONG, {"labels": "random"}, {}),
    "one draw of weights": (FOUR, SHORT, {"redraw": 0}, {}),
    "kaiming, batch-norm": (FOUR, SHORT, {"norm": "batch"}, {}),
    "pytorch default, batch-norm": (FOUR, SHORT, {"init": "default", "norm": "batch"}, {}),
    "pytorch default": (FOUR, SHORT, {"init": "default"}, {}),
    "lecun (1 / fan-in)": (FOUR, SHORT, {"init": "lecun"}, {}),
    "xavier": (FOUR, SHORT, {"init": "xavier"}, {}),
    "kaiming x 1.2": (FOUR, SHORT, {"gain": 1.2}, {}),
    "kaiming x 0.8": (FOUR, SHORT, {"gain": 0.8}, {}),
    "with none": (FOUR, SHORT, {"without": ()}, {}),
    "mean squared error": (FOUR, SHORT, {"loss": "mse"}, {}),
    "two cells a stage": (FOUR, SHORT, {}, {"sketch_cells": 2}),
    "4 channels": (FOUR, SHORT, {}, {"sketch_channels": 4}),
    "16 channels": (FOUR, SHORT, {}, {"sketch_channels": 16}),
    "batch 64": (FOUR, SHORT, {"batch": 64}, {}),
    "images of 16 pixels": (FOUR, SHORT, {"side": 16}, {}),
}


def accuracies() -> tuple[np.ndarray, np.ndarray]:
    """Accuracy at every cell, indexed by its six picks, and the same as a sorted list."""
    table, space = np.zeros((5,) * 6), NasBench201()
    with gzip.open(DATA / "nasbench201/nasbench201.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            table[space.read(row["arch"]).picks] = float(row["cifar10_test_200"])
    return table, np.sort(table.flatten())


def images() -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(DATA / "cifar10/cifar10_train_part0.npz") as data:
        x = torch.from_numpy(data["x"]).permute(0, 3, 1, 2).float()
        y = torch.from_numpy(data["y"].astype(np.int64))
    return (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True), y


def source(method: NASI, seeds: Seeds, pool: tuple[torch.Tensor, torch.Tensor]) -> Any:
    x, y = pool

    def draw(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        rng = seeds.rng("nasi images", int(step < 0), abs(step))
        index = rng.choice(len(x), method.batch, replace=False)
        return x[index], y[index] if method.labels == "true" else torch.from_numpy(rng.integers(10, size=method.batch))

    task = Task(10, method.side)
    return _smaller(draw, 32 // method.side) if method.images == "true" else _noise(task, method.batch, seeds, "cpu")


def searched(seed: int, steps: int, method: NASI, space: NasBench201, pool: Any) -> dict[str, Any]:
    """The gradients of all steps and x of equation 40's networks."""
    start, seeds = time.process_time(), Seeds(seed)
    reward = Reward(method, space, Task(10, method.side), seeds, source(method, seeds, pool), "cpu")
    around = [reward.size(-1 - n) for n in range(method.nu_networks)]
    seen = [reward(step) for step in range(steps)]
    return {"reward": reward, "around": around, "seen": seen, "seconds": time.process_time() - start}


def chosen(run: dict[str, Any], method: NASI, steps: int, scale: float) -> tuple[int, ...]:
    delta, _ = method.delta(run["seen"][:steps], scale * float(np.mean(run["around"])))
    score = run["reward"].quadratic(delta)
    return tuple(int(np.argmax(score.linear[i])) for i in range(6))


def variants(most: int) -> dict[str, tuple[dict[str, Any], int, float]]:
    """Options of the method, steps, scale of nu: evaluated on the same gradients."""
    found = {f"mu {mu:g}": ({"mu": float(mu)}, most, 0.5) for mu in (2, 1.5, 1, 0, 3)}
    found |= {f"nu x {s:g}": ({}, most, s) for s in (0.1, 0.25, 0.75, 1.0, 1.5, 2.0)}
    found |= {f"{t} steps": ({}, t, 0.5) for t in (10, 20, 30, 60, 100) if t < most}
    return found | {"adaptive nu": ({"nu": "adaptive"}, most, 1.0)}


def summary(values: list[float], order: np.ndarray) -> dict[str, Any]:
    ranks = [int(len(order) - np.searchsorted(order, v, "right") + 1) for v in values]
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)), "least": min(values),
            "best": max(values), "accuracies": values, "ranks": ranks}  # fmt: skip


def main(minutes: float = 30.0) -> None:
    torch.set_num_threads(1)
    table, order = accuracies()
    pool, end = images(), time.monotonic() + 60 * minutes
    kept = ROOT / "benchmarks/results/nasi_study.json"
    done = json.loads(kept.read_text())["results"]["settings"] if kept.exists() else {}
    results: dict[str, Any] = {"settings": done, "not_reached": [n for n in SETTINGS if n not in done]}
    results |= baselines(order)
    for name, (seeds, steps, options, sketch) in SETTINGS.items():
        if name in done:
            continue
        if time.monotonic() > end:
            break
        method, space = NASI(**options), NasBench201(**sketch)
        runs = [searched(seed, steps, method, space, pool) for seed in seeds]
        entry: dict[str, Any] = {
            "steps": steps,
            "cpu_seconds": float(np.mean([r["seconds"] for r in runs])),
            "x_median": float(np.median([x for r in runs for x, _ in r["seen"]])),
            "mean_of_x": float(np.mean([np.mean(r["around"]) for r in runs])),
        }
        for variant, (changes, most, scale) in variants(steps).items():
            judge = NASI(**{**options, **changes})
            entry[variant] = summary([float(table[chosen(r, judge, most, scale)]) for r in runs], order)
        entry["cells"] = [space.describe(Arch(chosen(r, method, steps, 0.5))) for r in runs]
        results["settings"][name] = entry
        results["not_reached"].remove(name)
        print(
            f"{name}: {entry['mu 2']['mean']:.2f} +- {entry['mu 2']['std']:.2f}, {entry['cpu_seconds']:.1f} s",
            flush=True,
        )
        record("nasi_study", results)


def baselines(order: np.ndarray) -> dict[str, Any]:
    """The space's mean and best, and a uniformly random cell (what `--method random` returns without a budget)."""
    rng = np.random.default_rng(0)
    return {"space_mean": float(order.mean()), "space_best": float(order[-1]),
            "random_search": summary(rng.choice(order, 10).tolist(), order)}  # fmt: skip


if __name__ == "__main__":
    main(*(float(a) for a in sys.argv[1:2]))
