"""Algorithm 3 of BayesNAS as printed, lambda alone deciding: no budget, no solver, no teacher, no fine-tuning.

A network is trained, then goes through rounds of reweighted group-lasso training, Hessians, new gammas and omegas, and
pruning (appendix B; the paper: 10 rounds of 10 epochs). What is written down after every round: the weights that are
left, and the error on test images. Lambda is given in units of 1 / training images.

    python reproduce/bayesnas_algorithm3.py run 300-100 --data MNIST --strength 1 --minutes 6    # likewise: 5, resnet18
    python reproduce/bayesnas_algorithm3.py record --out runs/algorithm3     # results/bayesnas_algorithm3.json

A run ends with the round in which its minutes are over, or before one that leaves no network; the same command goes on.
What budgets add, which are ours: bayesnas_lenet.py and benchmarks/compress_resnet18.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import header, record  # noqa: E402
from bayesnas_lenet import lenet_5, lenet_300_100  # noqa: E402
from compress_resnet18 import ResNet18  # noqa: E402

from sartor.compression.given import Given, open_given  # noqa: E402
from sartor.compression.options import Compression  # noqa: E402
from sartor.compression.rounds import Sparse, run_rounds  # noqa: E402
from sartor.engine import checkpoint  # noqa: E402
from sartor.engine.evaluate import accuracy  # noqa: E402
from sartor.engine.network import train_network  # noqa: E402
from sartor.engine.recipe import Recipe  # noqa: E402
from sartor.runs.progress import Reporter  # noqa: E402

PAPER = {"300-100": "1.39 to 1.54 %", "5": "0.83 to 1.00 %", "resnet18": "6.58 to 6.23 % with 3 % of the weights"}


def made(net: str, width: int) -> nn.Module:
    return {"300-100": lenet_300_100, "5": lenet_5}[net]() if net != "resnet18" else ResNet18(width=width)


def opened(args: argparse.Namespace, folder: Path) -> Given:
    """The job; lambda in units of one over the training images."""
    augment = "light" if args.net == "resnet18" else "none"
    options = Compression(
        model=args.net, data=str(args.data), structures=("filter", "shape"), device=args.device, seed=args.seed,
        val=0.05, rounds=args.rounds, epochs=args.epochs, batch=args.batch, rate=args.rate,
        train_options={"augment": augment},
    )  # fmt: skip
    torch.manual_seed(args.seed)
    job = open_given(options, folder, Reporter(quiet=True), made(args.net, args.width))
    if args.images:
        some = np.sort(job.seeds.rng("some images").permutation(job.splits.train)[: args.images])
        job = replace(job, splits=replace(job.splits, train=some))
    strength = args.strength / len(job.splits.train)
    return replace(job, options=replace(job.options, strength=strength))


def run(args: argparse.Namespace) -> None:
    start, folder = time.monotonic(), args.out / f"{args.net}-{args.strength:g}-{args.seed}"
    torch.set_num_threads(args.threads)
    job = opened(args, folder)
    torch.set_num_threads(args.threads)
    net, given = job.engine.place(job.net), folder / "given.safetensors"
    if not given.exists():
        recipe = Recipe(
            epochs=args.pretrain, lr=0.1, batch=args.batch, weight_decay=5e-4, smoothing=0.0,
            augment=job.options.train_options["augment"],
        )  # fmt: skip
        train_network(net, None, recipe, job.feed, job.splits, job.run, "given")
        checkpoint.save(given, net.state_dict())
    net.load_state_dict(checkpoint.load(given))
    about = {k: v for k, v in vars(args).items() if k not in ("what", "data", "out", "minutes", "threads")}
    found: dict[str, Any] = {
        **about, "lambda": job.options.strength, "train_images": len(job.splits.train), "paper": PAPER[args.net],
        "made": header(),
        "error_before": 100 - accuracy(net, job.feed, job.splits.test), "rounds": [],
    }  # fmt: skip
    sparse = Sparse(job, net.cpu()).place()  # channels are found on the CPU
    for t in range(1, args.rounds + 1):
        if time.monotonic() - start > 60 * args.minutes:
            break
        history = run_rounds(replace(job, options=replace(job.options, rounds=t)), sparse, {}, {})
        if len(history) < t:  # it would have left no network
            break
        left = {k: history[-1][k] for k in ("weights", "of_weights", "channels", "val_trained", "val_pruned", "loss")}
        error = 100 - accuracy(sparse.net, job.feed, job.splits.test)
        living = [int((v > 0).sum()) for v in sparse.values()]
        share = left["weights"] / left["of_weights"]
        found["rounds"].append({**left, "share": share, "error": error, "living": living})
        found["seconds"] = time.monotonic() - start
        (folder / "found.json").write_text(json.dumps(found, indent=2) + "\n")
        last = found["rounds"][-1]
        print(f"{folder.name} round {t}: {last['share']:.1%} of the weights, error {error:.2f} %", flush=True)


def summary(args: argparse.Namespace) -> None:
    """Everything that is there."""
    found = [json.loads(p.read_text()) for p in sorted(args.out.glob("*/found.json"))]
    rows = [{**f, "share": f["rounds"][-1]["share"], "error_after": f["rounds"][-1]["error"]} for f in found]
    nets = {net: sorted((r for r in rows if r["net"] == net), key=lambda r: r["strength"]) for net in PAPER}
    for net, some in nets.items():
        for r in some:
            print(f"{net} lambda {r['strength']:g} / N: {r['error_before']:.2f} to {r['error_after']:.2f} %, "
                  f"{r['share']:.1%} of the weights after {len(r['rounds'])} rounds")  # fmt: skip
    print(record("bayesnas_algorithm3", nets))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "record"))
    parser.add_argument("net", nargs="?", choices=tuple(PAPER), default="300-100")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/algorithm3"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strength", type=float, default=1.0, help="lambda, in units of 1 / training images")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=10, help="of a round")
    parser.add_argument("--pretrain", type=int, default=20, help="epochs of the network that is given")
    parser.add_argument("--images", type=int, default=0, help="that an epoch sees; 0: all")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=64, help="of ResNet-18's first stage")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no round begins")
    args = parser.parse_args()
    {"run": run, "record": summary}[args.what](args)


if __name__ == "__main__":
    main()
