"""What does a session cost in which a tensor's memory is free after its last reader? Calls of both kinds, interleaved.

What lives at once is exact in a session without `enable_mem_reuse` and `enable_mem_pattern`. Networks of three
spaces in float32 and in int8 are called in both kinds of session, one thread, the two beside each other in every
round; told are the median of the rounds' ratios and its interval.
"""

from __future__ import annotations

import os

import numpy as np
from _record import parser, record
from peak_memory import session

from sartor.core.registry import SPACES
from sartor.core.task import Task
from sartor.costs.latency.cost import as_deployed
from sartor.deploy.module import INPUT, onnx_graph
from sartor.deploy.quantise import sketched
from sartor.deploy.timing import InProcess, interleaved, interval

SIDES, ROUNDS, VISIT = {"edge": (8, 32, 224), "mobile": (32, 224), "plain": (32,)}, 31, 0.015


def calls(graph, shape):
    """A call in either kind of session."""
    feed = {INPUT: np.random.default_rng(0).random((1, *shape), np.float32) * 255}
    runs = {kind: session(graph, kind == "lean") for kind in ("default", "lean")}
    return {kind: (lambda run=run: run.run(None, feed)) for kind, run in runs.items()}


def main() -> None:
    parser(__doc__).parse_args()
    results, load = {}, [os.getloadavg()[0]]
    for name, sides in SIDES.items():
        for side in sides:
            task = Task(10, side, 3)
            space = SPACES[name]().fitted(task)
            net = as_deployed(space, space.sample(np.random.default_rng(0)), task)
            plain = onnx_graph(net, (3, side, side))
            for precision, graph in (("float32", plain), ("int8", sketched(plain))):
                made = calls(graph, (3, side, side))
                times = interleaved(InProcess(made), list(made), ROUNDS, VISIT, np.random.default_rng(0))
                ratios = times["lean"] / times["default"]
                found = {
                    "default_ms": round(float(np.median(times["default"])), 4),
                    "lean_over_default": round(float(np.median(ratios)), 4),
                    "interval": [round(v, 4) for v in interval(ratios)],
                }
                results[f"{name} {side} {precision}"] = found
                print(name, side, precision, found, flush=True)
    every = [found["lean_over_default"] for found in results.values()]
    told = {"median": round(float(np.median(every)), 4), "least": min(every), "most": max(every)}
    print(told)
    load.append(os.getloadavg()[0])
    print(record("peak_session", {"load_before_and_after": load, "lean_over_default": told, "networks": results}))


if __name__ == "__main__":
    main()
