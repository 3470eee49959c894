"""NASI on NAS-Bench-201 and on NAS-Bench-1Shot1's S1 to S3: what the paper leaves open, studied.

Settings that change the gradients (initialisation, batch-norm, one draw of the weights or many) are searched afresh
with a few seeds, the gradients of every step are kept, and mu, nu, the normalisation of a step and whether cells with
unread nodes may be chosen are compared on the same ones. What decides is no column that a table of the paper reports:
the test accuracy of NAS-Bench-201's networks when trained on half of the images (other trainings, the same test
images), the validation accuracy of 1Shot1's, as the share of the listed networks that are better, averaged over the
four spaces. The defaults are what came first.

    SARTOR_TEST_DATA=.../data python reproduce/nasi_study.py   # about 4 minutes a setting, one core

Gradients are kept under runs/nasi_study, so a run that was stopped goes on. What the defaults are worth, by the columns
that the paper reports and with other seeds: benchmarks/nasi_search.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import parser, record  # noqa: E402
from nasi_data import DATA, Cifar, nasbench201  # noqa: E402

from sartor.bench.tables import Table, read_table  # noqa: E402
from sartor.core.seeds import Seeds  # noqa: E402
from sartor.core.task import Task  # noqa: E402
from sartor.methods.nasi import NASI, Reward, _smaller  # noqa: E402
from sartor.spaces.base import Space  # noqa: E402
from sartor.spaces.nasbench1shot1.space import NasBench1Shot1  # noqa: E402
from sartor.spaces.nasbench201.space import NasBench201  # noqa: E402

KEPT = ROOT / "runs/nasi_study"
SEEDS, STEPS = range(4), 120
NAMES = ("NAS-Bench-201", "S1", "S2", "S3")
SETTINGS: dict[str, dict[str, Any]] = {
    "kaiming, no norm": {"init": "kaiming", "norm": "off"},
    "default, batch-norm": {"init": "default", "norm": "batch"},
    "default, batch-norm, one draw": {"init": "default", "norm": "batch", "redraw": 0},
}


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A space, its table, the column that may decide and the one that is reported."""

    space: Space
    table: Table
    decides: str
    reports: str


@cache
def benchmark(name: str) -> Benchmark:
    if name == "NAS-Bench-201":
        return Benchmark(NasBench201(), nasbench201(), "cifar10valid_oritest_200", "cifar10_test_200")
    space = NasBench1Shot1(variant=name)  # type: ignore[arg-type]
    table = read_table([DATA / "nasbench101_subset/nasbench101_subset.npz"], space)
    return Benchmark(space, table, "val", "test")


def gradients(setting: str, name: str, seed: int, images: Cifar) -> dict[str, NDArray[np.float64]]:
    """The values x and their slopes at every step, and x of equation 40's networks; computed once."""
    path = KEPT / f"{setting} {name} {seed}.npz"
    if not path.exists():
        method, space = NASI(**SETTINGS[setting]), benchmark(name).space

        def draw(step: int) -> tuple[torch.Tensor, torch.Tensor]:
            return images.batch(method.batch, seed, int(step < 0), abs(step))

        reward = Reward(method, space, Task(10, method.side), Seeds(seed), _smaller(draw, 32 // method.side), "cpu")
        around = [reward.size(-1 - n) for n in range(method.nu_networks)]
        seen = [reward(step) for step in range(STEPS)]
        KEPT.mkdir(parents=True, exist_ok=True)
        np.savez(path, around=around, x=[x for x, _ in seen], slopes=torch.stack([s for _, s in seen]).numpy())
    with np.load(path) as data:
        return dict(data)


def variants() -> list[dict[str, Any]]:
    """What is compared on the same gradients."""
    limits = [("median", 0.5), ("median", 1.0), ("fixed", 0.5), ("fixed", 1.0), ("adaptive", 1.0), ("adaptive", 5.0)]
    found: list[dict[str, Any]] = [{"mu": mu, "nu": nu, "nu_scale": s} for mu in (1.0, 1.5, 2.0) for nu, s in limits]
    return [{**v, "normalise": n} for v in [*found, {"mu": 0.0}] for n in ("each", "largest")]


class Shares:
    """Of the networks chosen in a space: the share of the listed ones that the deciding column puts above them."""

    def __init__(self, name: str) -> None:
        self.benchmark = benchmark(name)
        space, table = self.benchmark.space, self.benchmark.table
        self.value = table.column(self.benchmark.decides)
        self.known = np.isfinite(self.value)
        self.order = np.sort(self.value[self.known])
        self.ruled = self.known.copy()
        for rule in space.rules:
            self.ruled &= rule.form.batch(table.picks) >= rule.low - 1e-9
        self.drawn = [np.array([o not in NASI.without for o in c.options]) for c in space.choices]

    def of(self, method: NASI, kept: dict[str, NDArray[np.float64]]) -> tuple[float, float]:
        """For the best cell by Delta* of which every node is read, and for the best of all."""
        nu = float(np.median(kept["around"]) if method.nu == "median" else np.mean(kept["around"]))
        seen = list(zip(kept["x"].tolist(), torch.from_numpy(kept["slopes"]), strict=True))
        total = self.totals(method.delta(seen, nu * (method.nu_scale or 1.0))[0].numpy())
        best = [int(np.argmax(np.where(among, total, -np.inf))) for among in (self.ruled, self.known)]
        return self.above(best[0]), self.above(best[1])

    def totals(self, delta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Delta* of every listed network; what is not drawn comes last."""
        picks, total, start = self.benchmark.table.picks, np.zeros(len(self.known)), 0
        for i, drawn in enumerate(self.drawn):
            values = np.where(drawn, delta[start : start + len(drawn)], -2.0)
            total, start = total + values[picks[:, i]], start + len(drawn)
        return total

    def above(self, row: int) -> float:
        """The share of the listed networks that the deciding column puts above this one."""
        return float(1 - np.searchsorted(self.order, self.value[row], "right") / len(self.order))


def main() -> None:
    parser(__doc__).parse_args()
    torch.set_num_threads(1)
    images, shares, rows = Cifar(), {name: Shares(name) for name in NAMES}, []
    for setting, options in SETTINGS.items():
        kept = {(name, seed): gradients(setting, name, seed, images) for name in NAMES for seed in SEEDS}
        for variant in variants():
            method = NASI(**options, **variant)
            found = {n: np.mean([shares[n].of(method, kept[n, s]) for s in SEEDS], 0) for n in NAMES}
            for which, unread in enumerate(("all nodes read", "any cell")):
                each = {name: float(v[which]) for name, v in found.items()}
                row = {"setting": setting, **variant, "cells": unread, "share_above": each}
                rows.append({**row, "mean": float(np.mean(list(each.values())))})
        rows.sort(key=lambda r: r["mean"])
        best = next(r for r in rows if r["setting"] == setting)
        print({k: v for k, v in best.items() if k != "setting"}, setting, flush=True)
        record("nasi_study", {"seeds": len(SEEDS), "steps": STEPS, "compared": len(rows), "settings": rows})


if __name__ == "__main__":
    main()
