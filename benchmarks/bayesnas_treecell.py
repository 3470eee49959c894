"""BayesNAS without a proxy on CIFAR-10: every tree cell of a PyramidNet searched by itself, the network found trained.

    python benchmarks/bayesnas_treecell.py --data DIR --device cuda --minutes 10 --out runs/treecell

DIR holds CIFAR-10's binary files. Section 6.2 of the paper (arXiv:1905.04919): 54 bottlenecks, nine paths a cell,
lambda 0.01; then the network found, from scratch, with the short recipe that the other cells are trained with. How many
images a round sees and how many epochs the network is trained for follow from the minutes and a measured speed, and are
written down, so that the same command goes on where it was stopped; `--images` and `--train-epochs` say them outright.
`--beside random,whole` also trains a random network of as many parameters and the one with all paths.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _alike import Alike
from _record import record

from sartor.core.arch import Arch
from sartor.core.quadratic import Limit
from sartor.costs.macs import Macs
from sartor.costs.params import Params
from sartor.engine.network import train_network
from sartor.engine.recipe import Recipe
from sartor.methods.base import Job
from sartor.methods.bayesnas.method import BayesNAS
from sartor.methods.bayesnas.search import MOST
from sartor.methods.random import Random
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.treecell.space import TreeCells
from sartor.spaces.treecell.tree import PATHS, cells_of

PAPER = {"test_error": 2.41, "parameters_millions": 3.4, "gpu_days": 0.1, "whole_parameters_millions": 5.7}
SHARE = 0.5  # of the minutes, for the search
PROBE = 24  # steps that the speed is measured on


def kept(file: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` gives, from the file where it was made before."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        made = make()
        file.with_suffix(".part").write_text(json.dumps(made, indent=2) + "\n")
        file.with_suffix(".part").replace(file)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def speed(run: Callable[[Path], list[dict[str, float]]], folder: Path) -> float:
    """Images a second of the second of two short epochs: by then a step is recorded."""
    shutil.rmtree(folder, ignore_errors=True)
    history = run(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return history[-1]["images_per_second"]


def search(
    alike: Alike, space: TreeCells, method: BayesNAS, images: int | None, seconds: float, out: Path
) -> dict[str, Any]:
    """The search with `images` a round, or with as many as the time allows: posterior, rounds, what is left."""
    splits = alike.splits

    def job(count: int, path: Path) -> Job:
        some = np.sort(alike.seeds.rng("searched images").permutation(splits.train)[:count])
        return Job(space, alike.task, alike.feed, replace(splits, train=some), alike.seeds, Run(path, Reporter()))

    def probe(path: Path) -> list[dict[str, float]]:
        short = replace(method, rounds=2, epochs=1)
        found: list[dict[str, float]] = short.search(job(PROBE * method.batch, path)).facts["history"]["bayesnas"]
        return found

    def plan() -> dict[str, Any]:
        if images is not None:
            return {"images": images}
        rate = speed(probe, out / "probe")
        passes = (method.rounds or MOST) * method.epochs
        count = int(min(len(splits.train), rate * seconds / passes))
        return {"probed_images_per_second": rate, "images": max(count, 2 * method.batch)}

    def run() -> dict[str, Any]:
        planned = kept(out / "plan.json", plan)
        start = time.monotonic()
        found = method.search(job(planned["images"], out / "search"))
        took = time.monotonic() - start
        arch = solve(Problem(found.score)).arch
        switches = found.facts["switches"]
        return {
            **planned, "seconds": took, "cells": space.describe(arch), "picks": list(arch.picks),
            "rounds": switches["rounds"],
            "posterior": {p["switch"]: [p["mean"], p["gamma"], p["entropy"]] for p in switches["posterior"]},
            "history": found.facts["history"]["bayesnas"],
        }  # fmt: skip

    return kept(out / "found.json", run)


def epochs_for(alike: Alike, build: Callable[[], Any], seconds: float, out: Path) -> int:
    """Epochs of training for which there is time, at least three."""
    some = alike.seeds.rng("probed images").permutation(alike.splits.train)[: PROBE * alike.recipe.batch]
    splits = replace(alike.splits, train=np.sort(some))

    def probe(path: Path) -> list[dict[str, float]]:
        net, recipe = alike.engine.place(build()), replace(alike.recipe, epochs=2)
        return train_network(net, None, recipe, alike.feed, splits, Run(path, Reporter(silent=True)), "probe")

    def plan() -> dict[str, Any]:
        rate = speed(probe, out / "probe")
        return {"images_per_second": rate, "epochs": max(3, int(rate * seconds / len(alike.splits.train)))}

    return int(kept(out / "epochs.json", plan)["epochs"])


def others(names: str, space: TreeCells, alike: Alike, budget: float) -> dict[str, Arch]:
    """What is trained beside the network found."""
    made = {}
    if "random" in names:
        job = Job(space, alike.task, alike.feed, alike.splits, alike.seeds, Run(Path("."), Reporter(silent=True)))
        limit = Limit("params", Params().table(space, alike.task).form, budget, 0.9 * budget)
        made["random"] = solve(Problem(Random().search(job).score, (limit,))).arch
    return made | ({"whole": space.heaviest} if "whole" in names else {})


def sizes(space: TreeCells, arch: Arch, task: Any) -> dict[str, Any]:
    """Parameters, multiply-accumulates, and how many paths and blocks are left."""
    net, shape = space.network(arch, task), (task.channels, task.image, task.image)
    cells = cells_of(arch)
    return {
        "parameters": int(Params().of(net, shape)), "macs": int(Macs().of(net, shape)),
        "paths": sum(map(len, cells)), "of_paths": len(PATHS) * len(cells),
        "empty_blocks": sum(not c for c in cells), "one_path_blocks": sum(len(c) == 1 for c in cells),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/treecell"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--blocks", type=int, default=18, help="of each of the three stages")
    parser.add_argument("--alpha", type=int, default=84)
    parser.add_argument("--image", type=int, help="side of the images, where smaller ones are wanted")
    parser.add_argument("--strength", type=float, default=0.01, help="lambda of every edge")
    parser.add_argument(
        "--rate", type=float, default=1.0, help="learning rate of the switches, in units of the network's"
    )
    parser.add_argument("--rounds", type=int, default=4, help="0: until nothing leaves")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--images", type=int, help="that a round sees; default: as the minutes allow")
    parser.add_argument("--train-epochs", type=int, help="default: as the minutes allow")
    parser.add_argument("--beside", default="", help="random,whole")
    parser.add_argument("--name", default="bayesnas_treecell", help="of the result")
    args = parser.parse_args()

    recipe = Recipe(epochs=1, batch=128, lr=0.1, augment="standard")
    alike = Alike(args.data, args.out / "alike", args.device, recipe, args.image)
    space = TreeCells(blocks=args.blocks, channels=16, alpha=args.alpha).fitted(alike.task)
    method = BayesNAS(
        rounds=args.rounds, epochs=1, batch=args.batch, strength=args.strength, zero_strength=args.strength,
        rate=args.rate,
    )  # fmt: skip
    found = search(alike, space, method, args.images, 60 * SHARE * args.minutes, args.out)
    arch = Arch(tuple(found["picks"]))
    rest = 60 * args.minutes - found["seconds"]
    train = {"found": arch, **others(args.beside, space, alike, sizes(space, arch, alike.task)["parameters"])}
    epochs = args.train_epochs
    if epochs is None:
        epochs = epochs_for(alike, lambda: space.network(arch, alike.task), rest / len(train), args.out)
    alike.recipe = replace(recipe, epochs=epochs)
    rows = {}
    for name, one in train.items():
        trained = alike.train(name, lambda one=one: space.network(one, alike.task))
        rows[name] = {**sizes(space, one, alike.task), "cells": space.describe(one), **trained}
    results = {
        "space": {"blocks": args.blocks, "alpha": args.alpha, "switches": len(space.circuit(alike.task)),
                  "whole": sizes(space, space.heaviest, alike.task)},
        "method": {"strength": args.strength, "rate": args.rate, "rounds": args.rounds, "batch": args.batch,
                   "epochs_a_round": 1},
        "image": alike.task.image, "train_images": len(alike.splits.train), "train_epochs": epochs,
        "search": found, "networks": rows, "paper": PAPER,
    }  # fmt: skip
    print(record(args.name, results))
    for name, row in rows.items():
        print(f"{name:<8} {row['parameters']:>10,} parameters  error {row['test_error']:.2f} %  {row['paths']} paths")


if __name__ == "__main__":
    main()
