"""Whether a fit ends in the time that it was given, and one that was killed in the middle and started again.

Every time is tried twice: uninterrupted, and killed (SIGKILL) at a random moment between a quarter and three quarters
of it, then resumed by the same command. Seconds are those of whole processes, by the wall, imports included.

    python benchmarks/in_time.py --data digits --latency 100us --times 60s 3min 10min --out runs/in_time
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _record import record

from sartor.core.units import DURATION
from sartor.runs.directory import Run
from sartor.runs.schema import TrainingFile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--latency")
    parser.add_argument("--macs")
    parser.add_argument("--image", type=int)
    parser.add_argument("--times", nargs="+", default=["60s", "3min", "10min"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills")
    parser.add_argument("--name", help="of the result")
    parser.add_argument("--out", type=Path, default=Path("runs/in_time"))
    args = parser.parse_args()
    moments, found = random.Random(args.seed), list[dict[str, Any]]()
    for asked in args.times:
        seconds = float(DURATION.parse(asked, "the time"))
        for kill in (None, moments.uniform(0.25, 0.75) * seconds):
            out = args.out / f"{asked}-{'whole' if kill is None else 'killed'}"
            taken = fitted(args, asked, out, kill)
            listed = {name: stage.seconds for name, stage in Run.open(out).stages().items()}
            test = Run.open(out).load(TrainingFile).test_accuracy
            found.append({"asked": seconds, "killed_at": kill, "seconds": taken, "share": taken / seconds, "test": test,
                          "stages": listed})  # fmt: skip
            print(f"{asked}, {'whole' if kill is None else f'killed after {kill:.0f} s'}: {taken:.1f} s", flush=True)
    worst = max(f["share"] for f in found)
    print(f"at worst {100 * worst:.0f} % of the time: {'kept' if worst <= 1.1 else 'FAILED'}")
    asked_for = {k: getattr(args, k) for k in ("latency", "macs", "image", "device")} | {"data": Path(args.data).name}
    print(record(args.name or f"in_time_{args.device}", {"options": asked_for, "fits": found, "worst_share": worst}))


def fitted(args: argparse.Namespace, asked: str, out: Path, kill: float | None) -> float:
    """Seconds of the fit, of both attempts where the first is killed."""
    command = [sys.executable, "-m", "sartor", "fit", args.data, "--time", asked, "--out", str(out), "--quiet"]
    for name in ("latency", "macs", "image", "device"):
        command += [f"--{name}", str(getattr(args, name))] if getattr(args, name) is not None else []
    before = 0.0
    if kill is not None:
        begun = time.monotonic()
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            first.wait(kill)
        except subprocess.TimeoutExpired:
            first.send_signal(signal.SIGKILL)
        first.wait()
        before = time.monotonic() - begun
    begun = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return before + time.monotonic() - begun


if __name__ == "__main__":
    main()
