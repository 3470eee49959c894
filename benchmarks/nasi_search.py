"""A NASI search on NAS-Bench-201: how long, and which CIFAR-10 accuracy, with images and labels, and without.

Ten seeds that took no part in choosing the defaults (those of reproduce/nasi_study.py). Wall-clock seconds of a whole
search, supernet and random networks for nu included, after one short search that warms the device up.

Run: SARTOR_TEST_DATA=.../data python benchmarks/nasi_search.py [--device cuda] [--seeds 10] [--threads 2]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _record import record

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reproduce"))
from nasi_data import Cifar, nasbench201

from sartor.core.arch import Arch
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.methods.nasi import NASI, Source
from sartor.spaces.nasbench201.space import NasBench201

VARIANTS: dict[str, dict[str, Any]] = {
    "real images and labels": {},
    "random labels": {"labels": "random"},
    "gaussian images, random labels": {"images": "gaussian"},
}
FIRST = 100


def source(method: NASI, images: Cifar, seed: int) -> Source | None:
    if method.images == "gaussian":
        return None

    def draw(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = images.batch(method.batch, seed, int(step < 0), abs(step))
        if method.labels == "random":
            y = torch.from_numpy(np.random.default_rng([seed, 7, abs(step)]).integers(10, size=len(y))).to(y.device)
        return x, y

    return draw


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    space, task, table, images = NasBench201(), Task(10, 32), nasbench201(), Cifar(a.device)
    accuracy = table.column("cifar10_test_200")
    start = time.perf_counter()
    NASI(steps=3, nu_networks=2).at_initialisation(space, task, Seeds(0), None, a.device)
    warm = time.perf_counter() - start
    results: dict[str, Any] = {"device": a.device, "threads": a.threads, "warming_up_seconds": round(warm, 2)}
    for name, options in VARIANTS.items():
        method, runs = NASI(**options), []
        for seed in range(FIRST, FIRST + a.seeds):
            start = time.perf_counter()
            score, _ = method.at_initialisation(space, task, Seeds(seed), source(method, images, seed), a.device)
            seconds = time.perf_counter() - start
            row = table.row(Arch(tuple(int(np.argmax(score.linear[i])) for i in range(6))))
            assert row is not None
            runs.append({"seed": seed, "accuracy": float(accuracy[row]), "seconds": round(seconds, 3)})
        reached = [r["accuracy"] for r in runs]
        results[name] = {
            "mean": float(np.mean(reached)), "std": float(np.std(reached, ddof=1)) if len(runs) > 1 else 0.0,
            "seconds": float(np.mean([r["seconds"] for r in runs])), "runs": runs,
        }  # fmt: skip
        print(name, {k: round(v, 3) for k, v in results[name].items() if k != "runs"}, flush=True)
        record(f"nasi_search_{a.device}", results)


if __name__ == "__main__":
    main()
