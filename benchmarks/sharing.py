"""Trials or shared weights? The same space, budget and time, and what comes out of either.

Two fits with defaults, one after the other: `trials`, which trains networks of `edge` one by one, and `binas`, which
trains all of them in one supernet and measures what every decision contributes.

    python benchmarks/sharing.py --data digits --macs 1M --time 3min
    python benchmarks/sharing.py --data $SARTOR_TEST_DATA/tinyimagenet20 --image 32 --macs 10M --time 5min --seeds 0 1 2
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from _record import record

import sartor
from sartor.runs.directory import Run
from sartor.runs.schema import TrainingFile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--macs", required=True)
    parser.add_argument("--time", required=True)
    parser.add_argument("--image", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--name", help="of the result; default the data's")
    parser.add_argument("--out", type=Path, default=Path("runs/sharing"))
    args = parser.parse_args()
    name, found = args.name or Path(args.data).name, list[dict[str, Any]]()
    for seed in args.seeds:
        for method in ("trials", "binas"):
            found.append(fitted(args, method, seed, args.out / f"{name}-{args.macs}-{args.time}-{method}-{seed}"))
            print(found[-1], flush=True)
    options = {k: getattr(args, k) for k in ("data", "macs", "time", "image", "device")} | {"data": name}
    print(record(f"sharing_{name}_{args.device}", {"options": options, "fits": found}))


def fitted(args: argparse.Namespace, method: str, seed: int, out: Path) -> dict[str, Any]:
    """One fit: what it delivers, and how well its score ranks."""
    more = {"image": args.image} if args.image else {}
    result = sartor.fit(
        args.data, out=out, macs=args.macs, time=args.time, space="edge", method=method, device=args.device, seed=seed,
        **more,
    )  # fmt: skip
    training, c = Run.open(out).load(TrainingFile), result.certificate
    return {
        "method": method, "seed": seed, "test": training.test_accuracy, "network": result.certified.string,
        "macs": c["costs"]["macs"]["measured"], "epochs": len(training.history), "ranking": c["ranking"],
        "seconds": {name: stage.seconds for name, stage in Run.open(out).stages().items()},
    }  # fmt: skip


if __name__ == "__main__":
    main()
