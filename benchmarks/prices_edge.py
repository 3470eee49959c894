"""Thousands of parts priced by timing some of them: how long it takes, and how well whole networks are predicted.

The bar: every distinct part of the edge space in at most 60 s on one thread, Spearman at least 0.98 and a median
absolute error of at most 5 % on networks that the table has not seen.

    python benchmarks/prices_edge.py [--image 64] [--networks 40] [--busy]

On a machine that is busy with other things, `--busy` counts the time that the processor spent on a call, not the time
that passed, and of every visit the fastest call: with one thread both are next to the same on a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
from _record import record
from scipy.stats import spearmanr

from sartor.core.task import Task
from sartor.costs.latency.calibration import networks
from sartor.costs.latency.cost import Latency, as_deployed
from sartor.costs.macs import Macs
from sartor.deploy import timing
from sartor.deploy.probe import visit
from sartor.deploy.runtimes.base import Reference
from sartor.deploy.runtimes.onnxruntime import OnnxRuntime
from sartor.deploy.timing import threads_of_torch
from sartor.spaces.edge.space import Edge


def one(image: int, cost: Latency, count: int) -> dict:
    """Make the table, then measure networks of all sizes that the calibration has not seen, and the landmarks."""
    task = Task(20, image)
    space = Edge().fitted(task)
    wall, own = time.perf_counter(), time.process_time()
    table = cost.table(space, task)
    wall, own = time.perf_counter() - wall, time.process_time() - own
    rng = np.random.default_rng(2024)
    macs = Macs().table(space, task).form
    seen = {tuple(a) for a in table.calibration["networks"]}
    archs = [a for a in networks(space, macs, count, rng) if a.picks not in seen]
    archs += list(space.landmarks(task).values())[::9]
    runtime = cost.deployed_under()
    with threads_of_torch(cost.threads):
        shape = (task.channels, image, image)
        calls = {str(i): runtime.workload(as_deployed(space, a, task), shape) for i, a in enumerate(archs)}
        calls["reference"] = runtime.workload(Reference(), Reference.shape)
        times = timing.polished(
            timing.interleaved(timing.InProcess(calls, runtime.time), list(calls), 7, cost.visit_ms / 1e3, rng)
        )
    measured = np.array([np.median(times[str(i)]) for i in range(len(archs))])
    predicted = table.form.batch([a.picks for a in archs])
    errors = np.abs(predicted / measured - 1)
    drift = float(np.median(times["reference"])) / table.calibration["reference_ms"]
    notes = {k: v for k, v in table.calibration.items() if isinstance(v, int | float)}
    return {
        "networks": len(archs),
        "spearman": float(spearmanr(predicted, measured)[0]),
        "median_absolute_error": float(np.median(errors)),
        "p90_absolute_error": float(np.quantile(errors, 0.9)),
        "drift_since_the_table": drift,
        "median_absolute_error_less_drift": float(np.median(np.abs(predicted * drift / measured - 1))),
        "table_seconds": round(wall, 1),
        "table_processor_seconds": round(own, 1),
        "parts": len(table.prices),
        "range_ms": [float(measured.min()), float(measured.max())],
        "calibration": notes,
        "architectures": [space.describe(a) for a in archs],
        "predicted_ms": predicted.round(5).tolist(),
        "measured_ms": measured.round(5).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", type=int, action="append")
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    if options.busy:
        timing.perf_counter = time.process_time
        OnnxRuntime.time = lambda self, call, seconds: [min(visit(call, seconds))]
    cost = Latency()
    results: dict = {
        "device": cost.identity(),
        "load_before": os.getloadavg()[0],
        "counted": "fastest processor time" if options.busy else "time",
    }
    for image in options.image or [64]:
        found = results[str(image)] = one(image, cost, options.networks)
        passed = found["spearman"] >= 0.98 and found["median_absolute_error"] <= 0.05 and found["table_seconds"] <= 60
        print(
            f"{image:4} px: {found['parts']} parts ({found['calibration']['timed_parts']} timed) in "
            f"{found['table_seconds']} s ({found['table_processor_seconds']} s of the processor), "
            f"{found['networks']} networks of {found['range_ms'][0]:.3g} to {found['range_ms'][1]:.3g} ms: "
            f"spearman {found['spearman']:.4f}, median absolute error {found['median_absolute_error']:.2%} "
            f"(less drift {found['median_absolute_error_less_drift']:.2%}), "
            f"90 % below {found['p90_absolute_error']:.1%}: {'passed' if passed else 'FAILED'}"
        )
    print(record("prices_edge", results))


if __name__ == "__main__":
    main()
