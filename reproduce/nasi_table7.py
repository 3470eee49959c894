"""Table 7 and figure 1 of NASI: approximations of the NTK's trace on the three spaces of NAS-Bench-1Shot1.

Table 7: Pearson correlation over random networks of the mini-batch's squared gradient norm (equation 12, batches of 4
to 128) and of the sum of per-image norms (first part of 11) with the exact trace (9). Figure 1: the same with random
for true labels, and Gaussian for true images, at batches of 64. Real CIFAR-10 images.

The paper leaves the setting unsaid. The one here is the benchmark's own network (nine cells, 16 channels) with
PyTorch's initialisation. Mini-batches are as in a search, with batch-norm on their own statistics; they are drawn from
all training images, several times. The exact trace and the sum are of single images (9 and 11 as they are written), so
batch-norm has the statistics of many images there (`settle`). Where images share statistics instead, the exact trace
is that of all outputs of all images as one (`joint_trace`), at the price of as many times more gradients as there are
images: --joint measures it beside, of few.

Correlations are means over the draws. Networks' traces are heavy-tailed, so a few networks decide a Pearson
correlation: every one has its bootstrap interval, over networks and draws, and so has every step from one batch to the
next; Spearman's and that of the logarithms stand beside.

Run: SARTOR_TEST_DATA=.../data python reproduce/nasi_table7.py --pixels 16 [--networks 120] [--joint 20] [--minutes 6]
and, for figure 1 alone, --figure --draws 2. What is measured is kept in runs/parts: a run goes on where one was
stopped. Networks smaller than the benchmark's, and smaller images, have result files of their own.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from nasi_data import Cifar, Lines
from numpy.typing import NDArray
from scipy import stats
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import record  # noqa: E402

from sartor.engine.curvature import batch_trace, exact_trace, joint_trace, prepare, sum_trace  # noqa: E402
from sartor.engine.evaluate import recalibrate  # noqa: E402
from sartor.spaces.nasbench1shot1 import NasBench1Shot1  # noqa: E402
from sartor.task import Task  # noqa: E402

BATCHES, FIGURE, SETTLE, JOINT = (4, 8, 16, 32, 64, 128), 64, 256, 16
ROW = (*map(str, BATCHES), "sum")  # of table 7, in its order
RESAMPLES = 2000
PAPER = {
    "S1": {"4": 0.74, "8": 0.80, "16": 0.84, "32": 0.83, "64": 0.85, "128": 0.86, "sum": 0.88, "labels": 1.00,
           "images": 0.94},
    "S2": {"4": 0.82, "8": 0.87, "16": 0.90, "32": 0.89, "64": 0.91, "128": 0.91, "sum": 0.92, "labels": 1.00,
           "images": 0.95},
    "S3": {"4": 0.66, "8": 0.74, "16": 0.81, "32": 0.79, "64": 0.82, "128": 0.84, "sum": 0.87, "labels": 1.00,
           "images": 0.94},
}  # fmt: skip

Array = NDArray[np.float64]


class Setting:
    """The images of every draw, and those of the exact trace, at the wanted number of pixels."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.options, data = a, Cifar(a.device)
        self.x, self.y = self.smaller(data.batch(a.images, 0))
        self.draws = [self.smaller(data.batch(max(BATCHES), 1, n)) for n in range(a.draws)]
        self.many, _ = self.smaller(data.batch(SETTLE, 4))
        generator, shape = torch.Generator().manual_seed(2), (a.draws, FIGURE)
        self.noise = torch.randn(*shape, *self.x.shape[1:], generator=generator).to(a.device)
        self.labels = torch.randint(10, shape, generator=generator).to(a.device)

    def smaller(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Squares of pixels become their mean."""
        return F.avg_pool2d(batch[0], 32 // self.options.pixels), batch[1]

    def measured(self, variant: str, number: int) -> dict[str, Any]:
        """The forms of the trace of one random network that figure 1, or that table 7 compares."""
        a = self.options
        space = NasBench1Shot1(variant=variant, cells=a.cells, channels=a.channels)
        net = space.network(space.sample(np.random.default_rng([3, number])), Task(10, a.pixels))
        prepare(net, "default", "batch", 1.0, number)
        net.to(a.device)
        return self.figure(net) if a.figure else self.table(net, number < a.joint)

    def figure(self, net: nn.Module) -> dict[str, Any]:
        """Mini-batches of true images and labels, of random labels, of Gaussian images."""
        triples = list(zip(self.draws, self.noise, self.labels, strict=True))
        return {
            str(FIGURE): [batch_trace(net, x[:FIGURE], y[:FIGURE]) for x, y in self.draws],
            "labels": [batch_trace(net, x[:FIGURE], labels) for (x, _), _, labels in triples],
            "images": [batch_trace(net, noise, y[:FIGURE]) for (_, y), noise, _ in triples],
        }

    def table(self, net: nn.Module, joint: bool) -> dict[str, Any]:
        """Mini-batches of every size, the sum and the exact trace."""
        values: dict[str, Any] = {str(b): [batch_trace(net, x[:b], y[:b]) for x, y in self.draws] for b in BATCHES}
        if joint:
            values["joint"] = joint_trace(net, self.x[:JOINT], chunk=32)
        recalibrate(net, iter([(self.many, None)]), lambda x, _: net(x))
        net.eval()
        return values | {"sum": sum_trace(net, self.x, self.y), "exact": exact_trace(net, self.x)}


def pearson(a: Array, b: Array) -> Array:
    """Over the first axis: of every draw."""
    a, b = a - a.mean(0), b - b.mean(0)
    found: Array = (a * b).sum(0) / np.sqrt((a**2).sum(0) * (b**2).sum(0))
    return found


def pairs(lines: list[dict[str, Any]]) -> dict[str, tuple[Array, Array]]:
    """What is correlated with what, each (networks, draws): figure 1's with the true, table 7's with the exact."""
    columns: dict[str, Array] = {}
    for name in lines[0]["values"]:
        if all(name in line["values"] for line in lines):
            values = np.array([line["values"][name] for line in lines], float)
            columns[name] = values.reshape(len(values), -1)
    exact = columns.get("exact")
    if exact is None:
        return {name: (columns[name], columns[str(FIGURE)]) for name in ("labels", "images")}
    return {name: (columns[name], np.broadcast_to(exact, columns[name].shape)) for name in ROW}


def resampled(cells: dict[str, tuple[Array, Array]], seed: int = 0) -> dict[str, Array]:
    """Bootstrap: every cell's mean correlation over draws, with the same networks and draws for all cells."""
    rng, (first, _) = np.random.default_rng(seed), next(iter(cells.values()))
    networks, draws = first.shape
    found: dict[str, list[float]] = {name: [] for name in cells}
    while len(found[next(iter(cells))]) < RESAMPLES:
        rows, columns = rng.integers(networks, size=networks), rng.integers(draws, size=draws)
        if len(np.unique(rows)) < 3:
            continue
        for name, (a, b) in cells.items():
            kept = columns if a.shape[1] > 1 else [0]
            found[name].append(float(pearson(a[rows][:, kept], b[rows][:, kept]).mean()))
    return {name: np.array(values) for name, values in found.items()}


def interval(values: Array) -> list[float]:
    """Of 95 %."""
    return [round(float(q), 3) for q in np.quantile(values, (0.025, 0.975))]


def table(lines: list[dict[str, Any]], paper: dict[str, float]) -> dict[str, Any]:
    """Ours beside the paper's, of one space."""
    cells, found = pairs(lines), {"networks": len(lines)}
    samples = resampled(cells)
    results: dict[str, Any] = {}
    for name, (a, b) in cells.items():
        each = pearson(a, b)
        ranks = [stats.spearmanr(x, y).statistic for x, y in zip(a.T, b.T, strict=True)]
        results[name] = {
            "ours": round(float(each.mean()), 3),
            "interval": interval(samples[name]),
            "paper": paper[name],
            "spearman": round(float(np.mean(ranks)), 3),
            "of_logs": round(float(pearson(np.log(a), np.log(b)).mean()), 3),
        } | ({"std_of_draws": round(float(each.std()), 3)} if a.shape[1] > 1 else {})
    row = [name for name in ROW if name in cells]
    results["steps"] = {
        f"{a} to {b}": {
            "ours": round(results[b]["ours"] - results[a]["ours"], 3),
            "interval": interval(samples[b] - samples[a]),
            "rises_in": round(float((samples[b] > samples[a]).mean()), 3),  # of all resamples
            "paper": round(paper[b] - paper[a], 2),
        }
        for a, b in pairwise(row)
    }
    with_joint = [line["values"] for line in lines if "joint" in line["values"]]
    if len(with_joint) > 2:
        joint, exact = (np.array([v[name] for v in with_joint]) for name in ("joint", "exact"))
        results["joint"] = {"networks": len(joint), "with_exact": round(float(pearson(joint, exact)), 3)}
    return found | results | _first_draw(lines)


def _first_draw(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What is drawn, and how large x is."""
    values = [line["values"] for line in lines]
    first = {
        n: [float(f"{(v[n][0] if isinstance(v[n], list) else v[n]):.5g}") for v in values]
        for n in values[0]
        if all(n in v for v in values)
    }
    quartiles = [float(f"{q:.5g}") for q in np.quantile(first[str(FIGURE)], (0, 0.25, 0.5, 0.75, 1))]
    return {"of_the_first_draw": first, "x_quartiles": quartiles}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", type=int, default=120)
    parser.add_argument("--cells", type=int, default=9)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--images", type=int, default=64, help="of the exact trace and of the sum")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--joint", type=int, default=0, help="networks whose joint trace is measured too")
    parser.add_argument("--figure", action="store_true", help="figure 1, which needs no exact trace")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=600.0)
    a = parser.parse_args()
    if a.device == "cpu":
        torch.set_num_threads(1)
    what = f"c{a.channels}_p{a.pixels}"
    name = f"nasi_figure1_{what}_d{a.draws}" if a.figure else f"nasi_table7_{what}_n{a.images}_d{a.draws}"
    lines, setting, start = Lines(name), Setting(a), time.monotonic()
    keys = [f"{variant} {n}" for n in range(a.networks) for variant in PAPER]  # all three spaces advance together
    for key in lines.mine(keys):
        before, (variant, number) = time.monotonic(), key.split()
        values = setting.measured(variant, int(number))
        lines.add(key=key, values=values, seconds=round(time.monotonic() - before, 2))
        if time.monotonic() - start > 60 * a.minutes:
            break
    done = {line["key"]: line for line in lines.all()}
    options = {k: v for k, v in vars(a).items() if k not in ("networks", "minutes", "joint")}
    results: dict[str, Any] = {"setting": options, "seconds": round(sum(line["seconds"] for line in done.values()), 1)}
    for variant, paper in PAPER.items():
        mine = [done[k] for k in keys if k in done and k.startswith(variant)]
        if len(mine) > 2:
            results[variant] = table(mine, paper)
            found = {k: (results[variant][k]["ours"], v) for k, v in paper.items() if k in results[variant]}
            print(variant, len(mine), found, flush=True)
    whole = "" if (a.channels, a.pixels) == (16, 32) else f"_{what}"
    record(("nasi_figure1" if a.figure else "nasi_table7") + whole, results)


if __name__ == "__main__":
    main()
