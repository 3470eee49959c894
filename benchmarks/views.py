"""How much more is right where logits are averaged over several views of an image, and over which ones.

Networks are trained by the product's recipe for so many seconds, on training images alone; then every set of views is
judged on validation images, by which it is chosen, and on test images.

    python benchmarks/views.py --data $SARTOR_TEST_DATA/cifar10 --seconds 90
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from _alike import Alike
from _record import record
from torch import Tensor

from sartor.core.threads import sleep_while_waiting
from sartor.engine.evaluate import outputs
from sartor.engine.recipe import Recipe
from sartor.pipeline.final import preset
from sartor.spaces.plain.space import build

# Weights of views: how far they are moved along (down, right), and whether they are mirrored.
STRAIGHT, MIRRORED = (0, 0, False), (0, 0, True)


def moved(by: int, both: bool) -> dict[tuple[int, int, bool], float]:
    """The image and its mirror image have a half of the weight, both moved along a diagonal and back the other."""
    kept = {STRAIGHT: 0.25, MIRRORED: 0.25} if both else {STRAIGHT: 0.5}
    rest = [(s * by, s * by, m) for s in (1, -1) for m in ((False, True) if both else (False,))]
    return kept | dict.fromkeys(rest, 0.5 / len(rest))


SETS: dict[str, dict[tuple[int, int, bool], float]] = {
    "1": {STRAIGHT: 1.0},
    "2: mirrored": {STRAIGHT: 0.5, MIRRORED: 0.5},
    "2: mirrored and moved by 1": {STRAIGHT: 0.5, (1, 1, True): 0.5},
    "3: moved by 1": moved(1, both=False),
    "6: mirrored, moved by 1": moved(1, both=True),
    "6: mirrored, moved by 2": moved(2, both=True),
    "10: mirrored, moved to four corners by 1": {STRAIGHT: 0.25, MIRRORED: 0.25}
    | {(a, b, m): 0.0625 for a in (1, -1) for b in (1, -1) for m in (False, True)},
}


def looked(x: Tensor, down: int, right: int, mirrored: bool) -> Tensor:
    """A view, reflected at the borders."""
    x = x.flip(-1) if mirrored else x
    far = max(abs(down), abs(right))
    if not far:
        return x
    side = x.shape[-1]
    padded = torch.nn.functional.pad(x, (far,) * 4, mode="reflect")
    return padded[..., far + down : far + down + side, far + right : far + right + side]


def judged(alike: Alike, net: torch.nn.Module) -> dict[str, Any]:
    """Every set's accuracy on validation and test images."""
    net.eval()
    every = sorted({view for views in SETS.values() for view in views})
    found: dict[str, Any] = {}
    for part in ("val", "test"):
        index = getattr(alike.splits, part)
        logits = {v: outputs(lambda x, v=v: net(looked(x, *v)), alike.feed, index) for v in every}
        for name, views in SETS.items():
            mean = sum(weight * logits[v][0] for v, weight in views.items())
            found.setdefault(name, {})[part] = alike.task.measure(mean, logits[STRAIGHT][1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, nargs="+")
    parser.add_argument("--image", type=int)
    parser.add_argument("--networks", nargs="+", default=["resnet8-w32-s1", "mobilenetv3large-x0.5"])
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--name", default="views")
    parser.add_argument("--out", type=Path, default=Path("runs/views"))
    args = parser.parse_args()
    known = set(Recipe.__dataclass_fields__)
    recipe = Recipe(**{k: v for k, v in preset("standard", args.device, {}, 8000).items() if k in known})
    found = []
    for data in args.data:
        alike = Alike(data, args.out / Path(data).name, args.device, recipe, args.image, most=8000)
        for name in args.networks:
            trained = alike.train(name, lambda name=name, alike=alike: build(name, alike.task), seconds=args.seconds)
            found.append({"data": Path(data).name, "network": name, "epochs": trained["epochs"],
                          "images": {part: len(getattr(alike.splits, part)) for part in ("train", "val", "test")},
                          "accuracy": judged(alike, alike.net)})  # fmt: skip
            for views, share in found[-1]["accuracy"].items():
                print(f"  {views}: validation {share['val']:.2f} %, test {share['test']:.2f} %", flush=True)
    options = {"seconds": args.seconds, "image": args.image, "device": args.device}
    print(record(args.name, {"options": options, "trained": found}))


if __name__ == "__main__":
    sleep_while_waiting()
    main()
