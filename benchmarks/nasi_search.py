"""NASI's defaults on NAS-Bench-201 and NAS-Bench-1Shot1: seconds, accuracy, and what needs no search beside it.

Ten seeds, and columns, that took no part in choosing the defaults (those of reproduce/nasi_study.py): test accuracy, as
tables 2 and 4 of the paper report it; by Delta* alone with images and labels, with random labels and without data, and
with parameters beside Delta*, which is the default (reproduce/nasi_beyond.py). Seconds are those of a whole search,
supernet and random networks for nu included. Beside it: the mean of all listed networks, of those of convolutions
alone, of those of 3x3 convolutions alone, and the one with most parameters.

    SARTOR_TEST_DATA=.../data python benchmarks/nasi_search.py [--device cuda] [--seeds 10] [--workers 1] [--only S1]

Every search is a line under runs/parts, so that a run which was stopped goes on.
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
from nasi_data import Cifar, Lines, spread
from nasi_study import NAMES, Benchmark, benchmark

from sartor.bench.run import Bench
from sartor.core.arch import Arch
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.methods.nasi import NASI, Source

VARIANTS: dict[str, dict[str, Any]] = {
    "images and labels": {"size": 0.0},
    "random labels": {"labels": "random", "size": 0.0},
    "no data": {"images": "gaussian", "size": 0.0},
    "with parameters": {},
}
FIRST, TASK = 100, Task(10, 32)


def source(method: NASI, images: Cifar, seed: int) -> Source | None:
    if method.images == "gaussian":
        return None

    def draw(step: int) -> tuple[torch.Tensor, torch.Tensor]:
        x, y = images.batch(method.batch, seed, int(step < 0), abs(step))
        if method.labels == "random":
            y = torch.from_numpy(np.random.default_rng([seed, 7, abs(step)]).integers(10, size=len(y))).to(y.device)
        return x, y

    return draw


def searched(on: Benchmark, variant: str, seed: int, images: Cifar) -> dict[str, Any]:
    """One search: the cell, its test accuracy, seconds."""
    start, method = time.perf_counter(), NASI(**VARIANTS[variant])
    score, _ = method.at_initialisation(on.space, TASK, Seeds(seed), source(method, images, seed), images.device)
    seconds = time.perf_counter() - start
    row = Bench(on.space, TASK, on.table, on.reports, {}).best(score)
    cell = on.space.describe(Arch(tuple(on.table.picks[row].tolist())))
    return {"accuracy": float(on.table.column(on.reports)[row]), "seconds": round(seconds, 2), "cell": cell}


def beside(on: Benchmark) -> dict[str, float]:
    """Test accuracy of what needs no search; means over the listed networks that obey the space's rules."""
    accuracy, picks = on.table.column(on.reports), on.table.picks
    keep = np.isfinite(accuracy)
    for rule in on.space.rules:
        keep &= rule.form.batch(picks) >= rule.low - 1e-9
    operations = [(i, c.options) for i, c in enumerate(on.space.choices) if any("conv" in o for o in c.options)]

    def made_of(name: str) -> float:
        fits = [np.array([name in o for o in options])[picks[:, i]] for i, options in operations]
        return float(accuracy[keep & np.logical_and.reduce(fits)].mean())

    sizes = next(v for n, v in on.table.columns.items() if n.startswith("params"))
    most = float(accuracy[keep & (sizes == sizes[keep].max())].mean())
    return {
        "all networks": float(accuracy[np.isfinite(accuracy)].mean()), "convolutions alone": made_of("conv"),
        "3x3 convolutions alone": made_of("conv_3x3" if "conv_3x3" in str(operations) else "conv3x3"),
        "most parameters": most, "best": float(np.nanmax(accuracy)),
    }  # fmt: skip


def summary(lines: Lines, device: str) -> None:
    """What is there so far."""
    found: dict[str, Any] = {}
    for name in NAMES:
        rows = [r for r in lines.all() if r["key"].startswith(f"{name}/")]
        found[name] = {"beside": beside(benchmark(name))}
        for variant in VARIANTS:
            runs = sorted((r for r in rows if r["key"].split("/")[1] == variant), key=lambda r: str(r["key"]))
            if runs:
                reached = [r["accuracy"] for r in runs]
                found[name][variant] = {
                    "mean": float(np.mean(reached)), "std": float(np.std(reached, ddof=1)) if len(runs) > 1 else 0.0,
                    "seeds": len(runs), "seconds": float(np.mean([r["seconds"] for r in runs])), "runs": runs,
                }  # fmt: skip
                print(name, variant, {k: v for k, v in found[name][variant].items() if k != "runs"})
        print(name, found[name]["beside"])
    print(record(f"nasi_search_{device}", {"threads": 1, **found}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", default="", help="keys that begin so: S1, S1/no data, ...")
    parser.add_argument("--shard", default="")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.workers > 1 and not args.shard:
        spread(args.workers)
    else:
        lines = Lines(f"nasi_search_{args.device}", *map(int, (args.shard or "0/1").split("/")))
        images = Cifar(args.device)
        keys = [f"{name}/{v}/{FIRST + s}" for v in VARIANTS for s in range(args.seeds) for name in NAMES]
        for key in lines.mine(k for k in keys if k.startswith(args.only)):
            name, variant, seed = key.split("/")
            lines.add(key=key, **searched(benchmark(name), variant, int(seed), images))
    if not args.shard:
        summary(lines if args.workers == 1 else Lines(f"nasi_search_{args.device}"), args.device)


if __name__ == "__main__":
    main()
