"""A round of BayesNAS (weights, switches, the Hessian over the whole stream) against a plain epoch at the same batch.

    python benchmarks/bayesnas_round.py [--device cuda] [--batch 64] [--image 32] [--images 4096]

Both run in the package's own loop on the whole search network: a plain epoch trains its weights with every switch at
1, a round trains weights and switches, takes the curvature along and ends with update and pruning (of nothing: lambda
is so small that all stay, or the second round would be cheaper). Alternating, medians; the target is 1.5 times the time
and 1.3 times the memory. Then the diagonals themselves on a small network of switches: exact, Gauss-Newton, sampled and
the paper's recursion, with seconds and errors against the exact one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from _record import record
from scipy.stats import spearmanr
from torch import nn

from sartor.core.seeds import Seeds
from sartor.data.open import open_data
from sartor.data.split import split
from sartor.engine.curvature.hessian import diagonal
from sartor.engine.device import Engine
from sartor.engine.feed import Feed
from sartor.engine.fit import Training, fit, nothing
from sartor.methods.base import Job
from sartor.methods.bayesnas.method import BayesNAS
from sartor.methods.bayesnas.search import Search
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.spaces.cells.freecells import FreeCells

EPOCHS = 3  # of one measurement, of which the first is not counted: steps are recorded in it


def job(given: argparse.Namespace, folder: str) -> Job:
    """Noise in ten classes: what is in the images does not matter here."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (given.images, 3, given.image, given.image)).astype(np.uint8)
    images, seeds, engine = open_data((pixels, np.arange(given.images) % 10)), Seeds(0), Engine(given.device)
    engine.set_threads(given.image)
    splits = split(images, seeds.rng("split"), 0.02, 0.02)
    feed = Feed(images, (127.5,) * 3, (74.0,) * 3, seeds, engine)
    sizes = {name: getattr(given, name) for name in ("cells", "channels") if getattr(given, name)}
    space = FreeCells(**sizes).fitted(images.task)
    return Job(space, images.task, feed, splits, seeds, Run(Path(folder), Reporter(silent=True)))


def seconds(what: str, given: argparse.Namespace) -> tuple[list[float], float]:
    """Seconds of each epoch but the first; and of the processor, in all of them, which other processes disturb less."""
    with tempfile.TemporaryDirectory() as folder:
        this = job(given, folder)
        method = BayesNAS(
            rounds=EPOCHS, batch=given.batch, strength=1e-9, zero_strength=1e-9, augment="standard"
        )  # fmt: skip
        search = Search(this, method)
        start = time.process_time()
        if what == "plain":
            net = search.net
            net.v.requires_grad_(False)

            def loss(x, y, drawn):
                return {"loss": this.task.loss(net(x), y)}

            history = fit(
                Training("plain", net, loss, search.recipe, this.feed, this.splits.train, this.run, draw=nothing)
            )
        else:
            history = search.run()
            assert search.relevance.on.all(), "something was pruned: the rounds are not comparable"
    spent = time.process_time() - start
    steps = len(this.splits.train) // given.batch
    return [steps * given.batch / h["images_per_second"] for h in history[1:]], spent


def memory(what: str, given: argparse.Namespace) -> float:
    """GiB at the peak: of the device, or of a process that does nothing else."""
    if given.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        seconds(what, given)
        return torch.cuda.max_memory_allocated() / 2**30
    again = [sys.executable, __file__, "--only", what, *sys.argv[1:]]
    done = subprocess.run(again, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def resident(field: str) -> float:
    """GiB of this process, now or at most."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 2**20


class Mixed(nn.Module):
    """Two mixtures of five operations, a parameter a switch, as the paper's recursion can trace it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8))
        self.first, self.second = (nn.ModuleList(self.operations()) for _ in range(2))
        self.switches = nn.ParameterList(nn.Parameter(torch.tensor(v)) for v in torch.linspace(0.4, 1.3, 10).tolist())
        self.head = nn.Linear(8, 10)

    @staticmethod
    def operations() -> list[nn.Module]:
        """Two convolutions, two poolings, the identity."""
        convolutions = [
            nn.Sequential(
                nn.ReLU(), nn.Conv2d(8, 8, k, padding=k // 2, groups=8, bias=False), nn.Conv2d(8, 8, 1, bias=False),
                nn.BatchNorm2d(8, affine=False),
            )
            for k in (3, 5)
        ]  # fmt: skip
        return [*convolutions, nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1), nn.Identity()]

    def forward(self, x):  # noqa: D102
        x = self.stem(x)
        for n, operations in enumerate((self.first, self.second)):
            total = self.switches[5 * n] * operations[0](x)
            for o in range(1, 5):
                total = total + self.switches[5 * n + o] * operations[o](x)
            x = total
        return self.head(torch.relu(x).mean((2, 3)))


def diagonals(device: str, images: int = 256) -> list[dict]:
    """Every way on the same small network, after a little training, batch-norms at their running statistics."""
    torch.manual_seed(0)
    net = Mixed().to(device)
    x = torch.randn(images, 3, 16, 16, device=device)
    y = (x.mean((2, 3)) @ torch.randn(3, 10, device=device)).argmax(1)
    optimiser = torch.optim.SGD(net.parameters(), 0.05, 0.9)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    net.eval()
    batches = [(x[k : k + 64], y[k : k + 64]) for k in range(0, images, 64)]
    tensors, found, rows = list(net.switches), {}, []
    # 64 draws on 4 batches are as exact as one draw on 256 batches, which is what a round of that many steps takes.
    ways = (("exact", {}), ("ggn", {}), ("sampled", {}), ("sampled", {"draws": 64}), ("recursive", {}))
    for how, options in ways:
        start = time.perf_counter()
        values = torch.stack(diagonal(net, tensors, batches, how, **options)).detach().cpu()
        took = time.perf_counter() - start
        found[how] = values
        exact = found["exact"]
        rows.append({
            "how": how, "draws": options.get("draws", 1), "seconds": took, "values": values.tolist(),
            "median_relative_error": float(((values - exact) / exact).abs().median()),
            "rank_correlation": float(spearmanr(values, exact).statistic),
        })  # fmt: skip
        print({k: v for k, v in rows[-1].items() if k != "values"}, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--cells", type=int)
    parser.add_argument("--channels", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", choices=("plain", "round"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        before = resident("VmRSS")
        seconds(given.only, given)
        print(resident("VmHWM") - before)
        return
    times: dict[str, list[float]] = {"plain": [], "round": []}
    processor: dict[str, list[float]] = {"plain": [], "round": []}
    for _ in range(given.repeats):
        for what in times:
            each, spent = seconds(what, given)
            times[what].append(min(each))
            processor[what].append(spent)
            print(what, [round(t, 3) for t in each], f"processor {spent:.2f}", flush=True)
    peaks = {what: memory(what, given) for what in times}

    def ratio(of: dict[str, list[float]]) -> float:
        return statistics.median(r / p for r, p in zip(of["round"], of["plain"], strict=True))

    results = {
        **{k: v for k, v in vars(given).items() if k != "only"}, "seconds": times, "processor_seconds": processor,
        "time_ratio": ratio(times), "processor_ratio": ratio(processor), "gib": peaks,
        "memory_ratio": peaks["round"] / peaks["plain"], "diagonals": diagonals(given.device),
    }  # fmt: skip
    print(
        f"time {results['time_ratio']:.2f} times (target 1.5), of the processor {results['processor_ratio']:.2f}, "
        f"memory {results['memory_ratio']:.2f} times (target 1.3)"
    )
    print(record(f"bayesnas_round_{given.device}", results))


if __name__ == "__main__":
    main()
