"""A busy neighbour: how much slower a training becomes while another process keeps every core busy.

The same fit with defaults, in the same time, alone, then beside one process for each core that computes without
end. Images a second of the training of the network that comes out are compared; the neighbours' fair share is half.

    python benchmarks/neighbour.py --data $SARTOR_TEST_DATA/tinyimagenet20 --macs 5M --time 60s --out runs/neighbour
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from _record import record

from sartor.runs.directory import Run
from sartor.runs.schema import TrainingFile

BUSY = "x = 1.0\nwhile True: x = x * 1.0000001 % 7"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--macs", default="5M")
    parser.add_argument("--time", default="60s")
    parser.add_argument("--image", type=int)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("runs/neighbour"))
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    for n in range(args.repeats):
        for busy in (False, True):
            found.append(measured(args, args.out / f"{n}-{'busy' if busy else 'alone'}", busy))
            print(found[-1], flush=True)
    speeds = {busy: [f["images_per_second"] for f in found if f["busy"] is busy] for busy in (False, True)}
    ratio = max(speeds[False]) / min(speeds[True])
    print(f"{ratio:.2f} times slower beside a busy neighbour, at worst")
    print(record("neighbour", {"options": {k: str(v) for k, v in vars(args).items()}, "fits": found, "worst": ratio}))


def measured(args: argparse.Namespace, out: Path, busy: bool) -> dict[str, Any]:
    """One fit, with the mean speed of its training."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1)] if busy else []
    try:
        command = [sys.executable, "-m", "sartor", "fit", args.data, "--macs", args.macs, "--time", args.time]
        command += ["--image", str(args.image)] if args.image else []
        subprocess.run([*command, "--out", str(out), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    finally:
        for other in others:
            other.kill()
    run = Run.open(out)
    history = run.load(TrainingFile).history
    network = {"network": run.read("solution.json")["string"], "epochs": len(history)}
    speed = sum(e["images_per_second"] or 0.0 for e in history) / len(history)
    return {"busy": busy, "images_per_second": speed, "test": run.load(TrainingFile).test_accuracy, **network}


if __name__ == "__main__":
    main()
