"""NASI on its reduced cells of DARTS, CIFAR-10: NASI-FIX, NASI-ADA, our defaults and random cells, trained alike.

    python benchmarks/nasi_darts.py --data DIR --device cuda --minutes 7 --out runs/nasi_darts

Tables 1 and 5 of the paper (arXiv:2109.00817) in pattern: FIX and ADA search as section 5.2 says (100 steps of 64
images, one initialisation in Jacot's parameterisation; nu is equation 40's mean, or equation 41's from five times it,
since the paper's numbers are for networks of unstated size). Every result is kept when it is there; after `--minutes`
nothing new is begun, and the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _alike import Alike
from _record import record

from sartor.core.arch import Arch
from sartor.engine.recipe import Recipe
from sartor.methods.nasi import NASI
from sartor.runs.directory import write_json
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.cells.darts_reduced import DartsReduced
from sartor.spaces.cells.nets import CellNet, Frame

THOROUGH = NASI.preset("thorough", 50_000)
METHODS = {"NASI-FIX": THOROUGH, "NASI-ADA": {**THOROUGH, "nu": "adaptive"}, "NASI, our defaults": {}}
PAPER = {"NASI-FIX": 2.79, "NASI-ADA": 2.90, "random (DARTS)": 3.29}  # errors in percent, 600 epochs of large networks


def found(alike: Alike, space: DartsReduced, name: str, seed: int) -> dict[str, Any]:
    """One search, or a random cell."""
    file = alike.out / f"{name}-{seed}.json"
    if not file.exists():
        start = time.monotonic()
        if name == "random":
            arch, facts = space.sample(np.random.default_rng(seed)), {}
        else:
            method, seeds = NASI(**METHODS[name]), type(alike.seeds)(seed)

            def draw(step: int) -> tuple[torch.Tensor, torch.Tensor]:
                rng = seeds.rng("nasi images", int(step < 0), abs(step))
                index = rng.choice(alike.splits.train, method.batch, replace=False)
                return next(iter(alike.feed.plain(index, method.batch)))

            score, facts = method.at_initialisation(space, alike.task, seeds, draw, alike.engine.device)
            arch = solve(Problem(score, space.rules)).arch
        write_json(file, {"picks": list(arch.picks), "seconds": time.monotonic() - start, "facts": facts})
    made: dict[str, Any] = json.loads(file.read_text())
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/nasi_darts"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--network", type=int, nargs=2, default=(8, 16), help="cells and channels of what is trained")
    parser.add_argument("--images", type=int, help="that training sees; all unless told")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    start, (cells, channels) = time.monotonic(), args.network
    recipe = Recipe(epochs=args.epochs, batch=args.batch, lr=0.1, augment="standard")
    alike = Alike(args.data, args.out, args.device, recipe, most=args.images)
    args.out.mkdir(parents=True, exist_ok=True)
    space, frame = (
        DartsReduced(cells=cells, channels=channels).fitted(alike.task),
        Frame(channels, cells, pool_norm=True),
    )
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in (*METHODS, "random")}
    for seed in range(args.seeds):
        for name, some in rows.items():
            if time.monotonic() - start > 60 * args.minutes:
                continue
            cell = found(alike, space, name, seed)
            genotype = space.genotype(Arch(tuple(cell["picks"])))
            trained = alike.train(f"{name}-{seed}", lambda g=genotype: CellNet(g, frame, alike.task))
            some.append({"seed": seed, "search_seconds": cell["seconds"], "genotype": genotype.to_json(), **trained})
            table = {
                n: {"errors": [r["test_error"] for r in rs],
                    "error_mean": float(np.mean([r["test_error"] for r in rs])),
                    "parameters_mean": float(np.mean([r["parameters"] for r in rs])), "runs": rs}
                for n, rs in rows.items() if rs
            }  # fmt: skip
            setting = {k: v for k, v in vars(args).items() if k not in ("data", "out", "minutes")}
            record("nasi_darts", {"setting": setting, "train_images": len(alike.splits.train), "paper": PAPER, **table})


if __name__ == "__main__":
    main()
