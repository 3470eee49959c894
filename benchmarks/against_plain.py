"""`sartor fit` against what a person would train instead, on the same machine, images, budgets and minutes.

A fit with defaults, then `sartor compare`: ResNets and MobileNets of many sizes, each the largest that fits, and others
of the searched space, trained as long as the network that came out. Every network's accuracy, costs and seconds are
recorded. On two cores in a few minutes:

    python benchmarks/against_plain.py --data digits --macs 1M --effort quick --out runs/against-digits
    python benchmarks/against_plain.py --data $SARTOR_TEST_DATA/cifar10 --macs 40M --time 8min --device cuda

`--finished` records a run that was fitted and compared already.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

from _record import record

import sartor
from sartor.insight.comparison import ranked, verdict
from sartor.runs.codec import encode
from sartor.runs.directory import Run
from sartor.runs.schema import CompareFile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--finished", type=Path, help="a run with its comparison, instead of --data")
    parser.add_argument("--name", help="of the result; default the data's")
    parser.add_argument("--out", type=Path)
    for cost in ("latency", "macs", "params", "memory"):
        parser.add_argument(f"--{cost}")
    parser.add_argument("--time", help="of the fit, such as 8min")
    parser.add_argument("--compare-time", help="of all others together; default each as long as the run's network")
    parser.add_argument("--device")
    parser.add_argument("--effort")
    parser.add_argument("--image", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timm", nargs="*", default=())
    args = parser.parse_args()
    if args.finished:
        keep(args.name or args.finished.name, args.finished)
        return
    asked = ("latency", "macs", "params", "memory", "time", "device", "effort", "image", "seed")
    options = {n: getattr(args, n) for n in asked if getattr(args, n) is not None}
    name = args.name or Path(args.data).name
    out = args.out or Path(f"runs/against-{name}")
    sartor.fit(args.data, out=out, **options)
    sartor.compare(out, time=args.compare_time, timm=args.timm)
    keep(name, out)


def keep(name: str, path: Path) -> None:
    """What the run's own files say of it and of its comparison."""
    run = Run.open(path)
    found = run.load(CompareFile)
    config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
    print(record(f"against_plain_{name}_{config['device']}", {
        "options": {n: config.get(n) for n in ("budgets", "time", "effort", "device", "image", "seed")},
        "verdict": verdict(found), "comparison": encode(found), "certificate": sartor.load(path).certificate,
        "seconds": {k: s.seconds for k, s in run.stages().items()},
    }))  # fmt: skip
    for e in ranked(found):
        print(f"{e.accuracy:6.2f} %  {e.name}: {e.network}  {dict(e.costs)}  {e.seconds or 0:.0f} s")
    print(*verdict(found), sep="\n")


if __name__ == "__main__":
    main()
