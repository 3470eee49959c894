"""ResNet-18 on CIFAR-10, trained, compressed and fine-tuned: error, weights left and milliseconds before and after.

The paper (table S6) prunes a ResNet-18 of 6.58 % error to 2.96 % of its weights at 6.23 %, counting zeros; here what
goes, goes physically, and the smaller dense network is timed. Epochs follow from the minutes given and the measured
speed; the same command resumes.

    python benchmarks/compress_resnet18.py --device cuda --data carry/cifar10 --minutes 8 --macs 25%
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from _record import record
from torch import nn

from sartor.compression import stages
from sartor.compression.cut import Narrowing
from sartor.compression.given import open_given
from sartor.compression.options import Compression
from sartor.compression.table import layer_table
from sartor.costs.latency.cost import Latency
from sartor.engine import checkpoint
from sartor.engine.network import train_network
from sartor.engine.recipe import Recipe
from sartor.pipeline import order
from sartor.pipeline import stages as common
from sartor.runs.directory import write_json
from sartor.runs.progress import Reporter


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, into, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(into, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride > 1 or into != width:
            self.shortcut = nn.Sequential(nn.Conv2d(into, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):  # noqa: D102
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet18(nn.Module):
    """For 32-pixel images: a 3x3 stem, four stages of two blocks."""

    def __init__(self, classes=10, width=64):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        blocks, into = [], width
        for stage in range(4):
            for n in range(2):
                out = width * 2**stage
                blocks.append(Block(into, out, 2 if n == 0 and stage else 1))
                into = out
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(into, classes)

    def forward(self, x):  # noqa: D102
        x = F.relu(self.bn1(self.conv1(x)))
        return self.fc(self.pool(self.blocks(x)).flatten(1))


SHARES = {"pretrain": 0.42, "rounds": 0.2, "finetune": 0.3}  # of the minutes; the rest is Hessians, timing, tables
DEARER = {"pretrain": 1.0, "rounds": 1.3, "finetune": 1.35}  # a step with the proximal step, with a teacher


def schedule(args, job, net):
    """Epochs of every phase: from the minutes and the speed measured once, on a fresh network."""
    path = job.run.path / "schedule.json"
    if not path.exists():
        index = job.splits.train[: args.batch * args.probe]
        recipe = Recipe(epochs=2, batch=args.batch, augment="light")
        history = train_network(net, None, recipe, job.feed, replace(job.splits, train=index), job.run, "probe")
        epoch = len(job.splits.train) / history[-1]["images_per_second"]
        plan = {k: max(1, round(60 * args.minutes * share / (DEARER[k] * epoch))) for k, share in SHARES.items()}
        write_json(path, {"seconds_an_epoch": epoch, **plan})
    return json.loads(path.read_text())


def opened(args, epochs, module):
    rounds = args.rounds
    options = Compression(
        model="ResNet-18", data=args.data, budgets={"macs": args.macs}, structures=("filter", "shape"),
        device=args.device, runtime="torch", seed=args.seed, val=0.04, rounds=rounds,
        epochs=max(1, epochs["rounds"] // rounds), pretrain=0, strength=args.strength, rate=args.rate, batch=args.batch,
        levels=12,
        train_options={"epochs": epochs["finetune"], "lr": 0.05, "batch": args.batch, "weight_decay": 5e-4,
                       "smoothing": 0.0, "augment": "light"},
    )  # fmt: skip
    return open_given(options, args.out, Reporter(), module)


def pretrained(args, job, epochs):
    """The baseline: SGD, cosine, crops and mirror images."""
    net, path = job.engine.place(job.net), args.out / "given.safetensors"
    if path.exists():
        net.load_state_dict(checkpoint.load(path))
        return net.cpu()
    recipe = Recipe(
        epochs=epochs["pretrain"], lr=0.1, batch=args.batch, weight_decay=5e-4, smoothing=0.0, augment="light"
    )
    train_network(net, None, recipe, job.feed, job.splits, job.run, "pretrain")
    checkpoint.save(path, net.state_dict())
    return net.cpu()


def timings(args, before, after):
    """Milliseconds before and after on this device, for one image and for a batch."""
    found = {}
    places = [("cpu", 1)] if args.device == "cpu" else [("cuda", 1), ("cuda", 256), ("cpu", 1)]
    for device, batch in places:
        cost = Latency(runtime="torch", device=device, batch=batch, threads=1)
        times = [cost.time(net.cpu(), (3, 32, 32)) for net in (before, after)]
        found[f"{device}, batch {batch}"] = {"before_ms": times[0].p50, "after_ms": times[1].p50,
                                             "ratio": times[1].p50 / times[0].p50}  # fmt: skip
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="carry/cifar10")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--macs", default="25%", help="what may be left")
    parser.add_argument("--out", type=Path, default=Path("runs/resnet18"))
    parser.add_argument("--name", default="compress_resnet18")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--strength", type=float, default=1e-6, help="lambda")
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--probe", type=int, default=60, help="steps that the speed is measured on")
    args = parser.parse_args()
    start = time.monotonic()
    torch.manual_seed(args.seed)
    probe = opened(args, {"rounds": args.rounds, "finetune": 1}, ResNet18(width=args.width))
    epochs = schedule(args, probe, probe.engine.place(ResNet18(width=args.width)))
    print(epochs, flush=True)
    net = pretrained(args, opened(args, epochs, ResNet18(width=args.width)), epochs)
    context = opened(args, epochs, net)
    cut, run = Narrowing(context, context.run), context.run
    order.begin(context)
    run.stage("baseline", lambda: stages.baseline(cut), "baseline")
    print("baseline", 100 - run.read("baseline.json")["test_accuracy"], "% error", flush=True)
    run.stage("rounds", lambda: stages.rounds(cut), "rounds")
    order.price(cut)
    run.stage("solve", lambda: common.decide(cut), "solve")
    run.stage("train", lambda: common.train(cut), "train")
    run.stage("verify", lambda: common.verify(cut), "verify")
    run.stage("layers", lambda: layer_table(cut), "layers")
    table, training = run.read("compression.json"), run.read("training.json")
    print(record(args.name, {
        "epochs": epochs, "seconds": time.monotonic() - start, "budget": args.macs, "strength": args.strength,
        "error_before": 100 - table["accuracy"]["before"], "error_after": 100 - table["accuracy"]["after"],
        "val_after_cut": training["inherited_val_accuracy"], "widths": run.read("solution.json")["architecture"],
        "gone": table["gone"],
        "weights_left": table["totals"]["after"]["nonzero"] / table["totals"]["before"]["weights"],
        "network": table["network"], "layers": table["layers"], "rounds": run.read("rounds.json")["rounds"],
        "milliseconds": timings(args, cut.given(), cut.trained()),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
