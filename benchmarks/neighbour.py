"""A busy neighbour: how much slower a training becomes while another process keeps every core busy.

One network is trained by the product's recipe for so many seconds: alone, beside one process for each core that
computes without end, and with such neighbours who come only after a third of the time. Images a second are compared; a
fair share of the cores would be half of them.

    python benchmarks/neighbour.py --data $SARTOR_TEST_DATA/cifar10 --out runs/neighbour
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from _alike import Alike
from _record import record

from sartor.core.threads import sleep_while_waiting
from sartor.pipeline.final import preset
from sartor.spaces.plain.space import build

BUSY = "x = 1.0\nwhile True: x = x * 1.0000001 % 7"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--image", type=int)
    parser.add_argument("--networks", nargs="+", default=["resnet8-w32-s1", "mobilenetv2-x0.5"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("runs/neighbour"))
    args = parser.parse_args()
    found = []
    for name in args.networks:
        speeds = {kind: trained(args, name, kind) for kind in ("alone", "beside", "comes later")}
        slower = {kind: speeds["alone"] / speed for kind, speed in speeds.items() if kind != "alone"}
        found.append({"network": name, "images_per_second": speeds, "times_slower": slower})
        print(found[-1], flush=True)
    told = {"image": args.image, "seconds": args.seconds, "cores": os.cpu_count()}
    print(record("neighbour", {"options": told, "networks": found}))


def trained(args: argparse.Namespace, name: str, kind: str) -> float:
    """Images a second over the whole training."""
    from sartor.engine.recipe import Recipe

    known = set(Recipe.__dataclass_fields__)
    recipe = Recipe(**{k: v for k, v in preset("standard", "cpu", {}, 8000).items() if k in known})
    alike = Alike(args.data, args.out, "cpu", recipe, args.image, most=8000)
    others: list[subprocess.Popen[bytes]] = []

    def busy() -> None:
        others.extend(subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(os.cpu_count() or 1))

    late = threading.Timer(0.0 if kind == "beside" else args.seconds / 3, busy)
    if kind != "alone":
        late.start()
    try:
        time.sleep(1.0)
        result: dict[str, Any] = alike.train(f"{name}-{kind}", lambda: build(name, alike.task), seconds=args.seconds)
    finally:
        late.cancel()
        for other in others:
            other.kill()
    whole = result["speeds"][:-1] or result["speeds"]  # the last epoch is a part of one
    return len(whole) / sum(1 / speed for speed in whole)


if __name__ == "__main__":
    sleep_while_waiting()
    main()
