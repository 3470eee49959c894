"""A full fit on a folder of photos (20 classes of Tiny-ImageNet) under a latency budget, on a GPU.

Trains and searches on the GPU, deploys under ONNX Runtime on the same machine's CPU. Give the folder
that holds train_a.zip, train_b.zip and val.zip; it is unpacked as a person would have it: train/ and
test/ with a sub-folder a class. The certificate, the seconds of every stage and the images per second
of every training phase are recorded; the run directory is kept for `sartor report`.

    python benchmarks/tinyimagenet20.py --data $SARTOR_TEST_DATA/tinyimagenet20 --out runs/tiny20
"""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import numpy as np
from _record import record

import sartor
from sartor.runs.directory import Run


def unpack(source: Path, target: Path) -> Path:
    """The zips as class folders; val.zip's images are the test split."""
    for name, part in (("train_a", "train"), ("train_b", "train"), ("val", "test")):
        if not (target / f".{name}").exists():
            with zipfile.ZipFile(source / f"{name}.zip") as archive:
                archive.extractall(target / part)
            (target / f".{name}").touch()
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/tiny20"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--latency", default="1.5ms")
    parser.add_argument("--image", type=int, default=64)
    parser.add_argument("--epochs", type=int, nargs=3, default=(36, 60, 24), help="heaviest, multi-path, final")
    parser.add_argument("--batch", type=int, default=360)
    parser.add_argument("--passes", type=int, default=100)
    parser.add_argument("--held-out", type=int, default=150)
    args = parser.parse_args()
    photos = unpack(args.data, args.out.parent / "tiny20-photos")
    heaviest, multipath, final = args.epochs
    method = {
        "name": "binas",
        "heaviest_epochs": heaviest, "heaviest_lr": 0.2, "multipath_epochs": multipath, "multipath_lr": 0.1,
        "batch": args.batch, "passes": args.passes, "held_out": args.held_out,
    }  # fmt: skip
    train = {"epochs": final, "lr": 0.05, "batch": args.batch}
    result = sartor.fit(
        photos, out=args.out, latency=args.latency, device=args.device, image=args.image, effort="standard",
        method=method, train=train,
    )  # fmt: skip
    run = Run.open(args.out)
    facts, training = run.read("score.json")["facts"], run.read("training.json")
    phases = {**facts["history"], "final": training["history"]}
    record(f"tinyimagenet20_{args.device}", {
        "certificate": result.certificate,
        "seconds": {k: v["seconds"] for k, v in run.stages().items()},
        "images_per_second": {k: float(np.median([e["images_per_second"] for e in h])) for k, h in phases.items()},
        "heaviest_val_accuracy": facts["heaviest_accuracy"],
        "validation_epochs": facts["validation_epochs"],
        "measuring_seconds": facts["measuring_seconds"],
        "frontier_points": len(result.frontier),
    })  # fmt: skip
    print(result.certificate["budgets"], result.certificate["accuracy"], result.certificate["ranking"])


if __name__ == "__main__":
    main()
