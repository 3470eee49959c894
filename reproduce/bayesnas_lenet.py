"""Tables S4 and S5 of BayesNAS: LeNet-300-100 and LeNet-5 on all of MNIST, error against FLOPs.

FLOPs are the tables' own (PAPERS.md C10): twice the products of a fully connected layer; for a convolution
2 H W (25 C_in + 1) C_out with the size of its input map. Every point is a network of its own: trained, compressed by
Algorithm 3 towards that many FLOPs, cut by the exact solver, fine-tuned with the uncompressed one as its teacher.
Training images are shifted at random, by `--shift` pixels at most (the teacher's by `--teacher-shift`; 0 switches it
off): the paper does not say whether its were.

Jobs run as parallel processes and are kept one by one, so a run that was stopped goes on.

    python reproduce/bayesnas_lenet.py --nets 300-100 --device cpu --workers 9 &
    python reproduce/bayesnas_lenet.py --nets 5 --device cuda --workers 7; wait
    python reproduce/bayesnas_lenet.py --draw          the table and the figure from what is there
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import record  # noqa: E402

from sartor.compression.given import open_given  # noqa: E402
from sartor.compression.options import Compression  # noqa: E402
from sartor.compression.rounds import Sparse, best, run_rounds, table  # noqa: E402
from sartor.core.quadratic import Limit  # noqa: E402
from sartor.core.units import COUNT, Kind  # noqa: E402
from sartor.costs.base import Cost  # noqa: E402
from sartor.data.augment import Augment  # noqa: E402
from sartor.deploy.module import evaluating  # noqa: E402
from sartor.engine import checkpoint  # noqa: E402
from sartor.engine.evaluate import accuracy  # noqa: E402
from sartor.engine.feed import Feed  # noqa: E402
from sartor.engine.network import Teacher, settle_norms, train_network  # noqa: E402
from sartor.engine.recipe import Recipe  # noqa: E402
from sartor.runs.directory import write_json  # noqa: E402
from sartor.runs.progress import Reporter  # noqa: E402
from sartor.solvers.base import Problem  # noqa: E402

PAPER = {
    "300-100": [  # name, structure, error in %, MFLOPs as printed
        ("baseline", "784-300-100", 1.39, 0.53), ("SBP", "245-160-55", 1.60, 0.10), ("BC-GNJ", "278-98-13", 1.80, 0.06),
        ("BC-GHS", "311-86-14", 1.80, 0.06), ("L0", "219-214-100", 1.40, 0.14), ("L0", "266-88-33", 1.80, 0.05),
        ("BayesNAS", "465-37-90", 1.54, 0.04),
    ],
    "5": [
        ("baseline", "20-50-800-500", 0.83, 8.85), ("SBP", "3-18-284-283", 0.90, 0.69),
        ("BC-GNJ", "8-13-88-13", 1.00, 1.09), ("BC-GHS", "5-10-76-16", 1.00, 0.57), ("L0", "20-25-45-462", 0.90, 4.49),
        ("L0", "9-18-65-25", 1.00, 1.55), ("BayesNAS", "5-10-65-25", 1.00, 0.57),
    ],
}  # fmt: skip
# MFLOPs; the paper's point first (0.04 is 465-37-90, exactly 0.04287; 0.57 is 5-10-65-25, exactly 0.5705)
BUDGETS = {"300-100": (0.0428, 0.03, 0.06, 0.1, 0.02, 0.2), "5": (0.57, 0.4, 0.8, 0.25, 1.2, 2.5)}


def lenet_300_100():
    layers = [nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)]
    return nn.Sequential(*layers)


def lenet_5():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


NETS = {"300-100": lenet_300_100, "5": lenet_5}


@dataclass(frozen=True, kw_only=True)
class Flops(Cost):
    """FLOPs as tables S4 and S5 count them."""

    kind: ClassVar[Kind] = COUNT

    def of(self, module, in_shape):
        """Summed over the layers, by the shapes that really arrive."""
        total, handles = 0.0, []

        def count(layer, args):
            nonlocal total
            if isinstance(layer, nn.Linear):
                total += 2 * layer.in_features * layer.out_features
            else:
                h, w = args[0].shape[2:]
                size = layer.kernel_size[0] * layer.kernel_size[1]
                total += 2 * h * w * (layer.in_channels * size + 1) * layer.out_channels

        for layer in module.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                handles.append(layer.register_forward_pre_hook(count))
        parameter = next(iter(module.parameters()))
        with evaluating(module):
            module(torch.zeros(1, *in_shape, device=parameter.device))
        for handle in handles:
            handle.remove()
        return float(total)


@dataclass(frozen=True, eq=False)
class Shifted(Feed):
    """Training images shifted by up to `pad` pixels, whatever the recipe says."""

    pad: int = 0

    def train(self, index, batch, augment, name, epoch, start=0):
        """The batches of one epoch, from `start` on."""
        yield from super().train(index, batch, Augment(pad=self.pad), name, epoch, start)


def paper_flops(net, structure):
    """MFLOPs of a row of the tables, with more digits than printed."""
    a, b, *rest = map(int, structure.split("-"))
    if net == "300-100":
        return 2 * (a * b + b * rest[0] + rest[0] * 10) / 1e6
    convolutions = 784 * 26 * a + 144 * (25 * a + 1) * b
    return 2 * (convolutions + rest[0] * rest[1] + rest[1] * 10) / 1e6


def job_of(args, net, seed, folder, shift):
    """The job of one network and seed; its files go into `folder`."""
    torch.set_num_threads(1)
    train = {"epochs": args.finetune, "lr": 0.1, "batch": args.batch, "weight_decay": args.decay,
             "smoothing": 0.0}  # fmt: skip
    options = Compression(
        model=f"LeNet-{net}", data=args.data, structures=("filter", "shape"), device=args.device, seed=seed, val=0.05,
        rounds=args.rounds, epochs=args.epochs, strength=args.strength, rate=args.rate, batch=args.batch,
        levels=args.levels, train_options=train,
    )  # fmt: skip
    torch.manual_seed(seed)
    job = open_given(options, folder, Reporter(silent=True), NETS[net]())
    torch.set_num_threads(1)
    f = job.feed
    return replace(job, costs={"flops": Flops()}, feed=Shifted(f.images, f.mean, f.std, f.seeds, f.engine, shift))


def settings(args):
    """What decides the result."""
    return {k: v for k, v in vars(args).items() if k not in ("out", "draw", "workers", "data", "name", "nets", "seeds")}


def uncompressed(args, net, seed):
    """Train the whole network: the teacher, and the baseline's error."""
    folder = args.out / f"{net}/seed-{seed}"
    if not (folder / "given.json").exists():
        start, job = time.monotonic(), job_of(args, net, seed, folder, args.teacher_shift)
        model = job.engine.place(job.net)
        recipe = Recipe(epochs=args.pretrain, lr=0.1, batch=args.batch, weight_decay=args.decay, smoothing=0.0)
        train_network(model, None, recipe, job.feed, job.splits, job.run, "given")
        checkpoint.save(folder / "given.safetensors", model.state_dict())
        error = 100 - accuracy(model, job.feed, job.splits.test)
        flops = Flops().of(model.cpu(), job.shape)
        write_json(folder / "given.json", {"net": net, "seed": seed, "error": error, "mflops": flops / 1e6,
                                           "seconds": time.monotonic() - start})  # fmt: skip
    return json.loads((folder / "given.json").read_text())


def compressed(args, net, seed, budget):
    """One point of the curve."""
    base = args.out / f"{net}/seed-{seed}"
    folder = base / f"{budget:g}"
    if not (folder / "point.json").exists():
        start, job = time.monotonic(), job_of(args, net, seed, folder, args.shift)
        given = {k: v.clone() for k, v in checkpoint.load(base / "given.safetensors").items()}
        job.net.load_state_dict(given)
        teacher = NETS[net]()
        teacher.load_state_dict(given)
        sparse = Sparse(job, job.net).place()
        limit = 1e6 * budget
        history = run_rounds(job, sparse, {"flops": limit}, {"flops": Flops().of(teacher, job.shape)})
        sparse.net.cpu()
        space = sparse.space()
        form = table(job, Flops(), space).form
        found = best(Problem(space.score, (Limit("flops", form, limit), *space.rules)))
        small = space.network(found.arch, job.task)
        judge = Teacher(job.engine.place(teacher).eval().requires_grad_(False))
        settle_norms(job.engine.place(small), job.feed, job.splits)
        train_network(small, judge, job.train, job.feed, job.splits, job.run, "network")
        error, flops = 100 - accuracy(small, job.feed, job.splits.test), Flops().of(small.cpu(), job.shape)
        write_json(folder / "point.json", {
            "net": net, "seed": seed, "budget_mflops": budget, "mflops": flops / 1e6, "error": error,
            "structure": space.describe(found.arch), "proven": found.proven, "rounds": history,
            "weights": sum(p.numel() for p in small.parameters()), "seconds": time.monotonic() - start,
            "settings": settings(args),
        })  # fmt: skip
    return json.loads((folder / "point.json").read_text())


def collect(args):
    """All points that are there, by network."""
    found = {}
    for net in NETS:
        points = [json.loads(p.read_text()) for p in sorted(args.out.glob(f"{net}/seed-*/*/point.json"))]
        given = [json.loads(p.read_text()) for p in sorted(args.out.glob(f"{net}/seed-*/given.json"))]
        if not given:
            continue
        curve = []
        for budget in sorted({p["budget_mflops"] for p in points}):
            mine = [p for p in points if p["budget_mflops"] == budget]
            errors = [p["error"] for p in mine]
            curve.append({
                "budget_mflops": budget, "seeds": len(mine), "error_mean": float(np.mean(errors)),
                "error_std": float(np.std(errors, ddof=1)) if len(errors) > 1 else None, "errors": errors,
                "mflops_mean": float(np.mean([p["mflops"] for p in mine])),
                "mflops": [p["mflops"] for p in mine], "structures": [p["structure"] for p in mine],
                "weights": [p["weights"] for p in mine],
            })  # fmt: skip
        errors = [g["error"] for g in given]
        found[net] = {
            "baseline": {"errors": errors, "error_mean": float(np.mean(errors)), "mflops": given[0]["mflops"]},
            "curve": curve, "paper": PAPER[net], "settings": points[0].get("settings") if points else settings(args),
            "seconds": {"baseline": sum(g["seconds"] for g in given), "points": sum(p["seconds"] for p in points)},
        }  # fmt: skip
    return found


def draw(path, found):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(found), figsize=(5.2 * len(found), 3.8), layout="constrained", squeeze=False)
    for panel, (net, data) in zip(panels[0], found.items(), strict=True):
        x = [p["mflops_mean"] for p in data["curve"]]
        y = [p["error_mean"] for p in data["curve"]]
        panel.errorbar(x, y, yerr=[p["error_std"] or 0.0 for p in data["curve"]], marker="o", capsize=3, label="Sartor")
        base = data["baseline"]
        panel.plot(base["mflops"], base["error_mean"], "o", mfc="none", color="C0", label="Sartor, uncompressed")
        for name, structure, error, _ in data["paper"]:
            flops = paper_flops(net, structure)
            ours = name == "BayesNAS"
            panel.plot(flops, error, "*" if ours else "x", color="C3" if ours else "0.4", ms=11 if ours else 6)
            below = (5, -9) if name.startswith("BC-GHS") else (5, 4)
            panel.annotate(name, (flops, error), textcoords="offset points", xytext=below, fontsize=7)
        panel.set(
            xscale="log", xlabel="MFLOPs, as tables S4 and S5 count", ylabel="test error, %", title=f"LeNet-{net}"
        )
        marks = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
        panel.set_xticks([m for m in marks if 0.7 * min(x) <= m <= 1.4 * base["mflops"]])
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter("")
        panel.legend(fontsize=8)
    figure.savefig(path, dpi=130)


def report(args):
    found = collect(args)
    for net, data in found.items():
        print(f"LeNet-{net}: uncompressed {data['baseline']['error_mean']:.2f} % at {data['baseline']['mflops']:.2f}")
        for p in data["curve"]:
            spread = "" if p["error_std"] is None else f" +- {p['error_std']:.2f}"
            print(f"  {p['mflops_mean']:.4f} MFLOPs  {p['error_mean']:.2f}{spread} %  {p['seeds']} seeds  "
                  f"{p['structures'][0]}")  # fmt: skip
    if found:
        print(record(args.name, {"networks": found}))
        draw(ROOT / f"reproduce/figures/{args.name}.png", found)


def each(args, work, jobs):
    """The results of all jobs as they come, from as many processes as were asked for."""
    if args.workers == 1:
        yield from (work(args, *job) for job in jobs)
        return
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        yield from (done.result() for done in as_completed([pool.submit(work, args, *job) for job in jobs]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="carry/mnist")
    parser.add_argument("--out", type=Path, default=Path("runs/lenet"))
    parser.add_argument("--name", default="bayesnas_lenet", help="of the result file and the figure")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--nets", default="300-100,5")
    parser.add_argument("--budgets", type=int, default=6, help="points of each curve, the paper's first")
    parser.add_argument("--pretrain", type=int, default=30, help="epochs of the uncompressed network")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3, help="a round")
    parser.add_argument("--finetune", type=int, default=60)
    parser.add_argument("--strength", type=float, default=1e-6, help="lambda")
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--decay", type=float, default=1e-4)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--levels", type=int, default=24)
    parser.add_argument("--shift", type=int, default=1, help="pixels")
    parser.add_argument("--teacher-shift", type=int, default=2, help="pixels")
    parser.add_argument("--draw", action="store_true", help="only the table and the figure of what is there")
    args = parser.parse_args()
    if not args.draw:
        nets = args.nets.split(",")
        seeds = range(args.seeds)
        for given in each(args, uncompressed, [(net, seed) for net in reversed(nets) for seed in seeds]):
            print(given, flush=True)
        jobs = [
            (net, seed, BUDGETS[net][n]) for n in range(args.budgets) for net in reversed(nets) for seed in seeds
        ]  # fmt: skip
        for point in each(args, compressed, jobs):
            print({k: v for k, v in point.items() if k != "rounds"}, flush=True)
    report(args)


if __name__ == "__main__":
    main()
