"""`sartor fit` against what a person would train instead, on the same machine, images, budgets and minutes.

A fit with defaults, then `sartor compare`: ResNets and MobileNets of many sizes, each the largest that fits, and others
of the searched space, trained as long as the network that came out. Every network's accuracy, costs and seconds are
recorded. On two cores in a few minutes:

    python benchmarks/against_plain.py --data digits --macs 1M --effort quick --out runs/against-digits
    python benchmarks/against_plain.py --data $SARTOR_TEST_DATA/cifar10 --macs 40M --time 8min --device cuda
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from _record import record

import sartor
from sartor.insight.comparison import ranked, verdict
from sartor.runs.codec import encode
from sartor.runs.directory import Run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--name", help="of the result; default the data's")
    parser.add_argument("--out", type=Path)
    for cost in ("latency", "macs", "params", "memory"):
        parser.add_argument(f"--{cost}")
    parser.add_argument("--time", help="of the fit, such as 8min")
    parser.add_argument("--compare-time", help="of all others together; default each as long as the run's network")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--effort")
    parser.add_argument("--image", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timm", nargs="*", default=())
    args = parser.parse_args()
    asked = ("latency", "macs", "params", "memory", "time", "device", "effort", "image", "seed")
    options = {n: getattr(args, n) for n in asked if getattr(args, n) is not None}
    name = args.name or Path(args.data).name
    out, begun = args.out or Path(f"runs/against-{name}"), time.monotonic()
    result = sartor.fit(args.data, out=out, **options)
    fitted = time.monotonic()
    found = sartor.compare(out, time=args.compare_time, timm=args.timm)
    print(record(f"against_plain_{name}_{args.device}", {
        "options": options, "verdict": verdict(found), "comparison": encode(found), "certificate": result.certificate,
        "seconds": {"fit": fitted - begun, "compare": time.monotonic() - fitted,
                    **{k: s.seconds for k, s in Run.open(out).stages().items()}},
    }))  # fmt: skip
    for e in ranked(found):
        print(f"{e.accuracy:6.2f} %  {e.name}: {e.network}  {dict(e.costs)}  {e.seconds or 0:.0f} s")
    print(*verdict(found), sep="\n")


if __name__ == "__main__":
    main()
