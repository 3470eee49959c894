"""Which recipe trains a small network best? Every setting trains the same networks on the same split.

    python benchmarks/recipes.py run --data DATA --out runs/recipes --device cuda --minutes 9 --workers 8 [--only tiny]
    python benchmarks/recipes.py record --out runs/recipes --name recipes_cuda

`run` starts workers that take settings one after another, in the order of the list, until the minutes are over; each
writes ``OUT/<set>-<setting>.json`` when it ends, and one that is there is not run again. Settings are compared on
validation images; test images are reported beside them. The sets `short_*` are trained for --seconds, on as many cores
as the worker has (taskset). `record` puts all that was tried into results/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

BASE: dict[str, Any] = {
    "epochs": 120, "batch": 256, "lr": 0.2, "weight_decay": 5e-4, "smoothing": 0.1, "augment": "light", "ema": 0.999,
    "warmup": 0.1, "clip": 5.0,
}  # fmt: skip
# What differs from BASE, most telling first.
PHOTOS: dict[str, dict[str, Any]] = {
    "base": {},
    "crops": {"augment": "crops"},
    "crops, mix 0.5": {"augment": "crops", "mix": 0.5},
    "crops_strong": {"augment": "crops_strong"},
    "standard": {"augment": "standard"},
    "crops, mix 1": {"augment": "crops", "mix": 1.0},
    "decay 1e-3": {"weight_decay": 1e-3},
    "rate 0.4": {"lr": 0.4},
    "rate 0.1": {"lr": 0.1},
    "mix 0.5": {"mix": 0.5},
    "crops, mix 0.5, 240 epochs": {"augment": "crops", "mix": 0.5, "epochs": 240},
    "crops_strong, mix 0.5, 240 epochs": {"augment": "crops_strong", "mix": 0.5, "epochs": 240},
    "240 epochs": {"epochs": 240},
    "crops, decay 1e-3, mix 0.5": {"augment": "crops", "weight_decay": 1e-3, "mix": 0.5},
    "decay 2e-4": {"weight_decay": 2e-4},
    "60 epochs": {"epochs": 60},
    "no average": {"ema": 0.0},
    "batch 128, rate 0.1": {"batch": 128, "lr": 0.1},
    "batch 512, rate 0.4": {"batch": 512, "lr": 0.4},
}
CIFAR: dict[str, dict[str, Any]] = {
    "base": {"epochs": 40, "batch": 512, "lr": 0.4},
    "cut": {"epochs": 40, "batch": 512, "lr": 0.4, "augment": "cut"},
    "mix 0.5": {"epochs": 40, "batch": 512, "lr": 0.4, "mix": 0.5},
    "rate 0.8": {"epochs": 40, "batch": 512, "lr": 0.8},
    "decay 1e-3": {"epochs": 40, "batch": 512, "lr": 0.4, "weight_decay": 1e-3},
    "cut, 100 epochs": {"epochs": 100, "batch": 512, "lr": 0.4, "augment": "cut"},
    "standard, 100 epochs": {"epochs": 100, "batch": 512, "lr": 0.4, "augment": "standard"},
    "decay 2e-4": {"epochs": 40, "batch": 512, "lr": 0.4, "weight_decay": 2e-4},
    "cut, mix 0.5, 100 epochs": {"epochs": 100, "batch": 512, "lr": 0.4, "augment": "cut", "mix": 0.5},
}
# Networks as small as budgets make them, in the edge space: what varied images cost those.
_SMALL = {"batch": 256, "lr": 0.4}
SMALL_PHOTOS: dict[str, dict[str, Any]] = {
    "light": {**_SMALL, "epochs": 100},
    "mix 0.5": {**_SMALL, "epochs": 100, "mix": 0.5},
    "standard": {**_SMALL, "epochs": 100, "augment": "standard"},
    "standard, mix 0.5": {**_SMALL, "epochs": 100, "augment": "standard", "mix": 0.5},
}
SMALL_CIFAR: dict[str, dict[str, Any]] = {
    "light": {**_SMALL, "epochs": 30},
    "cut": {**_SMALL, "epochs": 30, "augment": "cut"},
    "mix 0.5": {**_SMALL, "epochs": 30, "mix": 0.5},
    "standard": {**_SMALL, "epochs": 30, "augment": "standard"},
}
# The same beside a wide network that teaches: how much it is heeded, and softened by which temperature. It comes first
# and is trained by its own recipe; one worker does such a set.
_T1, _T4 = {"weight": 2.0}, {"weight": 0.9, "labels": 0.1, "heat": 4.0}
TAUGHT_PHOTOS: dict[str, dict[str, Any]] = {
    "the teacher": {**_SMALL, "epochs": 60, "mix": 0.5, "smoothing": 0.0},
    "mix 0.5": {**_SMALL, "epochs": 100, "mix": 0.5},
    "mix 0.5, taught at 4": {**_SMALL, "epochs": 100, "mix": 0.5, "teacher": _T4},
    "standard, mix 0.5, taught at 4": {**_SMALL, "epochs": 100, "augment": "standard", "mix": 0.5, "teacher": _T4},
    "mix 0.5, taught at 1": {**_SMALL, "epochs": 100, "mix": 0.5, "teacher": _T1},
    "light, taught at 4": {**_SMALL, "epochs": 100, "teacher": _T4},
    "mix 1, taught at 4": {**_SMALL, "epochs": 100, "mix": 1.0, "teacher": _T4},
}
TAUGHT_CIFAR: dict[str, dict[str, Any]] = {
    "the teacher": {"batch": 512, "lr": 0.8, "epochs": 25, "smoothing": 0.0},
    "light": {**_SMALL, "epochs": 30},
    "light, taught at 4": {**_SMALL, "epochs": 30, "teacher": _T4},
    "mix 0.5, taught at 4": {**_SMALL, "epochs": 30, "mix": 0.5, "teacher": _T4},
    "light, taught at 1": {**_SMALL, "epochs": 30, "teacher": _T1},
    "cut": {**_SMALL, "epochs": 30, "augment": "cut"},
}
# What a fit with a teacher chose for 40 M multiply-accumulates: is it the rate, the decay, or whom it heeds?
FITTED_CIFAR: dict[str, dict[str, Any]] = {
    "base": {**_SMALL, "epochs": 36},
    "rate 0.2": {**_SMALL, "epochs": 36, "lr": 0.2},
    "rate 0.2, decay 2e-4": {**_SMALL, "epochs": 36, "lr": 0.2, "weight_decay": 2e-4},
    "mix 0.5": {**_SMALL, "epochs": 36, "mix": 0.5},
    "rate 0.4, decay 2e-4": {**_SMALL, "epochs": 36, "weight_decay": 2e-4},
}
TUTORED_CIFAR: dict[str, dict[str, Any]] = {
    "the teacher": {**_SMALL, "epochs": 50, "mix": 0.5, "smoothing": 0.0},
    "taught at 4": {**_SMALL, "epochs": 36, "teacher": _T4},
    "taught at 4, labels as much": {**_SMALL, "epochs": 36, "teacher": {"weight": 0.5, "labels": 0.5, "heat": 4.0}},
    "rate 0.2, decay 2e-4, taught at 4": {**_SMALL, "lr": 0.2, "weight_decay": 2e-4, "epochs": 36, "teacher": _T4},
}
# A minute or two of one CPU core, for a ResNet and for a MobileNet: what is learnt in the same seconds.
_CORE = {"batch": 64, "lr": 0.1, "epochs": 0}
_HALF = {**_CORE, "mixed": True}
SHORT: dict[str, dict[str, Any]] = {
    "float32": _CORE,
    "bfloat16": _HALF,
    "bfloat16, muon 0.05": {**_HALF, "muon": 0.05},
    "bfloat16, muon 0.05, growing": {**_HALF, "muon": 0.05, "small": 0.5},
    "bfloat16, growing": {**_HALF, "small": 0.5},
    "bfloat16, muon 0.02": {**_HALF, "muon": 0.02},
    "bfloat16, muon 0.05, batch 128": {**_HALF, "muon": 0.05, "batch": 128, "lr": 0.2},
    "bfloat16, muon 0.1": {**_HALF, "muon": 0.1},
    "bfloat16, muon 0.05, decay 2e-4": {**_HALF, "muon": 0.05, "weight_decay": 2e-4},
    "bfloat16, rate 0.2": {**_HALF, "lr": 0.2},
}
# The same with a first convolution that whitens, beside the best of those above.
_MUON = {**_HALF, "muon": 0.05}
WHITE: dict[str, dict[str, Any]] = {
    "muon": _MUON,
    "muon, whitened": {**_MUON, "whiten": True},
    "whitened": {**_HALF, "whiten": True},
    "muon 0.1, whitened": {**_MUON, "muon": 0.1, "whiten": True},
    "muon, whitened, branches": {**_MUON, "whiten": True, "branches": True},
}
# On a GPU, where batches are large and rates high: do a CPU's orthogonal steps and whitening help there?
GPU: dict[str, dict[str, Any]] = {
    "base": {**_SMALL, "epochs": 40},
    "muon 0.2, whitened": {**_SMALL, "epochs": 40, "muon": 0.2, "whiten": True},
    "whitened": {**_SMALL, "epochs": 40, "whiten": True},
    "muon 0.2": {**_SMALL, "epochs": 40, "muon": 0.2},
    "muon 0.1, whitened": {**_SMALL, "epochs": 40, "muon": 0.1, "whiten": True},
    "muon 0.2, whitened, mix 0.5": {**_SMALL, "epochs": 40, "muon": 0.2, "whiten": True, "mix": 0.5},
    "mix 0.5": {**_SMALL, "epochs": 40, "mix": 0.5},
    "branches": {**_SMALL, "epochs": 40, "branches": True},
}
SETS = {
    "short_resnet": SHORT, "short_mobile": SHORT, "white_resnet": WHITE, "white_mobile": WHITE,
    "gpu_resnet": GPU, "gpu_mobile": GPU,
    "tiny": PHOTOS, "cifar": CIFAR, "small_tiny": SMALL_PHOTOS, "small_cifar": SMALL_CIFAR,
    "taught_tiny": TAUGHT_PHOTOS, "taught_cifar": TAUGHT_CIFAR,
    "fitted_cifar": FITTED_CIFAR, "tutored_cifar": TUTORED_CIFAR,
}  # fmt: skip
TEACHERS = {
    "taught_tiny": "resnet14-w64-s2", "taught_cifar": "resnet14-w64-s1", "tutored_cifar": "resnet14-w64-s1",
}  # fmt: skip
LANDMARKS = {"short_resnet": "resnet8-w48-s2", "short_mobile": "mobilenetv3-w24-s2"}  # of the edge space
LANDMARKS |= {f"white_{kind}": LANDMARKS[f"short_{kind}"] for kind in ("resnet", "mobile")}
LANDMARKS |= {"gpu_resnet": "resnet14-w24-s2", "gpu_mobile": "mobilenetv3-w16-s2"}
# What trials on the H200 chose for 1.5 ms at 64 pixels, and for 40 M multiply-accumulates at 32.
SMALL = {"small_tiny": (3, 2, 18, 4, 9, 2, 4, 0, 3, 0, 0), "small_cifar": (4, 1, 27, 0, 16, 1, 4, 4, 9, 2, 1)}
SMALL |= {"taught_tiny": SMALL["small_tiny"], "taught_cifar": SMALL["small_cifar"]}
SMALL |= dict.fromkeys(("fitted_cifar", "tutored_cifar"), (4, 1, 21, 1, 23, 1, 4, 3, 4, 3, 1))


def work(args: argparse.Namespace) -> None:
    """One worker: settings nobody has claimed, until the time is over."""
    import torch
    from _alike import Alike

    from sartor.core.arch import Arch
    from sartor.costs.macs import Macs
    from sartor.engine.network import Teacher
    from sartor.engine.recipe import Recipe
    from sartor.spaces.edge import Edge
    from sartor.spaces.mobile import Mobile
    from sartor.spaces.plain.space import build

    alike = wise = None
    for label, told in SETS[args.set].items():
        changes = {name: value for name, value in told.items() if name != "teacher"}
        name = f"{args.set}-{label}".replace(" ", "_").replace(",", "")
        claim = args.out / f"{name}.claim"
        try:
            os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        recipe = Recipe(**{**BASE, **changes, **({"epochs": args.epochs} if args.epochs else {})})
        alike = alike or Alike(args.data, args.out / "nets", args.device, recipe, args.image)
        alike.recipe = recipe
        small, known, task = SMALL.get(args.set), LANDMARKS.get(args.set), alike.task
        space = (Edge() if small or known else Mobile()).fitted(task)
        arch = space.landmarks(task)[known] if known else Arch(small) if small else middle(space, task)
        taught = label != "the teacher"
        make = partial(space.network, arch, task) if taught else partial(build, TEACHERS[args.set], task)
        teacher = Teacher(wise, **told["teacher"]) if "teacher" in told else None
        result = alike.train(name, make, teacher, args.seconds)
        if not taught:
            wise = alike.net.eval().requires_grad_(False)
        macs = Macs().of(make(), (task.channels, task.image, task.image))
        done = {"set": args.set, "setting": label, "recipe": {**BASE, **told}, "macs": macs, **result}
        (args.out / f"{name}.json").write_text(json.dumps(done))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if time.time() > args.until:
            return


def middle(space: Any, task: Any) -> Any:
    """The first of the random networks whose multiply-accumulates are a third of the way to the heaviest's."""
    import numpy as np

    from sartor.costs.macs import Macs

    form = Macs().table(space, task).form
    rng, least, most = np.random.default_rng(0), form(space.smallest), form(space.heaviest)
    found = [space.sample(rng) for _ in range(2000)]
    return min(found, key=lambda a: abs(form(a) - (least + (most - least) / 3)))


def run(args: argparse.Namespace) -> None:
    """Start the workers and wait for them, at most as long as was given."""
    args.out.mkdir(parents=True, exist_ok=True)
    for claim in args.out.glob("*.claim"):
        if not claim.with_suffix(".json").exists():
            claim.unlink()
    until = time.time() + 60 * args.minutes
    command = [sys.executable, __file__, "work", *sys.argv[2:], "--until", str(until)]
    jobs = [subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}) for _ in range(args.workers)]
    for job in jobs:
        try:
            job.wait(max(1.0, until - time.time()))
        except subprocess.TimeoutExpired:
            job.terminate()


def save(args: argparse.Namespace) -> None:
    """Everything that was tried, best on validation images first."""
    from _record import record

    found = [json.loads(p.read_text()) for p in sorted(args.out.glob("*.json"))]
    for entry in found:
        entry.pop("loss", None)
    found.sort(key=lambda e: (e["set"], -e["val_accuracy"]))
    for e in found:
        print(f"{e['set']:<6} {e['setting']:<36} val {e['val_accuracy']:.2f} test {e['test_accuracy']:.2f}")
    record(args.name, {"settings_tried": len(found), "base": BASE, "settings": found})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("run", "work", "record"))
    parser.add_argument("--data", type=str)
    parser.add_argument("--set", choices=tuple(SETS), default="tiny")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--image", type=int)
    parser.add_argument("--epochs", type=int, help="Instead of the settings' own, to try the script.")
    parser.add_argument("--seconds", type=float, help="Of every training, instead of epochs.")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--until", type=float, default=float("inf"))
    parser.add_argument("--name", default="recipes")
    args = parser.parse_args()
    {"run": run, "work": work, "record": save}[args.action](args)


if __name__ == "__main__":
    main()
