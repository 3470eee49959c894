"""One image file of any kind to one square of pixels: the same in training, in `sartor predict` and where a model goes.

The picture is what a viewer would show: turned as its EXIF data say, the first frame of an animation, transparent
parts on white. Values of 16 bits are scaled to 8, not cut off. The largest centred square is then scaled to the size
wanted, which equals scaling the shorter side and cropping the centre.

This file needs NumPy and Pillow alone, and imports nothing of Sartor: an exported model has a copy beside it, called
predict.py, which classifies images with ONNX Runtime: ``python model/predict.py photo.jpg``.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

MOST_PIXELS = 89_478_485  # of one image, Pillow's own limit: 256 MB decoded
# EPS runs Ghostscript on the file; the others are only recognised, never decoded.
_REFUSED = frozenset({"EPS", "MPEG", "HDF5", "GRIB", "BUFR", "WMF"})
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_LARGE_PIXELS = 16_000_000  # larger ones are decoded one at a time: a thread each could fill the memory
_ONE_LARGE = threading.Lock()


class Unusable(Exception):
    """A file that is meant to be an image and cannot be used; the message is the reason.

    `passing` where the reason is the machine's and not the file's: no permission, no memory, a disk that is away.
    """

    def __init__(self, reason: str, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


@cache
def formats() -> tuple[str, ...]:
    """The formats this Pillow decodes."""
    Image.init()
    return tuple(name for name in Image.ID if name not in _REFUSED)


def square(path: Path | io.BytesIO, side: int, channels: int = 3) -> NDArray[np.uint8]:
    """The picture in a file, or its content, as uint8 (channels, side, side), RGB or grey; `Unusable` says why not."""
    return sized(path, side, channels)[0]


def sized(
    path: Path | io.BytesIO, side: int, channels: int = 3, out: NDArray[np.uint8] | None = None
) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """The same, and the width and height that it has in the file; into `out`, where that is given."""
    try:
        with Image.open(path, formats=formats()) as image:
            size = image.size
            return fitted(image, side, channels, out), size
    except Unusable:
        raise
    except Exception as error:  # a decoder that meets damaged bytes may raise anything
        machines = isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None)
        raise Unusable(_reason(error, path), machines) from error


def fitted(image: Image.Image, side: int, channels: int = 3, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
    """An opened picture as uint8 (channels, side, side), into `out`, where that is given."""
    _check_size(image)
    turn = _turn(image)
    image.draft(None, (2 * side, 2 * side))  # JPEG: decode at a fraction, still at least twice the target
    large = image.size[0] * image.size[1] > _LARGE_PIXELS
    with _ONE_LARGE if large else contextlib.nullcontext():
        small = _scaled(_flat(image), side)
    if turn is not None:
        small = small.transpose(turn)
    planes = np.empty((channels, side, side), np.uint8) if out is None else out
    if channels != 3:
        planes[0] = np.asarray(small.convert("L"), np.uint8)
        return planes
    for plane, colour in zip(planes, "RGB", strict=True):  # half the time of an array of all, transposed
        plane[...] = np.frombuffer(small.tobytes("raw", colour), np.uint8).reshape(side, side)
    return planes


def classify(images: Iterable[str | Path], model: str | Path | None = None) -> list[dict[str, Any]]:
    """For every image file its likeliest class and the probabilities of all, best first, by the model beside this file.

    The model says itself what its classes are and how large its images; ONNX Runtime is needed here only.
    """
    import onnxruntime

    beside = [Path(__file__).with_name(name) for name in ("model_int8.onnx", "model.onnx")]
    path = str(model or next((p for p in beside if p.is_file()), beside[-1]))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    about, entry, found = session.get_modelmeta().custom_metadata_map, session.get_inputs()[0], []
    labels, (channels, side) = json.loads(about["labels"]), entry.shape[1:3]
    for image in images:
        pixels = square(Path(image), side, channels)[None].astype(np.float32)
        logits = session.run(None, {entry.name: pixels})[0][0].astype(np.float64) / float(about.get("temperature", 1))
        if about["task"] == "multi-label":
            chances = 1 / (1 + np.exp(-logits))
        else:
            chances = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        ranked = {labels[k]: float(chances[k]) for k in np.argsort(-chances)}
        found.append({"label": next(iter(ranked)), "probabilities": ranked})
    return found


def _check_size(image: Image.Image) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise Unusable(f"too large: {width} x {height} pixels, the limit is {MOST_PIXELS // 10**6} million")


def _turn(image: Image.Image) -> Image.Transpose | None:
    try:
        return _TURNS.get(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged EXIF data in a picture that is otherwise sound
        return None


def _scaled(image: Image.Image, side: int) -> Image.Image:
    """The largest centred square, scaled with antialiasing."""
    width, height = image.size
    if width == height == side:
        return image
    shorter = min(width, height)
    left, top = (width - shorter) / 2, (height - shorter) / 2
    box = (left, top, left + shorter, top + shorter)
    return image.resize((side, side), Image.Resampling.BICUBIC, box, reducing_gap=2.0)


def _flat(image: Image.Image) -> Image.Image:
    """RGB of 8 bits, transparent parts on white."""
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _eight_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Grey values of 16 or 32 bits scaled to 0..255.

    The scale follows from the type where it can (16 bits: 65535 is white); floats in 0..1 and 0..255 keep their
    meaning; any other range is stretched from its least to its greatest value.
    """
    values: NDArray[Any] = np.asarray(image).astype(np.float32)
    if not np.isfinite(values).all():
        raise Unusable("holds values that are not finite numbers")
    low, high = float(values.min()), float(values.max())
    if image.mode == "F" and low >= 0 and high <= 1:
        values = values * 255
    elif image.mode == "F" and low >= 0 and high <= 255:
        pass
    elif low >= 0 and high <= 65535:
        values = values / 257
    else:
        values = (values - low) * (255 / (high - low or 1))
    return np.asarray(np.rint(values), np.uint8)


def _reason(error: Exception, path: Path | io.BytesIO) -> str:
    """A short reason without the path, which is named beside it."""
    if isinstance(error, PermissionError):
        return "no permission to read it"
    if isinstance(error, MemoryError):
        return "not enough memory to decode it"
    if isinstance(error, (Image.DecompressionBombError, Image.DecompressionBombWarning)):
        return f"too large: more than {MOST_PIXELS // 10**6} million pixels"
    if isinstance(error, UnidentifiedImageError):
        return "not an image that can be read" if _size(path) else "an empty file"
    text = str(error).replace(str(path), getattr(path, "name", "the file")).strip().splitlines()
    return f"damaged: {text[0][:200]}" if text else f"damaged: {type(error).__name__}"


def _size(path: Path | io.BytesIO) -> Any:
    try:
        return len(path.getbuffer()) if isinstance(path, io.BytesIO) else path.stat().st_size
    except OSError:
        return None


if __name__ == "__main__":
    for name, answer in zip(sys.argv[1:], classify(sys.argv[1:]), strict=True):
        label = answer["label"]
        print(f"{name}: {label} {100 * answer['probabilities'][label]:.1f} %")
