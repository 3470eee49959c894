"""One step of XNAS's search (a weight step and an architecture step): edge by edge against grouped kernels.

The paper's setting is 8 cells, 16 channels, batch 96, 32 x 32 images. With experts wiped out the step gets cheaper:
both forms are timed with 7, 5, 3 and 1 operations left on every edge, the cheapest (poolings, identity, then
separable convolutions): an upper bound on what wiping out saves. On CUDA under bf16, and also replayed as CUDA graphs,
as the search runs it (`engine.graphs`). Ratios within one run are what counts; interleaved rounds, medians. Then the
loss curves of the plain form and of the search's.

With `--only-replayed` just the form that the search runs is timed, in seconds, and nothing is recorded; `--profile`
lists the kernels of one such step, longest first; `--tune` lets cuDNN time its algorithms instead of guessing.

Run: python benchmarks/xnas_step.py [cuda] [--batch 96] [--image 32] [--left 7 5 3 1]
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from _record import record

from sartor.core.task import Task
from sartor.engine.replay import Repeated
from sartor.spaces.cells.darts import Darts

LEFT = (7, 5, 3, 1)


class Step:
    """A network, its optimiser and both steps on fixed images; `replayed` as the search does on CUDA."""

    def __init__(self, space, task, batch, device, grouped, left, replayed=False):
        torch.manual_seed(0)
        self.space, self.device = space, torch.device(device)
        self.net = space.supernet(task).to(device, memory_format=torch.channels_last)
        self.net.grouped = grouped
        places = space.forecasters(task)
        self.net.wipe([(i, o) for i in places for o in range(left, 7)])
        self.leaves = {i: torch.full((7,), 1 / left, device=device) for i in places}
        pixels = torch.randn(batch, task.channels, task.image, task.image, device=device)
        self.x = pixels.contiguous(memory_format=torch.channels_last)
        self.y = torch.randint(task.classes, (batch,), device=device)
        self.trained = [p for p in self.net.parameters() if p.requires_grad]
        self.optimiser = torch.optim.SGD(self.trained, 0.025, 0.9, weight_decay=3e-4, foreach=True)
        self.weights, self.rewards = self._weights, self._rewards
        if replayed:
            self.weights, self.rewards = (Repeated(f, self.device) for f in (self._weights, self._rewards))

    def loss(self, x, y, leaves):
        """The mixture's loss."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            out = self.net(x, self.space.mixture(dict(zip(self.leaves, leaves, strict=True))))
        return torch.nn.functional.cross_entropy(out.float(), y)

    def _weights(self, tensors, key=None):
        """Line 4 of Algorithm 1."""
        x, y, *leaves = tensors
        for p in self.trained:
            p.grad = None
        loss = self.loss(x, y, leaves)
        loss.backward()
        return loss.detach(), [p.grad for p in self.trained]

    def _rewards(self, tensors, key=None):
        """The gradients that lines 5 to 8 need."""
        x, y, *leaves = tensors
        leaves = [u.detach().requires_grad_() for u in leaves]
        return torch.autograd.grad(self.loss(x, y, leaves), leaves)

    def __call__(self, x=None, y=None):
        """Both steps; the training loss."""
        x, y = (self.x, self.y) if x is None else (x, y)
        loss, gradients = self.weights((x, y, *self.leaves.values()))
        for p, g in zip(self.trained, gradients, strict=True):
            p.grad = g
        self.optimiser.step()
        self.rewards((x, y, *self.leaves.values()))
        return loss


def curves(space, task, batch, device, steps):
    """The training loss, five steps at a time, of the plain form and of what the search runs, on learnable images.

    Images are noise plus a pattern of their class; both forms start from the same weights and see the same batches. The
    search's form with other batches says what noise is.
    """
    patterns = torch.randn(
        task.classes, task.channels, task.image, task.image, generator=torch.Generator().manual_seed(1)
    )
    found = {}
    forms = (
        ("plain", False, False, 2),
        ("search", True, device == "cuda", 2),
        ("other batches", True, device == "cuda", 3),
    )
    for name, grouped, replayed, seed in forms:
        generator, losses = torch.Generator().manual_seed(seed), []
        step = Step(space, task, batch, device, grouped, 7, replayed)
        for _ in range(steps):
            y = torch.randint(task.classes, (batch,), generator=generator)
            x = 0.25 * patterns[y] + torch.randn(batch, *patterns.shape[1:], generator=generator)
            losses.append(step(x.to(device), y.to(device)).clone())
        found[name] = torch.stack(losses).view(-1, 5).mean(1).tolist()
        print(name, [round(v, 3) for v in found[name]], flush=True)
    return found


def profiled(call, device, rows=30):
    """What one step spends its time on: every kernel's name, how often it ran and its milliseconds, longest first."""
    from torch.profiler import ProfilerActivity, profile

    cuda = device == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as seen:
        timed(call, device)
    spent = [(e.self_device_time_total if cuda else e.self_cpu_time_total, e.count, e.key) for e in seen.key_averages()]
    spent = sorted((row for row in spent if row[0] > 0), reverse=True)
    print(f"{sum(n for _, n, _ in spent)} kernels, {sum(t for t, _, _ in spent) / 1e3:.1f} ms of work")
    for micros, count, name in spent[:rows]:
        print(f"{micros / 1e3:8.2f} ms {count:6d} x {micros / count:8.1f} us  {name[:150]}")


def timed(call, device):
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def forms(space, task, given, left):
    """Every form's step, warmed up, and the memory that it took."""
    cuda, calls, peak = given.device == "cuda", {}, {}
    wanted = [(False, False), (True, False), (True, True)][: 3 if cuda else 2]  # edge by edge a graph would be huge
    for grouped, replayed in wanted[-1:] if given.only_replayed else wanted:
        name = ("grouped" if grouped else "edge by edge") + (", replayed" if replayed else "")
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        calls[name] = Step(space, task, given.batch, given.device, grouped, left, replayed)
        warm = sum(timed(calls[name], given.device) for _ in range(4 if replayed else 1))
        print(f"{name}, {left} left: {warm / 1e3:.1f} s to warm up", flush=True)
        if cuda:
            peak[name] = torch.cuda.max_memory_allocated() / 2**30
    return calls, peak


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--curve", type=int, default=40, help="steps of the loss curves")
    parser.add_argument("--left", type=int, nargs="+", default=LEFT, help="operations left on every edge")
    parser.add_argument("--only-replayed", action="store_true", help="time only what the search runs; record nothing")
    parser.add_argument("--profile", action="store_true", help="list the kernels of one step")
    parser.add_argument("--tune", action="store_true", help="cuDNN times its algorithms first")
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = given.tune
    task = Task(10, given.image)
    space = Darts().fitted(task)
    rows = []
    for left in given.left:
        calls, peak = forms(space, task, given, left)
        times = {name: [] for name in calls}
        for _ in range(given.rounds):
            for name, call in calls.items():
                times[name].append(timed(call, given.device))
        rows.append({"operations_left": left, "ms": {n: statistics.median(t) for n, t in times.items()}, "gib": peak})
        print(rows[-1], flush=True)
        if given.profile:
            profiled(calls[list(calls)[-1]], given.device)
    if given.only_replayed:
        return
    setting = {"batch": given.batch, "image": given.image, "cells": space.cells, "channels": space.channels}
    found = curves(space, task, given.batch, given.device, given.curve)
    print(record(f"xnas_step_{given.device}", {**setting, "device": given.device, "rows": rows, "loss": found}))


if __name__ == "__main__":
    main()
