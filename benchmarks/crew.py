"""Short trainings of many small networks on one device: one after the other, and side by side (`trials/crew.py`).

The same networks of the edge space, of 0.2 to 1 M parameters, each for so many steps, in the two ways, each with
processes that have met none of their shapes before. The time in which the processes start is told apart: a search
starts them while it times its first networks.

    python benchmarks/crew.py --data $SARTOR_TEST_DATA/tinyimagenet20 --device cuda
"""

from __future__ import annotations

import argparse
import shutil
import time
from pathlib import Path

import numpy as np
from _alike import Alike
from _record import record

from sartor.core.arch import Arch
from sartor.engine.recipe import Recipe
from sartor.methods.trials.bench import Bench, Work
from sartor.methods.trials.crew import Crew, size
from sartor.spaces.edge import Edge

LEAST, MOST = 2e5, 1e6  # parameters


def networks(space: Edge, alike: Alike, count: int) -> list[Arch]:
    """Landmarks and random networks by turns, of the sizes that are asked for."""
    rng, found = np.random.default_rng(0), list[Arch]()
    known = list(space.landmarks(alike.task).values())
    landmarks = iter(known[i].picks for i in rng.permutation(len(known)))
    while len(found) < count:
        picks = next(landmarks) if len(found) % 2 else rng.integers(space.sizes).tolist()
        arch = Arch(tuple(picks))
        if LEAST <= sum(p.numel() for p in space.network(arch, alike.task).parameters()) <= MOST:
            found.append(arch)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--networks", type=int, default=18)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--processes", type=int, default=0)
    parser.add_argument("--image", type=int)
    args = parser.parse_args()
    out = Path("/tmp/crew")
    recipe = Recipe(epochs=1, batch=256 if args.device == "cuda" else 64, lr=0.1, last_lr=0.1, warmup=0.0)
    alike = Alike(args.data, out, args.device, recipe, args.image)
    space = Edge().fitted(alike.task)
    chosen = networks(space, alike, args.networks)
    epochs = args.steps / len(alike.feed.batches(alike.splits.train, recipe.batch, "trials"))
    works = [Work(arch, 0, "drawn", "", None, epochs, None, False) for arch in chosen]
    bench = Bench(space, alike.feed, alike.splits, out, recipe, None)
    processes = args.processes or size(alike.feed, 0)
    taken, seen = {}, {}
    for way in ("one after the other", "side by side"):
        shutil.rmtree(out, ignore_errors=True)
        begin = time.monotonic()
        if way == "side by side":
            crew = Crew(bench, processes)
            first = [Work(Arch(space.heaviest.picks), 0, "drawn", "", None, 0.0, None, False)] * processes
            list(crew.train(first, lambda: False))  # nothing but an evaluation: everyone is there
            ready = time.monotonic()
            seen[way] = [t.accuracy for _, t in sorted(crew.train(works, lambda: False), key=lambda e: e[0])]
            taken["until the processes are there"] = ready - begin
            taken[way] = time.monotonic() - ready
            crew.close()
        else:
            seen[way] = [bench.measure(work).accuracy for work in works]
            taken[way] = time.monotonic() - begin
        print(f"{way}: {taken[way]:.1f} s, {60 * len(works) / taken[way]:.1f} networks a minute", flush=True)
    ratio = taken["one after the other"] / taken["side by side"]
    print(record(f"crew_{args.device}", {
        "networks": len(works), "parameters": [LEAST, MOST], "steps": args.steps, "batch": recipe.batch,
        "side": alike.task.image, "processes": processes, "seconds": taken, "accuracies": seen, "ratio": ratio,
        "asked": 4.0, "target": 8.0,
    }))  # fmt: skip
    print(f"ratio {ratio:.2f} (asked 4, target 8)")


if __name__ == "__main__":
    main()
