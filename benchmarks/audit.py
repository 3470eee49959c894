"""What the audit finds in real photographs, how long it takes, and how many planted copies it finds.

Copies of 300 Tiny-ImageNet photographs: as they are, encoded again, scaled by some pixels, brighter, darker.

    python benchmarks/audit.py --data $SARTOR_TEST_DATA --out runs/audit
"""

from __future__ import annotations

import argparse
import io
import time
import zipfile
from pathlib import Path

import numpy as np
from _record import record
from PIL import Image
from tinyimagenet20 import unpack

import sartor
from sartor.data.alike import Prints, alike
from sartor.data.open import open_data


def encoded(image: Image.Image) -> Image.Image:
    held = io.BytesIO()
    image.save(held, "JPEG", quality=75)
    return Image.open(held)


CHANGES = {
    "as it is": lambda image: image,
    "encoded again": encoded,
    "scaled to 61 pixels": lambda image: image.resize((61, 61)).resize((64, 64)),
    "8 % brighter": lambda image: image.point(lambda v: min(255, int(v * 1.08))),
    "15 % darker": lambda image: image.point(lambda v: int(v * 0.85)),
}


def planted(folder: Path) -> dict[str, float]:
    """Of every kind of copy the share that is found among 11,000 photographs."""
    images = open_data(folder, 64)
    pixels, some = images.pixels(np.arange(len(images))).numpy(), np.random.default_rng(0).choice(11_000, 300, False)
    found = {}
    for name, change in CHANGES.items():
        copies = [np.asarray(change(Image.fromarray(pixels[i].transpose(1, 2, 0)))).transpose(2, 0, 1) for i in some]
        near = alike(Prints.joined([Prints.of(p) for p in (pixels, np.stack(copies))]), 64).near
        found[name] = float((near[len(pixels) :] == near[some]).mean())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/audit"))
    args = parser.parse_args()
    tiny = unpack(args.data / "tinyimagenet20", args.out / "tinyimagenet20")
    with zipfile.ZipFile(args.data / "flowers12/flowers12.zip") as archive:
        archive.extractall(args.out / "flowers12")
    rng, found = np.random.default_rng(0), {}
    noise = (rng.integers(0, 256, (50_000, 32, 32, 3), np.uint8), np.arange(50_000) % 10)
    given = {"tinyimagenet20": tiny, "flowers12": args.out / "flowers12", "digits": "digits", "noise of 32 px": noise}
    for name, data in given.items():
        images, start = open_data(data, largest=96), time.process_time()
        looked = sartor.audit(images, quiet=True)
        found[name] = {"images": len(images), "seconds": time.process_time() - start, "said": looked.lines()}
    record("audit", {"found": found, "planted copies found": planted(tiny)})


if __name__ == "__main__":
    main()
