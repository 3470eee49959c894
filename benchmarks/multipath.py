"""A multi-path training step against the heaviest network's step at the same batch.

Both steps are forward, loss, backward and an SGD update on the same images; the multi-path step
sends every image down a path of its own. Steps of the two kinds alternate, so that a slow spell of
the machine falls on both; the ratio of medians is what counts. "with teacher" adds the frozen
heaviest network's forward pass, as BINAS trains. On CUDA steps are replayed, as training does
(`engine.graphs`); the same kernel by kernel stands beside it.

    python benchmarks/multipath.py [--device cuda]
"""

from __future__ import annotations

import argparse
import time
from functools import partial

import numpy as np
import torch
from _record import record

from sartor.core.task import Task
from sartor.engine import distill
from sartor.engine.device import Engine
from sartor.engine.replay import Repeated
from sartor.spaces.mobile.space import Mobile
from sartor.spaces.supernet import StepDraw

CASES = {
    "cpu": [(Task(10, 32), 72, 8), (Task(20, 64), 36, 8), (Task(10, 8, 1), 72, 20)],
    "cuda": [(Task(20, 64), 360, 15), (Task(10, 32), 360, 15), (Task(20, 64), 720, 15), (Task(1000, 224), 108, 10)],
}


def measure(engine: Engine, task: Task, batch: int, repeats: int) -> dict:
    torch.manual_seed(0)
    engine.set_threads(task.image)
    space = Mobile().fitted(task)
    net, rng = engine.place(space.supernet(task)).train(), np.random.default_rng(0)
    teacher = net.extract(space.heaviest).eval().requires_grad_(False)
    optimiser = torch.optim.SGD(net.parameters(), 1e-4, 0.9, nesterov=True, foreach=True)
    x = torch.randn(batch, task.channels, task.image, task.image, device=engine.device)
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.randint(task.classes, (batch,), device=engine.device)

    def gradients(kind, tensors, same):
        x, *paths = tensors
        for p in net.parameters():
            p.grad = None
        with engine.autocast():
            if kind == "heaviest":
                loss = task.loss(net(x, space.heaviest), y, 0.1)
            else:
                features, logits = net.trace(x, StepDraw(tuple(paths), same))
                loss = task.loss(logits, y, 0.1)
                if kind == "with teacher":
                    with torch.no_grad():
                        theirs, target = teacher.trace(x)
                    loss = loss + task.imitation(logits, target) + distill.feature_loss(features, theirs)
        loss.backward()
        return [p.grad for p in net.parameters()]

    def step(kind: str) -> float:
        start = _now(engine)
        tensors, same = [x], None
        if not kind.startswith("heaviest"):
            drawn = net.prepared(space.sample_picks(rng, batch), engine.device)
            tensors, same = [x, *drawn.tensors], drawn.same
        for p, g in zip(net.parameters(), computed[kind](tensors, same), strict=True):
            p.grad = g
        optimiser.step()
        return _now(engine) - start

    what = ("heaviest", "multi-path", "with teacher")
    computed = {kind: Repeated(partial(gradients, kind), engine.device) for kind in what}
    if engine.device.type == "cuda":
        for kind in what:
            computed[f"{kind}, kernel by kernel"] = partial(gradients, kind)
    kinds = tuple(computed)
    for _ in range(4):
        for kind in kinds:
            step(kind)
    times = {kind: [] for kind in kinds}
    for _ in range(repeats):
        for kind in kinds:
            times[kind].append(step(kind))
    median = {kind: float(np.median(t)) for kind, t in times.items()}
    return {
        "task": f"{task.classes} classes, {task.image}x{task.image}x{task.channels}", "preset": space.preset,
        "batch": batch, "seconds": median, "ratio": median["multi-path"] / median["heaviest"],
        "ratio_with_teacher": median["with teacher"] / median["heaviest"],
        "images_per_second": batch / median["with teacher"],
    }  # fmt: skip


def _now(engine: Engine) -> float:
    if engine.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    engine = Engine(device)
    rows = []
    for task, batch, repeats in CASES[device]:
        rows.append(measure(engine, task, batch, repeats))
        r = rows[-1]
        print(f"{r['task']:<28} batch {batch:<4} ratio {r['ratio']:.2f}, with teacher {r['ratio_with_teacher']:.2f}")
        record(f"multipath_{device}", {"cases": rows, "asked": 1.6, "target": 1.2})


if __name__ == "__main__":
    main()
