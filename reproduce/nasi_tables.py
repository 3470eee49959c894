"""Tables 6 and 8 and figure 2 of NASI on NAS-Bench-1Shot1, and table 4's budgets: other widths, batches, steps.

The paper's selection (Delta* alone) with our other defaults, on CIFAR-10 images and labels; test errors of the cells
chosen, mean and deviation over seeds, those of benchmarks/nasi_search.py. Table 6: the search network's first width N.
Table 8: the images b of a mini-batch. Figure 2: how many steps the search has, from the same gradients; the methods
that train, which the paper draws beside it, are not here: the lines are networks that no search chose. The same on
NAS-Bench-201, where table 4 has T and 4 T.

    SARTOR_TEST_DATA=.../data python reproduce/nasi_tables.py [--seeds 5] [--only batch/S1] [--draw]

Gradients are kept under runs/nasi_tables, so that a run which was stopped goes on.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "reproduce")]
from _record import parser, record  # noqa: E402
from nasi_data import Cifar  # noqa: E402
from nasi_search import beside, source  # noqa: E402
from nasi_study import Shares, benchmark  # noqa: E402

from sartor.core.seeds import Seeds  # noqa: E402
from sartor.core.task import Task  # noqa: E402
from sartor.methods.nasi import NASI, Reward, _smaller  # noqa: E402

KEPT = ROOT / "runs/nasi_tables"
FIRST, SPACES = 100, ("S1", "S2", "S3")
WIDTHS, BATCHES, DEFAULT = (2, 4, 8, 16, 32), (8, 16, 32, 64, 128), (8, 16)  # of the search network, of the images
BUDGETS = (1, 2, 5, 10, 20, 50, 100, 200)  # steps
PAPER = {  # test errors in percent
    "width": {"S1": (7.0, 8.3, 8.0, 7.3, 6.5), "S2": (7.3, 8.0, 7.3, 7.3, 7.0), "S3": (7.6, 7.7, 6.8, 6.8, 6.4)},
    "batch": {"S1": (6.8, 6.7, 6.7, 6.0, 7.0), "S2": (6.9, 7.3, 7.1, 7.2, 6.8), "S3": (7.0, 6.6, 6.7, 6.6, 7.1)},
}  # fmt: skip


def searched(name: str, width: int, batch: int, seed: int, images: Cifar) -> dict[str, Any]:
    """The values x, their slopes and nu of one search; computed once."""
    path = KEPT / f"{name} {width} {batch} {seed}.npz"
    if not path.exists():
        method, on = NASI(batch=batch), benchmark(name)
        space = replace(on.space, sketch_channels=width)
        draw = _smaller(source(method, images, seed), 32 // method.side)
        reward = Reward(method, space, Task(10, method.side), Seeds(seed), draw, "cpu")
        nu, seen = method._nu(reward), [reward(step) for step in range(method.steps)]
        KEPT.mkdir(parents=True, exist_ok=True)
        np.savez(path, nu=nu, x=[x for x, _ in seen], slopes=torch.stack([s for _, s in seen]).numpy())
    with np.load(path) as data:
        return dict(data)


def error(shares: Shares, kept: dict[str, Any], steps: int) -> float:
    """The test error of the cell that so many steps choose."""
    seen = list(zip(kept["x"][:steps].tolist(), torch.from_numpy(kept["slopes"][:steps]), strict=True))
    total = shares.totals(NASI().delta(seen, float(kept["nu"]))[0].numpy())
    on = shares.benchmark
    return 100.0 - float(on.table.column(on.reports)[int(np.argmax(np.where(shares.ruled, total, -np.inf)))])


def cells(what: str) -> list[tuple[int, int]]:
    """Width and batch of every column of a table."""
    columns = {"width": [(w, DEFAULT[1]) for w in WIDTHS], "batch": [(DEFAULT[0], b) for b in BATCHES]}
    return columns.get(what, [DEFAULT])


def summary(seeds: int, images: Cifar) -> dict[str, Any]:
    """Everything that is kept."""
    found: dict[str, Any] = {what: {} for what in ("width", "batch")}
    found["budget"] = {}
    for name in (*SPACES, "NAS-Bench-201"):
        shares, every = Shares(name), range(FIRST, FIRST + seeds)

        def of(width: int, batch: int, steps: int) -> dict[str, Any] | None:
            there = [s for s in every if (KEPT / f"{name} {width} {batch} {s}.npz").exists()]  # noqa: B023
            errors = [error(shares, searched(name, width, batch, s, images), steps) for s in there]  # noqa: B023
            spread = float(np.std(errors, ddof=1)) if len(errors) > 1 else 0.0
            return {"mean": float(np.mean(errors)), "std": spread, "seeds": len(errors)} if errors else None

        for what, values in (("width", WIDTHS), ("batch", BATCHES)) if name in SPACES else ():
            made = {str(v): of(*cell, BUDGETS[-1]) for v, cell in zip(values, cells(what), strict=True)}
            both = zip(made.items(), PAPER[what][name], strict=True)
            found[what][name] = {k: {**v, "paper": p} for (k, v), p in both if v}
        found["budget"][name] = {str(t): of(*DEFAULT, t) for t in BUDGETS}
        found["budget"][name]["beside"] = {k: 100.0 - v for k, v in beside(benchmark(name)).items()}
    return found


def draw(path: Path, found: dict[str, Any]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(14, 3.2), layout="constrained", sharey=True)
    for panel, (name, part) in zip(panels, found["budget"].items(), strict=True):
        rows = [part[str(t)] for t in BUDGETS]
        panel.errorbar(
            BUDGETS, [r["mean"] for r in rows], [r["std"] for r in rows], marker="o", capsize=3, label="NASI"
        )
        for n, (what, value) in enumerate(part["beside"].items()):
            panel.axhline(value, color=f"C{n + 1}", ls=":", label=what)
        panel.set(xscale="log", title=name, xlabel="steps", ylim=(5, 14))
    panels[0].set_ylabel("test error, %")
    panels[0].legend(fontsize=7)
    figure.savefig(path, dpi=120)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--only", default="", help="what begins so: width, batch/S1, budget, ...")
    options.add_argument("--most", type=int, default=128, help="the largest width or batch")
    options.add_argument("--draw", action="store_true", help="only what is kept")
    given = options.parse_args()
    torch.set_num_threads(1)
    images = Cifar()
    for seed in range(FIRST, FIRST + (0 if given.draw else given.seeds)):
        wanted = [(what, name) for what in ("width", "batch") for name in SPACES]
        for what, name in [*wanted, ("budget", "NAS-Bench-201")]:
            for width, batch in cells(what) if f"{what}/{name}".startswith(given.only) else ():
                if {"width": width, "batch": batch}.get(what, 0) <= given.most:
                    searched(name, width, batch, seed, images)
    found = summary(given.seeds, images)
    print(record("nasi_tables", {"steps": BUDGETS[-1], **found}))
    for what in ("width", "batch"):
        for name, row in found[what].items():
            print(what, name, {k: f"{v['mean']:.2f} +- {v['std']:.2f} ({v['paper']})" for k, v in row.items()})
    draw(ROOT / "reproduce/figures/nasi_tables.png", found)


if __name__ == "__main__":
    main()
