"""BINAS on all of CIFAR-10: how well the score ranks, what its terms are worth, whether the frontier's order holds.

    python benchmarks/binas_cifar10.py search --data DIR --out runs/binas10      # the full fit, resumable
    python benchmarks/binas_cifar10.py alone --data DIR --out runs/binas10 --part 0/2   # every second of ten networks
    python benchmarks/binas_cifar10.py record --out runs/binas10 [--suffix _longer]

DIR holds CIFAR-10's binary files. `search` runs `sartor fit` (supernet, score, held-out networks, frontier against
MACs, chosen network); `alone` trains ten networks spread over the frontier from scratch with one short recipe; `record`
writes results/binas_cifar10SUFFIX.json with the ablation of table 2 and the paper's figures beside ours.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from _record import record
from scipy.stats import kendalltau, spearmanr

sys.path.append(str(Path(__file__).resolve().parents[1] / "reproduce"))
from binas_ablation import ablate

import sartor
from sartor.core.arch import Choice
from sartor.core.quadratic import Quadratic
from sartor.runs.directory import Run

NETWORKS = 10
PAPER = {
    "data": "a fifth of ImageNet's training images", "held_out_networks": 500, "kendall": 0.84, "spearman": 0.97,
    "heaviest_epochs": 250, "multipath_epochs": 100, "validation_epochs": 2560, "gpu_hours": "435 + 8 or 15 a network",
}  # fmt: skip


def search(args: argparse.Namespace) -> None:
    """The main job; finished stages are not run again."""
    heaviest, multipath, final = args.epochs
    method = {
        "name": "binas", "heaviest_epochs": heaviest, "heaviest_lr": 0.3, "multipath_epochs": multipath,
        "multipath_lr": args.multipath_lr,
        "batch": args.batch, "passes": args.passes, "held_out": args.held_out, "augment": "standard",
    }  # fmt: skip
    train = {"epochs": final, "lr": 0.05, "batch": 360}
    result = sartor.fit(
        args.data, out=args.out, macs=args.macs, device=args.device, effort="standard", val=args.val,
        space={"preset": args.preset}, method=method, train=train,
    )  # fmt: skip
    print(result.certificate["budgets"], result.certificate["accuracy"], result.certificate["ranking"])


def chosen(out: Path) -> list[dict]:
    """Networks at evenly spaced MACs along the frontier, from its cheapest to its dearest."""
    found = sartor.load(out).frontier
    wanted = np.linspace(found.cost[0], found.cost[-1], NETWORKS)
    places = [int(np.abs(found.cost - w).argmin()) for w in wanted]
    return [
        {"macs": float(found.cost[n]), "predicted": float(found.score[n]), "picks": found.picks[n].tolist()}
        for n in places
    ]


def alone(args: argparse.Namespace) -> None:
    """Train this part's networks from scratch."""
    from _alike import Alike

    from sartor.core.arch import Arch
    from sartor.engine.recipe import Recipe
    from sartor.spaces.mobile.space import Mobile

    part, parts = (int(n) for n in args.part.split("/"))
    alike = Alike(args.data, args.out / "alone", args.device, Recipe(epochs=args.alone_epochs, batch=256, lr=0.2))
    space = Mobile(preset=args.preset).fitted(alike.task)
    for n, point in enumerate(chosen(args.out)):
        if n % parts == part:
            arch = Arch(tuple(point["picks"]))
            alike.train(f"network-{n}", lambda arch=arch: space.network(arch, alike.task))


def reliability(one: list[float], two: list[float]) -> float:
    """The share of the accuracies' variance that other images would show again (Spearman and Brown, from halves)."""
    r = float(np.corrcoef(one, two)[0, 1])
    return 2 * r / (1 + r)


def summary(args: argparse.Namespace) -> None:
    """Everything that is there, as JSON."""
    run = Run.open(args.out)
    learnt = run.read("score.json")
    facts, training, result = learnt["facts"], run.read("training.json"), sartor.load(args.out)
    choices = [
        Choice(c["name"], tuple(c["options"]), tuple((int(i), tuple(a)) for i, a in c["needs"]))
        for c in learnt["choices"]
    ]
    held, score = facts["held_out"], Quadratic.from_json(learnt["score"])
    table2 = {}
    for name, part in ablate(score, choices).items():
        predicted = part.batch(held["picks"])
        table2[name] = {
            "kendall": float(kendalltau(predicted, held["measured"]).statistic),
            "spearman": float(spearmanr(predicted, held["measured"]).statistic),
            "mse": float(np.mean((predicted - held["measured"]) ** 2)),
        }
    points = chosen(args.out)
    for n, point in enumerate(points):
        file = args.out / "alone" / f"network-{n}" / "result.json"
        if file.exists():
            point["alone"] = json.loads(file.read_text())
    trained = [p for p in points if "alone" in p]
    order = {}
    if len(trained) > 2:
        predicted = [p["predicted"] for p in trained]
        for kind in ("val_accuracy", "test_accuracy"):
            reached = [p["alone"][kind] for p in trained]
            order[kind] = {
                "kendall": float(kendalltau(predicted, reached).statistic),
                "spearman": float(spearmanr(predicted, reached).statistic),
            }
    phases, splits = {**facts["history"], "final": training["history"]}, run.read("splits.json")
    images = len(splits["train"])
    print(record(f"binas_cifar10{args.suffix}", {
        "preset": args.preset, "training_images": images, "validation_images": len(splits["val"]),
        "certificate": result.certificate,
        "entries": 1 + sum(len(c.options) for c in choices),
        "held_out_networks": len(held["measured"]),
        "held_out_spread": {"mean": float(np.mean(held["measured"])), "std": float(np.std(held["measured"]))},
        "held_out_reliability": reliability(*held["halves"]),
        "ranking": learnt["quality"],
        "table_2": table2,
        "seconds": {k: v["seconds"] for k, v in run.stages().items()},
        "training_seconds": {k: sum(images / e["images_per_second"] for e in h) for k, h in phases.items()},
        "epochs": {name: len(history) for name, history in phases.items()},
        "images_per_second": {k: float(np.median([e["images_per_second"] for e in h])) for k, h in phases.items()},
        "validation_epochs": facts["validation_epochs"],
        "measuring_seconds": facts["measuring_seconds"],
        "checking_seconds": facts["checking_seconds"],
        "heaviest_val_accuracy": facts["heaviest_accuracy"],
        "frontier_points": len(result.frontier),
        "networks_trained_alone": points,
        "alone_epochs": sorted({len(p["alone"]["loss"]) for p in trained}),
        "order_of_networks_trained_alone": order,
        "paper": PAPER,
    }))  # fmt: skip
    print({name: round(row["kendall"], 3) for name, row in table2.items()}, order)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "alone", "record"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/binas10"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="small", help="of the mobile space: widths and strides")
    parser.add_argument("--val", type=float, default=0.7, help="share of the training images that measures networks")
    parser.add_argument("--macs", default="28M")
    parser.add_argument("--epochs", type=int, nargs=3, default=(70, 85, 5), help="heaviest, multi-path, final")
    parser.add_argument("--multipath-lr", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=720)
    parser.add_argument("--passes", type=int, default=500)
    parser.add_argument("--held-out", type=int, default=320)
    parser.add_argument("--alone-epochs", type=int, default=16)
    parser.add_argument("--suffix", default="", help="of the result's name, for another setting than the default")
    parser.add_argument("--part", default="0/1", help="of the ten networks: i/n")
    args = parser.parse_args()
    {"search": search, "alone": alone, "record": summary}[args.what](args)


if __name__ == "__main__":
    main()
