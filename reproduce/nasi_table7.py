"""Table 7 and figure 1 of NASI: approximations of the NTK's trace on the three spaces of NAS-Bench-1Shot1.

Table 7: Pearson correlation over random networks of the mini-batch's squared gradient norm (equation 12, batches of 4
to 128) and of the sum of per-image norms (first part of 11) with the exact trace (9). Figure 1: the same with random
for true labels, and Gaussian for true images, at batches of 64. Real CIFAR-10 images of 32 pixels.

The paper leaves the setting unsaid. The one here is the benchmark's own network (nine cells, 16 channels) with
PyTorch's initialisation and batch-norm on batch statistics: there x has the paper's scale (figures 1 and 3: hundreds to
thousands), and there larger batches approximate better, because the statistics of four images are not those of many.
Images then influence each other, so the exact trace is that of all outputs of all its images together (`joint_trace`),
and so is the sum. Mini-batches are drawn from all training images, several times: mean and deviation over the draws.

Run: SARTOR_TEST_DATA=.../data python reproduce/nasi_table7.py [--networks 60] [--device cuda] [--minutes 6]
What is measured is kept in runs/parts: a run goes on where one was stopped. --channels 4 --pixels 16 --images 16 is a
setting for one CPU core; its result has a file of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from nasi_data import Cifar, Lines
from scipy import stats
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import record  # noqa: E402

from sartor.engine.curvature import batch_trace, joint_trace, prepare  # noqa: E402
from sartor.proxies.ntk_trace import joint_sum  # noqa: E402
from sartor.spaces.nasbench1shot1 import NasBench1Shot1  # noqa: E402
from sartor.task import Task  # noqa: E402

BATCHES, FIGURE = (4, 8, 16, 32, 64, 128), 64
PAPER = {
    "S1": {"4": 0.74, "8": 0.80, "16": 0.84, "32": 0.83, "64": 0.85, "128": 0.86, "sum": 0.88, "labels": 1.00,
           "images": 0.94},
    "S2": {"4": 0.82, "8": 0.87, "16": 0.90, "32": 0.89, "64": 0.91, "128": 0.91, "sum": 0.92, "labels": 1.00,
           "images": 0.95},
    "S3": {"4": 0.66, "8": 0.74, "16": 0.81, "32": 0.79, "64": 0.82, "128": 0.84, "sum": 0.87, "labels": 1.00,
           "images": 0.94},
}  # fmt: skip


class Setting:
    """The images of every draw, and those of the exact trace, at the wanted number of pixels."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.options, data = a, Cifar(a.device)
        self.plain = a.plain
        self.x, self.y = self.smaller(data.batch(a.images, 0))
        self.draws = [self.smaller(data.batch(max(BATCHES), 1, n)) for n in range(a.draws)]
        generator, shape = torch.Generator().manual_seed(2), (a.draws, FIGURE)
        self.noise = torch.randn(*shape, *self.x.shape[1:], generator=generator).to(a.device)
        self.labels = torch.randint(10, shape, generator=generator).to(a.device)

    def smaller(self, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Squares of pixels become their mean."""
        return F.avg_pool2d(batch[0], 32 // self.options.pixels), batch[1]

    def measured(self, variant: str, number: int) -> dict[str, Any]:
        """Every form of the trace of one random network."""
        a = self.options
        space = NasBench1Shot1(variant=variant, cells=a.cells, channels=a.channels)
        net = space.network(space.sample(np.random.default_rng([3, number])), Task(10, a.pixels))
        prepare(net, "default", "batch", 1.0, number)
        net.to(a.device)
        sizes = (FIGURE,) if a.figure else BATCHES
        values: dict[str, Any] = {str(b): [batch_trace(net, x[:b], y[:b]) for x, y in self.draws] for b in sizes}
        pairs = list(zip(self.draws, self.noise, self.labels, strict=True))
        values["labels"] = [batch_trace(net, x[:FIGURE], labels) for (x, _), _, labels in pairs]
        values["images"] = [batch_trace(net, noise, y[:FIGURE]) for (_, y), noise, _ in pairs]
        if a.figure:
            return values
        if self.plain:
            plain(net)
        try:
            values["sum"] = joint_sum(net, self.x, self.y, chunk=a.chunk)
            values["exact"] = joint_trace(net, self.x, chunk=a.chunk)
        except RuntimeError as error:
            if self.plain or isinstance(error, torch.OutOfMemoryError):
                raise
            print(f"batch-norm written out, because: {error}", flush=True)
            self.plain = True
            return self.measured(variant, number)
        return values


class Norm(nn.Module):
    """Batch-norm on batch statistics, written out: any backend can vectorise its gradients."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(x - mean) / sqrt(var + eps) * weight + bias``, channel by channel."""
        centred = x - x.mean((0, 2, 3), keepdim=True)
        scale = self.weight[:, None, None] / (centred.pow(2).mean((0, 2, 3), keepdim=True) + self.eps).sqrt()
        return centred * scale + self.bias[:, None, None]


def plain(net: nn.Module) -> None:
    """Every batch-norm written out, in place, with the parameters it has."""
    for module in list(net.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, Norm(child))


def correlation(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    return float(stats.pearsonr(a, b).statistic), float(stats.spearmanr(a, b).statistic)


def _across(networks: list[list[float]]) -> list[tuple[float, ...]]:
    """Of every draw, the values of all networks."""
    return list(zip(*networks, strict=True))


def table(lines: list[dict[str, Any]], paper: dict[str, float]) -> dict[str, Any]:
    """Ours beside the paper's, of one space."""
    columns = {name: [line["values"][name] for line in lines] for name in lines[0]["values"]}
    found: dict[str, Any] = {"networks": len(lines)}
    for name, theirs in ((n, p) for n, p in paper.items() if n in columns and (n != str(FIGURE) or "exact" in columns)):
        true = columns[str(FIGURE)]
        if name == "sum":
            pairs = [correlation(columns["sum"], columns["exact"])]
        else:
            against = true if name in ("labels", "images") else [[e] * len(true[0]) for e in columns["exact"]]
            pairs = [correlation(*draw) for draw in zip(_across(columns[name]), _across(against), strict=True)]
        pearson, spearman = np.mean(pairs, 0)
        found[name] = {"ours": round(float(pearson), 3), "paper": theirs, "spearman": round(float(spearman), 3)}
        if len(pairs) > 1:
            found[name]["std_of_draws"] = round(float(np.std(pairs, 0)[0]), 3)
    x = [d[0] for d in columns[str(FIGURE)]]
    first = {n: [float(f"{(v[0] if isinstance(v, list) else v):.5g}") for v in c] for n, c in columns.items()}
    return found | {
        "of_the_first_draw": first,
        "x_quartiles": [float(q) for q in np.quantile(x, (0, 0.25, 0.5, 0.75, 1))],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", type=int, default=60)
    parser.add_argument("--cells", type=int, default=9)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--pixels", type=int, default=32)
    parser.add_argument("--images", type=int, default=64, help="of the exact trace and of the sum")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--chunk", type=int, default=32, help="outputs whose gradients are computed at once")
    parser.add_argument("--figure", action="store_true", help="figure 1 alone, which needs no exact trace")
    parser.add_argument("--plain", action="store_true", help="write batch-norm out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=600.0)
    a = parser.parse_args()
    if a.device == "cpu":
        torch.set_num_threads(1)
    what = f"c{a.channels}_p{a.pixels}"
    name = f"nasi_figure1_{what}" if a.figure else f"nasi_table7_{what}_n{a.images}"
    lines, setting, start = Lines(name), Setting(a), time.monotonic()
    keys = [f"{variant} {n}" for n in range(a.networks) for variant in PAPER]  # all three spaces advance together
    for key in lines.mine(keys):
        variant, number = key.split()
        lines.add(key=key, values=setting.measured(variant, int(number)))
        if time.monotonic() - start > 60 * a.minutes:
            break
    done = {line["key"]: line for line in lines.all()}
    options = {k: v for k, v in vars(a).items() if k not in ("networks", "minutes", "chunk", "plain")}
    results: dict[str, Any] = {"setting": options, "seconds_of_this_run": round(time.monotonic() - start, 1)}
    for variant, paper in PAPER.items():
        mine = [done[k] for k in keys if k in done and k.startswith(variant)]
        if len(mine) > 2:
            results[variant] = table(mine, paper)
            found = {k: (results[variant][k]["ours"], v) for k, v in paper.items() if k in results[variant]}
            print(variant, len(mine), found, flush=True)
    whole = (a.channels, a.pixels) == (16, 32)
    record(("nasi_figure1" if a.figure else "nasi_table7") if whole else name, results)


if __name__ == "__main__":
    main()
