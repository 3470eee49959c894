"""Which decoder: Pillow (ours), simplejpeg or torchvision, from a JPEG's bytes to a square of pixels.

Photographs as they are (224 pixels), and 4 and 16 times as many pixels (enlarged and encoded again), brought to squares
of several sides by the same rule: decoded at the smallest fraction that is at least twice the side, the largest centred
square, scaled down with antialiasing. Decoders take turns on one core; medians of their milliseconds for an image, and
how far their pixels are from Pillow's. A decoder that is not installed is left out and named.

    python benchmarks/decoders.py --photos flowers12.zip
"""

from __future__ import annotations

import argparse
import io
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _record import record
from PIL import Image

from sartor.data.picture import square

Decoder = Callable[[bytes, int], np.ndarray]
ROUNDS, PHOTOS = 5, 40


def centred(image: Image.Image, side: int) -> np.ndarray:
    """The rule of `sartor.data.picture`."""
    width, height = image.size
    shorter = min(width, height)
    left, top = (width - shorter) / 2, (height - shorter) / 2
    box = (left, top, left + shorter, top + shorter)
    if (width, height) != (side, side):
        image = image.resize((side, side), Image.Resampling.BICUBIC, box, reducing_gap=2.0)
    return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))


def found() -> tuple[dict[str, Decoder], dict[str, str]]:
    """The decoders that are here, and why others are not."""
    decoders: dict[str, Decoder] = {"pillow": lambda data, side: square(io.BytesIO(data), side)}
    missing = {}
    try:
        import simplejpeg

        def simple(data: bytes, side: int, **fast: bool) -> np.ndarray:
            pixels = simplejpeg.decode_jpeg(data, min_height=2 * side, min_width=2 * side, strict=False, **fast)
            return centred(Image.fromarray(pixels), side)

        decoders["simplejpeg"] = simple
        decoders["simplejpeg, fast and rough"] = lambda d, s: simple(d, s, fastdct=True, fastupsample=True)
    except Exception as error:  # whatever an installation can do
        missing["simplejpeg"] = str(error)
    try:
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg

        def vision(data: bytes, side: int) -> np.ndarray:
            pixels = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), ImageReadMode.RGB)
            return centred(Image.fromarray(pixels.permute(1, 2, 0).numpy()), side)

        decoders["torchvision"] = vision
    except Exception as error:
        missing["torchvision"] = str(error).splitlines()[0]
    return decoders, missing


def encoded(photos: Path, times: int) -> list[bytes]:
    """Some photographs, enlarged in either direction and encoded again."""
    with zipfile.ZipFile(photos) as archive:
        names = sorted(name for name in archive.namelist() if name.lower().endswith((".jpg", ".jpeg")))
        held = [archive.read(name) for name in names[:: max(1, len(names) // PHOTOS)][:PHOTOS]]
    if times == 1:
        return held
    large = []
    for data in held:
        image, file = Image.open(io.BytesIO(data)).convert("RGB"), io.BytesIO()
        image.resize((image.width * times, image.height * times), Image.Resampling.BICUBIC).save(
            file, "jpeg", quality=90
        )
        large.append(file.getvalue())
    return large


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True, help="a zip of photographs")
    parser.add_argument("--name", default="decoders")
    given = parser.parse_args()
    decoders, missing = found()
    rows: list[dict[str, Any]] = []
    for times in (1, 2, 4):
        held = encoded(given.photos, times)
        for side in (64, 128, 224):
            expected = [decoders["pillow"](data, side) for data in held]
            taken: dict[str, list[float]] = {name: [] for name in decoders}
            for _ in range(ROUNDS):
                for name, decode in decoders.items():
                    began = time.process_time()
                    for data in held:
                        decode(data, side)
                    taken[name].append(1000 * (time.process_time() - began) / len(held))
            for name, decode in decoders.items():
                off = [np.abs(decode(d, side).astype(int) - e).mean() for d, e in zip(held, expected, strict=True)]
                rows.append({"photo": 224 * times, "side": side, "decoder": name, "off": float(np.mean(off)),
                             "ms": float(np.median(taken[name]))})  # fmt: skip
                print(
                    f"{224 * times:5} -> {side:3}  {name:28} {rows[-1]['ms']:.3f} ms, {rows[-1]['off']:.3f} levels off"
                )
    record(given.name, {"photos": PHOTOS, "rounds": ROUNDS, "not_installed": missing, "decoders": rows})


if __name__ == "__main__":
    main()
