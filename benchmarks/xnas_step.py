"""One step of XNAS's search (a weight step and an architecture step): edge by edge against grouped kernels.

The paper's setting is 8 cells, 16 channels, batch 96, 32 x 32 images. With experts wiped out the step gets cheaper:
both forms are timed with 7, 5, 3 and 1 operations left on every edge, the cheapest (poolings, identity, then
separable convolutions): an upper bound on what wiping out saves. On CUDA also as a captured graph, under bf16.
Ratios within one run are what counts; interleaved rounds, medians.

Run: python benchmarks/xnas_step.py [cuda] [--batch 96] [--image 32]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from _record import record

from sartor.spaces.darts import Darts
from sartor.task import Task

LEFT = (7, 5, 3, 1)


class Step:
    """A network, its optimiser and both steps on fixed images."""

    def __init__(self, space, task, batch, device, grouped, left):
        torch.manual_seed(0)
        self.space, self.device = space, torch.device(device)
        self.net = space.supernet(task).to(device)
        self.net.grouped = grouped
        places = space.forecasters(task)
        self.net.wipe([(i, o) for i in places for o in range(left, 7)])
        self.leaves = {i: torch.full((7,), 1 / left, device=device, requires_grad=True) for i in places}
        self.x = torch.randn(batch, task.channels, task.image, task.image, device=device)
        self.y = torch.randint(task.classes, (batch,), device=device)
        trained = [p for p in self.net.parameters() if p.requires_grad]
        self.optimiser = torch.optim.SGD(trained, 0.025, 0.9, weight_decay=3e-4, foreach=True)

    def loss(self):
        """The mixture's loss."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            out = self.net(self.x, self.space.mixture(self.leaves))
        return torch.nn.functional.cross_entropy(out.float(), self.y)

    def __call__(self):
        """Line 4 of Algorithm 1, then the gradients that lines 5 to 8 need."""
        self.optimiser.zero_grad(set_to_none=False)
        self.loss().backward()
        self.optimiser.step()
        return torch.autograd.grad(self.loss(), list(self.leaves.values()))


def captured(step):
    """The step as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def timed(call, device):
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    task = Task(10, given.image)
    space = Darts().fitted(task)
    rows = []
    for left in LEFT:
        calls, peak = {}, {}
        for grouped in (False, True):
            name = "grouped" if grouped else "edge by edge"
            if given.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            calls[name] = Step(space, task, given.batch, given.device, grouped, left)
            timed(calls[name], given.device)
            if given.device == "cuda":
                peak[name] = torch.cuda.max_memory_allocated() / 2**30
                calls[f"{name}, graph"] = captured(Step(space, task, given.batch, "cuda", grouped, left))
        times = {name: [] for name in calls}
        for _ in range(given.rounds):
            for name, call in calls.items():
                times[name].append(timed(call, given.device))
        rows.append({"operations_left": left, "ms": {n: statistics.median(t) for n, t in times.items()}, "gib": peak})
        print(rows[-1], flush=True)
    setting = {"batch": given.batch, "image": given.image, "cells": space.cells, "channels": space.channels}
    print(record(f"xnas_step_{given.device}", {**setting, "device": given.device, "rows": rows}))


if __name__ == "__main__":
    main()
