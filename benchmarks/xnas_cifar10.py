"""A search for cells on all of CIFAR-10: XNAS, the DARTS baseline and random cells, their networks trained alike.

    python benchmarks/xnas_cifar10.py search xnas --data DIR --out runs/cells10       # likewise: search darts
    python benchmarks/xnas_cifar10.py train --data DIR --out runs/cells10 --part 0/3  # every third network
    python benchmarks/xnas_cifar10.py record --out runs/cells10

DIR holds CIFAR-10's binary files. `search` runs `sartor fit` on the paper's search network (8 cells, 16 channels) under
a budget that every cell meets, so that the paper's own discretisation decides; it resumes where it was stopped.
`train` trains the found cells, five random ones and published ones (`--beside`, with nothing after it: none) with one
short recipe at a small width; the cells of searches that are not finished come with the next call.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from _record import record

import sartor
from sartor.runs.directory import Run

METHODS = ("xnas", "darts")
RANDOM = 5
PUBLISHED = ("XNAS", "DARTS_V2")
SIZE = {"cells": 8, "channels": 16}
SEARCH = {"search_cells": 8, "search_channels": 16}


def search(args: argparse.Namespace) -> None:
    """One method's search, discretisation and network, as a run of its own."""
    # Twice the paper's batch, and twice DARTS's rate for it. zeta = 0.1 lets experts leave in the last tenth of the
    # search instead of its last steps: of 10 epochs the first nine keep all seven, the last one ends with one an edge.
    method = {"epochs": args.epochs, "batch": args.batch, "lr": 0.05}
    method |= {"zeta": 0.1, "rate": args.rate} if args.method == "xnas" else {"mixture_lr": 3e-3}
    space = {"name": "darts", **SIZE, **SEARCH}
    result = sartor.fit(
        args.data, out=args.out / args.method, space=space,
        method={"name": args.method, **method}, params="10M", device=args.device, effort="standard",
        train={"epochs": args.train_epochs, "batch": 128, "lr": 0.1, "augment": "standard"},
    )  # fmt: skip
    print(args.method, result.certificate["accuracy"])


def cells(out: Path, beside: Sequence[str]) -> dict:
    """Every network to train alike: name -> genotype."""
    import numpy as np

    from sartor.spaces.cells.darts import Darts
    from sartor.spaces.cells.genotype import PUBLISHED as published

    space, rng, found = Darts(), np.random.default_rng(0), {}
    for method in METHODS:
        if (out / method / "solution.json").exists():
            found[method] = space.genotype(sartor.load(out / method).arch)
    found |= {f"random-{n}": space.genotype(space.sample(rng)) for n in range(RANDOM)}
    return found | {f"published-{name}": published[name] for name in beside}


def train(args: argparse.Namespace) -> None:
    """The networks of one part."""
    from _alike import Alike

    from sartor.engine.recipe import Recipe
    from sartor.spaces.cells.nets import CellNet, Frame

    part, parts = (int(n) for n in args.part.split("/"))
    recipe = Recipe(epochs=args.train_epochs, batch=128, lr=0.1, augment="standard")
    alike = Alike(args.data, args.out / "alike", args.device, recipe)
    frame = Frame(SIZE["channels"], SIZE["cells"], pool_norm=True)
    for n, (name, cell) in enumerate(cells(args.out, args.beside).items()):
        if n % parts == part:
            alike.train(name, lambda cell=cell: CellNet(cell, frame, alike.task))


def summary(args: argparse.Namespace) -> None:
    """Everything that is there, as JSON."""
    rows, searches = {}, {}
    for name, cell in cells(args.out, args.beside).items():
        file = args.out / "alike" / name / "result.json"
        rows[name] = {"genotype": cell.to_json(), **(json.loads(file.read_text()) if file.exists() else {})}
    for method in METHODS:
        if (args.out / method / "solution.json").exists():
            run = Run.open(args.out / method)
            facts, stages = run.read("score.json")["facts"], run.stages()
            history = facts["history"][method]
            searches[method] = {
                "search_seconds": stages["search"].seconds, "epochs": len(history),
                "loss": [h["loss"] for h in history], "images_per_second": [h["images_per_second"] for h in history],
                "remaining": [[g.get("remaining") for g in e["groups"]] for e in facts["mixture"]["epochs"]],
                "entropy": [[g.get("entropy") for g in e["groups"]] for e in facts["mixture"]["epochs"]],
                "string": run.read("solution.json")["string"],
            }  # fmt: skip
    print(
        record(
            "xnas_cifar10", {"network": SIZE, "train_epochs": args.train_epochs, "searches": searches, "cells": rows}
        )
    )
    for name, row in rows.items():
        print(f"{name:<20} error {row.get('test_error', float('nan')):6.2f} %  {row.get('parameters')}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "train", "record"))
    parser.add_argument("method", nargs="?", choices=METHODS, default="xnas")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/cells10"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--train-epochs", type=int, default=10)
    parser.add_argument("--beside", nargs="*", default=PUBLISHED, choices=PUBLISHED, help="published cells to train")
    parser.add_argument("--part", default="0/1", help="of the networks: i/n")
    args = parser.parse_args()
    {"search": search, "train": train, "record": summary}[args.what](args)


if __name__ == "__main__":
    main()
