"""A training step on a CPU: threads inside every operation, and threads that take a part of the batch each.

Steps are the product's (bfloat16 where the CPU has it, orthogonal steps, clipping, moving average) on made-up images;
the ways alternate in rounds, so that a slow spell of the machine falls on all of them, and the ratio of medians counts.

    python benchmarks/hands.py [--seconds 4] [--beside]

With `--beside` all of it once more while another process keeps every core busy with matrix products, and how many times
as long the fastest way then takes as the fastest one alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from _record import record
from torch import nn

from sartor.core.task import Task
from sartor.costs.macs import Macs
from sartor.engine.device import Engine, Way
from sartor.engine.hands import Hands
from sartor.engine.recipe import MUON, MovingAverage, Recipe
from sartor.spaces.depthwise import in_32_bits
from sartor.spaces.edge import Edge
from sartor.spaces.plain.space import build

# (side of the images, network): plain ones by name, those of the edge space by a landmark's
CASES = (
    (32, "resnet8-w32-s1"), (32, "resnet14-w12-s1"), (32, "mobilenetv3small-x0.5"), (32, "mobilenetv2-x0.5"),
    (32, "edge mobilenetv3-w16-s2"), (32, "edge regnet-w16-s1"), (64, "resnet14-w16-s2"), (8, "resnet8-w16-s1"),
)  # fmt: skip
BATCH, ROUNDS = 64, 4


def measure(engine: Engine, side: int, name: str, seconds: float) -> dict:
    torch.manual_seed(0)
    task = Task(20, side)
    if name.startswith("edge "):
        space = Edge().fitted(task)
        net = space.network(space.landmarks(task)[name.removeprefix("edge ")], task)
    else:
        net = build(name, task)
    net, recipe = engine.place(net), Recipe(epochs=1, batch=BATCH, lr=0.1, muon=0.1 * MUON, mixed=True)
    in_32_bits(net)
    shared, optimiser, average = Hands(net, engine), recipe.optimiser(net), MovingAverage(net, recipe.ema)
    x = torch.randn(BATCH, 3, side, side).contiguous(memory_format=torch.channels_last)
    y = torch.randint(20, (BATCH,))

    def step():
        for p in net.parameters():
            p.grad = None
        with engine.autocast(recipe.mixed):
            loss = task.loss(shared(x), y, 0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), recipe.clip, foreach=True)
        optimiser.step()
        average.update()

    net.train()
    ways = engine.ways(BATCH)
    taken: dict[Way, list[float]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            engine.use(way)
            step()  # libraries and threads get ready
            end = time.perf_counter() + seconds / ROUNDS
            while time.perf_counter() < end:
                begin = time.perf_counter()
                step()
                taken[way].append(time.perf_counter() - begin)
    median = {way: float(np.median(times)) for way, times in taken.items()}
    alone = median[Way(1, 1)]
    told = {
        "image": side, "network": name, "macs": Macs().of(net, (3, side, side)),
        "ms": {f"{way.hands} x {way.threads}": 1000 * t for way, t in median.items()},
        "times_as_fast": {f"{way.hands} x {way.threads}": alone / t for way, t in median.items()},
    }  # fmt: skip
    print(f"{side:>3} px {name:<26}", {way: round(v, 2) for way, v in told["times_as_fast"].items()}, flush=True)
    return told


@contextmanager
def neighbour(cores: int) -> Iterator[None]:
    """Another process, busy on every core for as long as this lasts."""
    busy = f"import torch; torch.set_num_threads({cores}); x = torch.rand(1500, 1500)\nwhile True: x @ x"
    with subprocess.Popen([sys.executable, "-c", busy]) as other:
        try:
            time.sleep(4)  # until it computes
            yield
        finally:
            other.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--beside", action="store_true", help="Also beside a process that keeps every core busy.")
    parser.add_argument("--seconds", type=float, default=4.0, help="For every way of every network.")
    parser.add_argument("--name", default="hands_cpu")
    args = parser.parse_args()
    engine = Engine("cpu")
    found = [measure(engine, side, name, args.seconds) for side, name in CASES]
    told = {"batch": BATCH, "cores": engine.cores, "hands x threads": found}
    if args.beside:
        with neighbour(engine.cores):
            told["beside"] = [measure(engine, side, name, args.seconds) for side, name in CASES]
        pairs = zip(found, told["beside"], strict=True)
        told["times_as_long"] = [min(b["ms"].values()) / min(a["ms"].values()) for a, b in pairs]
        print("beside it the fastest way takes", [round(t, 2) for t in told["times_as_long"]], "times as long")
    record(args.name, told)


if __name__ == "__main__":
    main()
