"""BayesNAS's proxy search on CIFAR-10 at the paper's three sparsity intensities; the cells found, trained alike.

    python benchmarks/bayesnas_cifar10.py --device cuda --data DIR --minutes 10 --out runs/bayes10

DIR holds CIFAR-10's binary files. Section 6.1 of the paper (arXiv:1905.04919): a search network of 8 cells and 16
channels, lambda 0.01, 0.007 and 0.005. Then the parameters of the evaluation network with the cells found (20 cells, 36
channels; as DARTS builds it, and as the paper does), and each cell's network (`--network` cells and channels) trained
with the short recipe of `xnas_cifar10.py`, beside published and random cells. Everything resumes: what is done is read
from `--out`, a search goes on after its last epoch. After `--minutes` nothing new is begun. `--part 0/3` takes every
third search and network, so that several processes can share a GPU; without it the last process records what is there;
so does `--record`.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _alike import Alike
from _record import record

from sartor.core.arch import canonical
from sartor.core.task import Task
from sartor.engine.recipe import Recipe
from sartor.methods.base import Job
from sartor.methods.bayesnas.method import BayesNAS
from sartor.runs.directory import Run, write_json
from sartor.runs.progress import Reporter
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.cells.bayes_nets import BayesNet
from sartor.spaces.cells.darts import Darts
from sartor.spaces.cells.freecells import FreeCells
from sartor.spaces.cells.genotype import PUBLISHED, Genotype
from sartor.spaces.cells.nets import CellNet, Frame

STRENGTHS = (0.01, 0.007, 0.005)
PAPER = {  # test error in percent, parameters in millions, of networks trained for 600 epochs
    "0.01": {"error": 3.02, "parameters": 2.59}, "0.007": {"error": 2.90, "parameters": 3.10},
    "0.005": {"error": 2.81, "parameters": 3.40}, "gpu_days": 0.2,
}  # fmt: skip
EVALUATED = Frame(36, 20)  # the paper's evaluation network
BESIDE = ("DARTS_V2", "XNAS", "BayesNAS-0.01", "BayesNAS-0.007", "BayesNAS-0.005")


def evaluation_parameters(genotype: Genotype, net: type[CellNet | BayesNet] = CellNet) -> int:
    """Of the evaluation network: DARTS's, or the paper's own with full dilated convolutions."""
    with torch.device("meta"):
        return sum(p.numel() for p in net(genotype, EVALUATED, Task(10, 32)).parameters())


def search(alike: Alike, strength: float, given: argparse.Namespace) -> dict[str, Any]:
    """One lambda: rounds, posterior, cells, seconds."""
    folder = given.out / f"lambda-{strength:g}"
    done = folder / "found.json"
    if done.exists():
        return dict(json.loads(done.read_text()))
    cells, channels = given.network
    sizes = {"cells": cells, "channels": channels, "search_cells": given.cells, "search_channels": given.channels}
    space = FreeCells(**sizes, order=given.order).fitted(alike.task)
    some = np.sort(alike.seeds.rng("searched images").permutation(alike.splits.train)[: given.images])
    splits = replace(alike.splits, train=some)
    job = Job(space, alike.task, alike.feed, splits, alike.seeds, Run(folder, Reporter()))
    method = BayesNAS(
        rounds=given.rounds, epochs=given.epochs, batch=given.batch, strength=strength,
        zero_strength=given.zero_strength or strength,
        rate=given.rate, augment="standard",
    )  # fmt: skip
    found = method.search(job)
    arch = canonical(space.choices, solve(Problem(found.score, space.rules)).arch)
    genotype, history = space.genotype(arch), found.facts["history"]["bayesnas"]
    switches = found.facts["switches"]
    result = {
        "lambda": strength, "genotype": genotype.to_json(), "string": space.describe(arch),
        "operations": [sum(map(len, cell.nodes)) for cell in (genotype.normal, genotype.reduce)],
        "evaluation_parameters": evaluation_parameters(genotype), "rounds": switches["rounds"],
        "seconds": sum(len(splits.train) / h["images_per_second"] for h in history), "history": history,
        "posterior": {p["switch"]: [p["mean"], p["gamma"], p["entropy"]] for p in switches["posterior"]},
    }  # fmt: skip
    write_json(done, result)
    print(
        f"lambda {strength:g}: {result['operations']} operations, {result['evaluation_parameters']:,} parameters at "
        f"20 cells and 36 channels, {result['seconds']:.0f} s", flush=True,
    )  # fmt: skip
    return result


def networks(given: argparse.Namespace) -> dict[str, Genotype | None]:
    """What is trained alike: the cells found (None where they are not yet) and published ones, always in this order."""
    found: dict[str, Genotype | None] = {}
    for strength in given.strengths:
        file = given.out / f"lambda-{strength:g}" / "found.json"
        there = Genotype.from_json(json.loads(file.read_text())["genotype"]) if file.exists() else None
        found[f"lambda-{strength:g}"] = there
    space, rng = Darts(), np.random.default_rng(0)
    found |= {f"random-{n}": space.genotype(space.sample(rng)) for n in range(given.random)}
    return found | {f"published-{name}": PUBLISHED[name] for name in given.beside}


def summary(given: argparse.Namespace) -> None:
    """Everything that is there, as JSON and in a few lines."""
    searches, rows = {}, {}
    for strength in given.strengths:
        file = given.out / f"lambda-{strength:g}" / "found.json"
        if file.exists():
            found = json.loads(file.read_text())
            counted = evaluation_parameters(Genotype.from_json(found["genotype"]), BayesNet)
            searches[f"{strength:g}"] = {**found, "papers_network_parameters": counted}
    for name, genotype in networks(given).items():
        if genotype is None:
            continue
        file = given.out / "alike" / name / "result.json"
        result = json.loads(file.read_text()) if file.exists() else {}
        count, error = evaluation_parameters(genotype), result.get("test_error", float("nan"))
        rows[name] = {"evaluation_parameters": count, **result}
        print(f"{name:<24} {count:>10,} parameters at 20 cells, error alike {error:.2f} %")
    counts = [searches[s]["evaluation_parameters"] for s in sorted(searches, key=float)]
    setting = {k: v for k, v in vars(given).items() if k not in ("data", "out", "part", "minutes", "record")}
    print(record("bayesnas_cifar10", {
        "setting": setting, "searches": searches, "alike": rows, "paper": PAPER,
        "parameters_fall_as_lambda_grows": counts == sorted(counts, reverse=True),
    }))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/bayes10"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which nothing new is begun")
    parser.add_argument("--part", default="0/1", help="of the searches and networks: i/n")
    parser.add_argument("--strengths", type=float, nargs="+", default=STRENGTHS)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1, help="of a round")
    parser.add_argument("--images", type=int, help="that an epoch of the search sees; all unless told")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument(
        "--rate", type=float, default=3.0, help="learning rate of the switches, in units of the network's"
    )
    parser.add_argument("--zero-strength", type=float, help="lambda of an edge, 0.01 in the authors' code and at "
                        "--effort thorough; default: an operation's, since the paper names one lambda")  # fmt: skip
    parser.add_argument("--order", choices=("relu_conv_bn", "bn_relu_conv"), default="relu_conv_bn",
                        help="of what is searched and trained: DARTS's, or the paper's")  # fmt: skip
    parser.add_argument("--cells", type=int, default=8, help="of the search network")
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--beside", nargs="*", default=BESIDE, choices=BESIDE, help="published cells to train too")
    parser.add_argument("--random", type=int, default=0, help="random cells to train too")
    parser.add_argument("--network", type=int, nargs=2, default=(8, 16), help="cells and channels of what is trained")
    parser.add_argument("--train-images", type=int, help="that training sees; all unless told")
    parser.add_argument("--train-epochs", type=int, default=10, help="0: search only")
    parser.add_argument("--record", action="store_true", help="begin nothing, write down what is there")
    given = parser.parse_args()
    if given.record:
        return summary(given)
    start, (part, parts) = time.monotonic(), (int(n) for n in given.part.split("/"))

    def late() -> bool:
        return time.monotonic() - start > 60 * given.minutes

    recipe = Recipe(epochs=given.train_epochs, batch=128, lr=0.1, augment="standard")
    alike = Alike(given.data, given.out / "alike", given.device, recipe, most=given.train_images)
    for n, strength in enumerate(given.strengths):
        if n % parts == part and not late():
            search(alike, strength, given)
    frame = Frame(given.network[1], given.network[0], pool_norm=True)
    net = BayesNet if given.order == "bn_relu_conv" else CellNet
    for n, (name, genotype) in enumerate(networks(given).items()):
        if n % parts == part and genotype is not None and given.train_epochs and not late():
            alike.train(name, lambda genotype=genotype: net(genotype, frame, alike.task))
    if late():
        print("out of time: run the same command again to go on")
    summary(given)


if __name__ == "__main__":
    main()
