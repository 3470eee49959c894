"""A network that `sartor fit` made, compressed to half its measured latency on this CPU.

sartor fit digits --latency 100us --effort quick --out runs/digits
python benchmarks/compress_digits.py runs/digits
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from _record import record

import sartor
from sartor.runs.directory import Run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--latency", default="50%")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    out = args.out or args.run.with_name(f"{args.run.name}-half")
    result = sartor.compress(args.run, latency=args.latency, effort=args.effort, out=out)
    table = json.loads((out / "compression.json").read_text())
    latency = result.certificate["budgets"]["latency"]
    before, right = table["network"]["latency"]["before"], table["accuracy"]
    print(f"{before:.4f} ms -> {latency['measured']:.4f} ms (asked {latency['limit']:.4f})")
    print(f"test accuracy {right['before']:.2f} % -> {right['after']:.2f} %")
    print(record("compress_digits", {
        "device": result.certificate["device"], "effort": args.effort, "asked_ms": latency["limit"],
        "network": table["network"], "accuracy": table["accuracy"],
        "test_images": result.certificate["accuracy"]["test_images"], "timing": latency["timing"],
        "gone": table["gone"], "widths": result.certificate["architecture"],
        "seconds": {name: stage.seconds for name, stage in Run(out).stages().items()},
    }))  # fmt: skip


if __name__ == "__main__":
    main()
