"""Table 7 and figure 1 of NASI: approximations of the NTK's trace on the three spaces of NAS-Bench-1Shot1.

Table 7: Pearson correlation over random networks of the mini-batch's squared gradient norm (equation 12, batches of 4
to 128) and of the sum of per-image norms (first part of 11) with the exact trace (9). Figure 1: the same with random
for true labels, and Gaussian for true images, at batches of 64. Real CIFAR-10 images.

The paper leaves the setting unsaid. The one here is the benchmark's own network (nine cells, 16 channels) with
PyTorch's initialisation. Equations 9, 11 and 12 speak of one function of single images, so for table 7 every batch-norm
has settled statistics, those of many images, in all three forms: then x has the scale of the paper's figures (hundreds
to thousands, in S3 up to 1e5). Figure 1 compares mini-batches only, as a search sees them: with their own statistics.
--norm turns either into the other. Mini-batches are drawn from all training images, several times. For table 7 networks
have 8 channels and images 8 pixels: there small batches differ, and many networks can be measured; with 16 channels at
16 pixels all batches are near 1, and few networks tell only the sum from the rest.

Correlations are means over the draws. Networks' traces are heavy-tailed, so a few networks decide a Pearson
correlation: every one has its bootstrap interval, over networks and draws, and so has every step from one batch to the
next and to the one after; Spearman's and that of the logarithms stand beside.

Run: SARTOR_TEST_DATA=.../data python reproduce/nasi_table7.py --channels 8 --pixels 8 --draws 12 [--minutes 6]
and, for figure 1, --figure --draws 1. What is measured is kept in runs/parts: a run goes on where one was stopped.
Other sizes than the benchmark's, and other statistics, have result files of their own.
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

from sartor.core.task import Task  # noqa: E402
from sartor.engine.curvature.kernel import batch_trace, exact_trace, prepare, sum_trace  # noqa: E402
from sartor.engine.evaluate import recalibrate  # noqa: E402
from sartor.spaces.nasbench1shot1.space import NasBench1Shot1  # noqa: E402

BATCHES, FIGURE, MANY = (4, 8, 16, 32, 64, 128), 64, 256
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
        self.many, _ = self.smaller(data.batch(MANY, 4))
        generator, shape = torch.Generator().manual_seed(2), (a.draws, FIGURE)
        self.noise = torch.randn(*shape, *self.x.shape[1:], generator=generator).to(a.device)
        self.labels = torch.randint(10, shape, generator=generator).to(a.device)
        self.much_noise = torch.randn(self.many.shape, generator=generator).to(a.device)

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
        if a.norm == "settled":
            settle(net, self.many)
        return self.figure(net) if a.figure else self.table(net)

    def figure(self, net: nn.Module) -> dict[str, Any]:
        """Mini-batches of true images and labels, of random labels, of Gaussian images and their statistics."""
        triples = list(zip(self.draws, self.noise, self.labels, strict=True))
        values = {
            str(FIGURE): [batch_trace(net, x[:FIGURE], y[:FIGURE]) for x, y in self.draws],
            "labels": [batch_trace(net, x[:FIGURE], labels) for (x, _), _, labels in triples],
        }
        if self.options.norm == "settled":
            settle(net, self.much_noise)
        return values | {"images": [batch_trace(net, noise, y[:FIGURE]) for (_, y), noise, _ in triples]}

    def table(self, net: nn.Module) -> dict[str, Any]:
        """Mini-batches of every size, the sum and the exact trace."""
        values: dict[str, Any] = {str(b): [batch_trace(net, x[:b], y[:b]) for x, y in self.draws] for b in BATCHES}
        if self.options.norm == "batch":
            settle(net, self.many)
        return values | {"sum": sum_trace(net, self.x, self.y), "exact": exact_trace(net, self.x)}


def settle(net: nn.Module, x: torch.Tensor) -> None:
    """From now on every batch-norm has the statistics of these images."""
    recalibrate(net, iter([(x, None)]), lambda x, _: net(x))
    net.eval()


def pearson(a: Array, b: Array) -> Array:
    """Over the first axis: of every draw."""
    a, b = a - a.mean(0), b - b.mean(0)
    found: Array = (a * b).sum(0) / np.sqrt((a**2).sum(0) * (b**2).sum(0))
    return found


def pairs(lines: list[dict[str, Any]]) -> dict[str, tuple[Array, Array]]:
    """What is correlated with what, each (networks, draws): figure 1's with the true, table 7's with the exact."""
    columns: dict[str, Array] = {}
    for name in lines[0]["values"]:
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
        for a, b in (*pairwise(row), *zip(row, row[2:], strict=False))  # doublings, then quadruplings
    }
    return found | results | _first_draw(lines)


def _first_draw(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """What is drawn, and how large x is."""
    values = [line["values"] for line in lines]
    first = {n: [float(f"{(v[n][0] if isinstance(v[n], list) else v[n]):.5g}") for v in values] for n in values[0]}
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
    parser.add_argument("--figure", action="store_true", help="figure 1, which needs no exact trace")
    parser.add_argument("--norm", choices=("settled", "batch"), help="statistics of the mini-batches' batch-norms")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=600.0)
    a = parser.parse_args()
    if a.device == "cpu":
        torch.set_num_threads(1)
    usual = "batch" if a.figure else "settled"
    a.norm = a.norm or usual
    name = "nasi_figure1" if a.figure else "nasi_table7"
    what = f"{name}_{a.norm}_c{a.channels}_p{a.pixels}_d{a.draws}" + ("" if a.figure else f"_n{a.images}")
    lines, setting, start = Lines(what), Setting(a), time.monotonic()
    keys = [f"{variant} {n}" for n in range(a.networks) for variant in PAPER]  # all three spaces advance together
    for key in lines.mine(keys):
        before, (variant, number) = time.monotonic(), key.split()
        values = setting.measured(variant, int(number))
        lines.add(key=key, values=values, seconds=round(time.monotonic() - before, 2))
        if time.monotonic() - start > 60 * a.minutes:
            break
    done = {line["key"]: line for line in lines.all()}
    options = {k: v for k, v in vars(a).items() if k not in ("networks", "minutes")}
    results: dict[str, Any] = {"setting": options, "seconds": round(sum(line["seconds"] for line in done.values()), 1)}
    for variant, paper in PAPER.items():
        mine = [done[k] for k in keys if k in done and k.startswith(variant)]
        if len(mine) > 2:
            results[variant] = table(mine, paper)
            found = {k: (results[variant][k]["ours"], v) for k, v in paper.items() if k in results[variant]}
            print(variant, len(mine), found, flush=True)
    size = "" if (a.channels, a.pixels) == (16, 32) else f"_c{a.channels}_p{a.pixels}"
    record(name + ("" if a.norm == usual else f"_{a.norm}") + size, results)


if __name__ == "__main__":
    main()
