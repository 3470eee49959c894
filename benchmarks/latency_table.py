"""Does the latency table predict whole networks? Thirty fresh random networks, predicted against measured.

The bar: Spearman at least 0.95 and a median absolute error of at most 10 % on the CPU preset.

    python benchmarks/latency_table.py [--preset small] [--device cuda --runtime torch] [--networks 30]
"""

from __future__ import annotations

import argparse
from time import perf_counter

import numpy as np
from _record import record
from scipy.stats import kendalltau, spearmanr

from sartor.core.task import Task
from sartor.costs.latency.cost import Latency, as_deployed
from sartor.costs.macs import Macs
from sartor.deploy.runtimes.base import Reference
from sartor.deploy.timing import InProcess, interleaved, polished, threads_of_torch
from sartor.spaces.mobile.space import Mobile

TASKS = {"tiny": Task(10, 8, 1), "small": Task(10, 32), "medium": Task(20, 64), "paper": Task(1000, 224)}


def one(preset: str, cost: Latency, count: int) -> dict:
    """Make the table, then measure `count` networks that the calibration has not seen, in a sitting of their own."""
    task = TASKS[preset]
    space = Mobile(preset=preset)
    start = perf_counter()
    table = cost.table(space, task)
    seconds = perf_counter() - start
    rng = np.random.default_rng(2024)
    archs = [space.sample(rng) for _ in range(count)]
    image = (task.channels, task.image, task.image)
    runtime = cost.deployed_under()
    with threads_of_torch(cost.threads):
        calls = {str(i): runtime.workload(as_deployed(space, a, task), image) for i, a in enumerate(archs)}
        calls["reference"] = runtime.workload(Reference(), Reference.shape)
        times = polished(interleaved(InProcess(calls), list(calls), cost.rounds, cost.visit_ms / 1e3, rng))
    measured = np.array([np.median(times[str(i)]) for i in range(count)])
    predicted = table.form.batch([a.picks for a in archs])
    errors = np.abs(predicted / measured - 1)
    notes = table.calibration
    drift = float(np.median(times["reference"])) / notes["reference_ms"]
    macs = Macs().table(space, task).form.batch([a.picks for a in archs])
    return {
        "networks": count,
        "spearman": float(spearmanr(predicted, measured)[0]),
        "kendall": float(kendalltau(predicted, measured)[0]),
        "median_absolute_error": float(np.median(errors)),
        "p95_absolute_error": float(np.quantile(errors, 0.95)),
        "largest_error": float(errors.max()),
        "drift_since_the_table": drift,
        "median_absolute_error_less_drift": float(np.median(np.abs(predicted * drift / measured - 1))),
        "spearman_of_macs": float(spearmanr(macs, measured)[0]),
        "table_seconds": round(seconds, 1),
        "parts": len(table.prices),
        "range_ms": [float(measured.min()), float(measured.max())],
        "smallest_and_heaviest_ms": notes["measured_ms"][:2],
        "calibration": {
            k: notes[k] for k in ("intercept_ms", "scale", "held_out_median_error", "held_out_worst_error")
        },
        "predicted_ms": predicted.round(5).tolist(),
        "measured_ms": measured.round(5).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", action="append", choices=TASKS)
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", type=int, default=30)
    parser.add_argument("--name", default="latency_table")
    options = parser.parse_args()
    cost = Latency(runtime=options.runtime, device=options.device)
    results: dict = {"device": cost.identity()}
    for preset in options.preset or ["small", "tiny"]:
        found = one(preset, cost, options.networks)
        results[preset] = found
        passed = found["spearman"] >= 0.95 and found["median_absolute_error"] <= 0.10
        print(
            f"{preset:6} spearman {found['spearman']:.4f} (of MACs {found['spearman_of_macs']:.4f}), "
            f"median absolute error {found['median_absolute_error']:.2%}, "
            f"worst {found['largest_error']:.1%}, drift {found['drift_since_the_table']:.3f}, "
            f"table in {found['table_seconds']} s: {'passed' if passed else 'FAILED'}"
        )
    print(record(options.name, results))


if __name__ == "__main__":
    main()
