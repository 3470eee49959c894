"""Anything that gives (image, label) by index: a list, a torch `Dataset` of the map style.

Images are PIL images, arrays or tensors, or paths, of one size or of many; a label is a number, a name, several of
these, or a vector of 0 and 1. Every item is asked for once; if the images do not fit into the memory, again and again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sartor.core.errors import BadInput
from sartor.data.base import Images, Index
from sartor.data.files import Decoded, memory_limit, photo_side
from sartor.data.labels import from_values
from sartor.data.picture import Unusable, fitted, square
from sartor.data.sources.arrays import LEAST_SIDE, Arrays
from sartor.data.sources.base import Source, Wish

_LOOKED_AT = 256  # items whose size and colour decide for all


class Items(Protocol):
    """What is needed of a sequence."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> tuple[Any, Any]: ...


@final
class Sequenced(Source):
    """A sequence of (image, label), such as a torch Dataset: PIL images, arrays or tensors of any sizes."""

    accepts: ClassVar[str] = "in Python any sequence of (image, label), such as a torch Dataset"
    general: ClassVar[bool] = True

    def takes(self, given: object) -> bool:
        """What has a length and items."""
        known = hasattr(given, "__len__") and hasattr(given, "__getitem__")
        return known and not isinstance(given, str | bytes | dict | np.ndarray | torch.Tensor)

    def open(self, given: Any, wish: Wish) -> Images:
        """Class names from `classes`, as torchvision's data sets have it."""
        names = getattr(given, "classes", None)
        return open_items(given, wish, type(given).__name__, [str(n) for n in names] if names else None)


def open_items(
    items: Items,
    wish: Wish,
    name: str,
    classes: Sequence[str] | None,
    test: Index | None = None,
    val: Index | None = None,
) -> Images:
    """Images of one size keep it where that is at most ``wish.largest``; others are treated like photos."""
    total = len(items)
    if not total:
        raise BadInput(f"{name} must hold some images, but is empty.")
    some = np.unique(np.linspace(0, total - 1, min(_LOOKED_AT, total)).round().astype(int)).tolist()
    looks = [_look(_item(items, i, name)[0], f"{name}[{i}]") for i in some]
    native, channels = int(np.median([min(size) for size, _ in looks])), 1 if all(grey for _, grey in looks) else 3
    alike = len({size for size, _ in looks}) == 1 and native <= wish.largest
    side = wish.image or (max(native, LEAST_SIDE) if alike else photo_side(native, wish.largest))
    kept = total * channels * side * side <= memory_limit()
    out = np.empty((total if kept else 0, channels, side, side), np.uint8)
    sha, values = hashlib.sha256(), []
    for i in range(total):
        image, label = _item(items, i, name)
        pixels = _pixels(image, side, channels, f"{name}[{i}]")
        values.append(label)
        if kept:
            out[i] = pixels
        else:
            sha.update(np.ascontiguousarray(pixels).tobytes() + repr(label).encode())
        wish.tick("reading images", i + 1, total)
    labels, names = from_values(values, classes, name)
    about: dict[str, Any] = {"name": name, "test": test, "val": val, "native": native}
    if kept:
        return Arrays(torch.from_numpy(out), labels, names, **about)
    return Decoded(
        partial(_reread, items, side, channels, name), (channels, side), labels, names, digest=sha.hexdigest(), **about
    )


def _reread(items: Items, side: int, channels: int, name: str, i: int) -> NDArray[np.uint8]:
    return _pixels(_item(items, i, name)[0], side, channels, f"{name}[{i}]")


def _item(items: Items, i: int, name: str) -> tuple[Any, Any]:
    try:
        item = items[i]
    except Exception as error:  # the data set is the user's code
        raise BadInput(f"{name}[{i}] must be an image with its label, but raised {error!r}.") from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise BadInput(f"{name}[{i}] must be the pair (image, label), but is of type {type(item).__name__}.")
    return item[0], item[1]


def _picture(image: Any, what: str) -> Image.Image:
    """A PIL image of an array or a tensor, whichever axis its channels are."""
    if isinstance(image, Image.Image):
        return image
    array = np.asarray(image.detach().cpu() if isinstance(image, torch.Tensor) else image)
    if array.ndim == 3 and array.shape[-1] not in (1, 3) and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[-1] not in (1, 3)) or not array.size:
        raise BadInput(f"{what} must be an image (H, W), (H, W, 1 or 3) or (1 or 3, H, W), but has {array.shape}.")
    if array.dtype.kind == "f":
        if not (array.min() >= 0 and array.max() <= 1):
            raise BadInput(
                f"{what}: numbers with a fraction must lie in 0..1, but range from {array.min():g} to {array.max():g}. "
                "Leave out the normalisation: Sartor's networks hold their own."
            )
        array = np.rint(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise BadInput(f"{what} must hold uint8 values 0..255 or numbers 0..1, but holds {array.dtype}.")
    return Image.fromarray(np.ascontiguousarray(array[..., 0] if array.ndim == 3 and array.shape[-1] == 1 else array))


def _look(image: Any, what: str) -> tuple[tuple[int, int], bool]:
    """Size, and whether it is grey."""
    if isinstance(image, str | Path):
        try:
            with Image.open(image) as file:
                return file.size, False
        except Exception as error:  # a decoder may raise anything
            raise BadInput(f"{what} must be a readable image file, but: {error}.") from error
    picture = _picture(image, what)
    return picture.size, picture.mode in ("L", "1", "I", "F") or picture.mode.startswith("I;16")


def _pixels(image: Any, side: int, channels: int, what: str) -> NDArray[np.uint8]:
    if channels == 1 and not _look(image, what)[1]:
        raise BadInput(f"{what} must be grey as the images before it, but has colours. Convert all alike.")
    try:
        is_file = isinstance(image, str | Path)
        return square(Path(image), side, channels) if is_file else fitted(_picture(image, what), side, channels)
    except Unusable as error:
        raise BadInput(f"{what} must be a readable image, but {error}.") from error


PLUGIN = Sequenced
