"""Table 7 and figure 1 of NASI: approximations of the NTK's trace on the three spaces of NAS-Bench-1Shot1.

Table 7: Pearson correlation over random networks of the mini-batch's squared gradient norm (equation 12, batches of 4
to 128) and of the sum of per-image norms (first part of 11) with the exact trace (9). Figure 1: the same with random
for true labels, and Gaussian for true images. Real CIFAR-10 images.

What differs from the paper, which leaves most of it unsaid: three cells of eight channels a node (the benchmark: nine
of 16), images averaged to 16 pixels, no batch-norm and Kaiming-normal weights (this package's defaults for NASI), the
exact trace on 64 of the 128 images, 40 networks a space.

One core. Run: SARTOR_TEST_DATA=.../data python reproduce/nasi_table7.py [networks]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import record  # noqa: E402

from sartor.engine.curvature import batch_trace, exact_trace, prepare, sum_trace  # noqa: E402
from sartor.spaces.nasbench1shot1 import NasBench1Shot1  # noqa: E402
from sartor.task import Task  # noqa: E402

DATA = Path(os.environ.get("SARTOR_TEST_DATA", "../shared/data"))
BATCHES, EXACT, TASK = (4, 8, 16, 32, 64, 128), 64, Task(10, 16)
PAPER = {
    "S1": {4: 0.74, 8: 0.80, 16: 0.84, 32: 0.83, 64: 0.85, 128: 0.86, "sum": 0.88, "labels": 1.00, "images": 0.94},
    "S2": {4: 0.82, 8: 0.87, 16: 0.90, 32: 0.89, 64: 0.91, 128: 0.91, "sum": 0.92, "labels": 1.00, "images": 0.95},
    "S3": {4: 0.66, 8: 0.74, 16: 0.81, 32: 0.79, 64: 0.82, 128: 0.84, "sum": 0.87, "labels": 1.00, "images": 0.94},
}


def images() -> tuple[torch.Tensor, torch.Tensor]:
    with np.load(DATA / "cifar10/cifar10_train_part0.npz") as data:
        index = np.random.default_rng(0).choice(len(data["y"]), max(BATCHES), replace=False)
        x = F.avg_pool2d(torch.from_numpy(data["x"][index]).permute(0, 3, 1, 2).float(), 2)
        y = torch.from_numpy(data["y"][index].astype(np.int64))
    return (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True), y


def measured(variant: str, networks: int, x: torch.Tensor, y: torch.Tensor) -> dict[str, list[float]]:
    """Every form of the trace for every network."""
    space, rng = NasBench1Shot1(variant=variant).sketch(), np.random.default_rng(1)
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(x.shape, generator=generator)
    labels = torch.randint(10, y.shape, generator=generator)
    found: dict[str, list[float]] = {}
    for n in range(networks):
        net = space.network(space.sample(rng), TASK)
        prepare(net, "kaiming", "off", 1.0, n)
        values = {str(b): batch_trace(net, x[:b], y[:b]) for b in BATCHES}
        values["sum"] = sum_trace(net, x[:EXACT], y[:EXACT])
        values["exact"] = exact_trace(net, x[:EXACT], chunk=16)
        values["labels"] = batch_trace(net, x[:64], labels[:64])
        values["images"] = batch_trace(net, noise[:64], y[:64])
        for name, value in values.items():
            found.setdefault(name, []).append(value)
    return found


def main(networks: float = 40) -> None:
    torch.set_num_threads(1)
    x, y = images()
    results: dict[str, Any] = {"networks": int(networks)}
    for variant, paper in PAPER.items():
        start = time.process_time()
        values = measured(variant, int(networks), x, y)
        entry = {}
        for name, theirs in paper.items():
            against = values["64"] if name in ("labels", "images") else values["exact"]
            ours = float(stats.pearsonr(values[str(name)], against).statistic)
            rank = float(stats.spearmanr(values[str(name)], against).statistic)
            entry[str(name)] = {"ours": round(ours, 3), "paper": theirs, "spearman": round(rank, 3)}
        results[variant] = entry | {"cpu_seconds": round(time.process_time() - start, 1)}
        print(variant, {k: (v["ours"], v["paper"]) for k, v in entry.items()}, flush=True)
        record("nasi_table7", results)


if __name__ == "__main__":
    main(*(float(a) for a in sys.argv[1:2]))
