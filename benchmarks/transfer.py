r"""What weights learnt elsewhere are worth: pretrain on many photos of other classes, then fit few, with and without.

Three parts, each resumable: one pretraining (tinyimagenet100); `rates`: the pretrained network itself on few images per
class, at several rates of the first layers and phases of the head alone, each as long; `fits`: whole fits with and
without `--start`, each with the same budget and time. Give the folder with the three image sets.

    python benchmarks/transfer.py --data $SARTOR_TEST_DATA --device cuda --pretrain 10 --minutes 5 --seeds 0 1 2 \
        --budget tinyimagenet20:latency=1.5ms --budget flowers12:latency=5ms
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _alike import Alike
from _record import record

import sartor
from sartor.core.arch import Arch
from sartor.core.seeds import Seeds
from sartor.engine.origin import Origin
from sartor.engine.recipe import Recipe
from sartor.pipeline.rebuild import space_of
from sartor.runs.directory import Run
from sartor.runs.schema import ModelFile

TASKS = ("tinyimagenet20", "flowers12")
KINDS = ("fresh", "start")
RATES = {"flat": (1.0, 0.0), "head first": (1.0, 0.1), "by depth": (0.3, 0.0), "both": (0.3, 0.1), "steep": (0.1, 0.1)}


def photos(source: Path, target: Path, most: int | None = None) -> Path:
    """An image set as folders train/ and test/; of every class at most so many images to train on."""
    whole = target / source.name
    for archive in sorted(source.glob("*.zip")):
        mark = whole / f".{archive.stem}"
        if not mark.exists():
            part = "train" if archive.stem.startswith("train") else "test" if archive.stem == "val" else ""
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(whole / part)
            mark.touch()
    few = target / f"{source.name}-{most}"
    if most is None or few.exists():
        return few if most is not None else whole
    for path in [p for c in sorted((whole / "train").iterdir()) for p in sorted(c.rglob("*.*"))[:most]]:
        copy = few / "part" / path.relative_to(whole)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    shutil.copytree(whole / "test", few / "part" / "test")
    for part in ("train", "test"):
        (few / "part" / part).rename(few / part)
    (few / "part").rmdir()
    return few


def once(path: Path, run: Callable[[], dict[str, Any]], told: str) -> dict[str, Any]:
    """What is in that file; where there is none, what `run` gives, with one line about it."""
    if not path.exists():
        begin, found = time.monotonic(), run()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found | {"seconds": time.monotonic() - begin}) + "\n")
    found = json.loads(path.read_text())
    print(f"{told:<44} {found['test_accuracy']:6.2f} % of the test images, {found['seconds']:.0f} s", flush=True)
    return found


def fitted(run: Path, data: Path, given: argparse.Namespace, minutes: float, **more: Any) -> dict[str, Any]:
    """One fit, and what its log says about where it started."""
    sartor.fit(data, out=run, device=given.device, image=given.image or None, time=f"{minutes}min", quiet=True, **more)
    log = (run / "log.txt").read_text().splitlines()
    words = ("starts with", "weights from elsewhere", "fresh ones")
    return {
        "test_accuracy": Run(run).read("training.json")["test_accuracy"], "network": Run(run).load(ModelFile).string,
        "log": [line for line in log if any(word in line for word in words)],
    }  # fmt: skip


def rates(run: Path, data: Path, given: argparse.Namespace) -> dict[str, Any]:
    """The pretrained network on other classes, fresh and from its weights, for as many epochs."""
    known, origin = Run(run).load(ModelFile), Origin(str(run))
    space, arch = space_of(known), Arch(known.picks)
    found = {}
    for name, (first, head) in {"fresh": (1.0, 0.0), **RATES}.items():
        for seed in given.seeds:
            recipe = Recipe(epochs=given.epochs, batch=32, lr=0.05, weight_decay=5e-4, augment="light",
                            first_rate=first, head_first=head)  # fmt: skip
            alike = Alike(data, given.out / "rates" / data.name / f"seed{seed}", given.device, recipe, known.task.image)
            alike.seeds, alike.feed = Seeds(seed), replace(alike.feed, seeds=Seeds(seed))

            def build(name: str = name, alike: Alike = alike) -> Any:
                net = space.network(arch, alike.task)
                if name != "fresh":
                    origin.into(net, alike.task.classes)
                return net

            found.setdefault(name, []).append(alike.train(name.replace(" ", "-"), build)["test_accuracy"])
    return {name: {"test_accuracy": values, "mean": float(np.mean(values))} for name, values in found.items()}


def gained(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Points that the start was worth, in the mean over the seeds that have both."""
    found: dict[str, list[float]] = {}
    for run in runs:
        other = [r for r in runs if (r["task"], r["seed"]) == (run["task"], run["seed"]) and r["kind"] == "fresh"]
        if run["kind"] == "start" and other:
            found.setdefault(run["task"], []).append(run["test_accuracy"] - other[0]["test_accuracy"])
    for task, points in found.items():
        print(f"{task}: {np.mean(points):+.2f} points with weights from elsewhere, {len(points)} seeds", flush=True)
    return {task: float(np.mean(points)) for task, points in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the three image sets")
    parser.add_argument("--out", type=Path, default=Path("runs/transfer"))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--image", type=int, default=0, help="pixels a side; 0: as they are")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--few", type=int, default=None, help="images of a class to train on; default all")
    parser.add_argument("--pretrain", type=float, default=6, help="minutes")
    parser.add_argument("--pretrain-budget", default="", help="such as params=200K; default none")
    parser.add_argument("--minutes", type=float, default=5, help="of every fit; 0: none")
    parser.add_argument("--budget", action="append", default=[], help="such as flowers12:latency=5ms, or params=200K")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS, help="to share the fits between processes")
    parser.add_argument("--epochs", type=int, default=0, help="of the rates' trainings; 0: none")
    parser.add_argument("--name", default="transfer")
    given = parser.parse_args()

    many = photos(given.data / "tinyimagenet100", given.out / "photos")
    asked = dict([given.pretrain_budget.split("=")]) if given.pretrain_budget else None
    big = given.out / "big"
    first = once(given.out / "big.json", lambda: fitted(big, many, given, given.pretrain, budgets=asked), "pretraining")
    tried, runs = {}, []
    for task in given.tasks:
        data = photos(given.data / task, given.out / "photos", given.few)
        if given.epochs:
            tried[task] = rates(big, data, given)
        named = [b.partition(":")[2] if ":" in b else b for b in given.budget if ":" not in b or b.startswith(task)]
        budgets = dict(b.split("=") for b in named) or None
        for seed in given.seeds if given.minutes else ():
            for kind in given.kinds:
                run, start = given.out / f"{task}-{kind}-{seed}", str(big) if kind == "start" else None
                one = once(run.with_suffix(".json"), lambda run=run, data=data, seed=seed, start=start, budgets=budgets:
                           fitted(run, data, given, given.minutes, budgets=budgets, seed=seed, start=start),
                           f"{task}, seed {seed}, {kind}")  # fmt: skip
                runs.append({"task": task, "seed": seed, "kind": kind, **one})
                told(given, first, tried, runs)
    told(given, first, tried, runs)


def told(given: argparse.Namespace, first: dict[str, Any], tried: dict[str, Any], runs: list[dict[str, Any]]) -> None:
    """All that is known by now."""
    settings = {k: list(v) if isinstance(v, tuple) else v for k, v in vars(given).items() if k not in ("data", "out")}
    record(given.name, {"settings": settings, "pretraining": first, "rates": tried, "fits": runs,
                        "points_gained": gained(runs)})  # fmt: skip


if __name__ == "__main__":
    main()
