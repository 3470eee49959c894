"""Anything that gives (image, label) by index: a list, a torch `Dataset` of the map style.

Images are PIL images, arrays or tensors, encoded bytes, or paths, of one size or of many; a label is a number, a name,
several of these, or a vector of 0 and 1. Every item is asked for once. If the images do not fit into the memory, they
are kept on the disk as those of files are: for this run, or, of a data set that has a `fingerprint` (any text that
changes when its images do) and its labels as `targets`, for later runs too.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sartor.core.errors import BadInput
from sartor.data.base import Images, Index, Tick
from sartor.data.cache import Cache
from sartor.data.decode import Decoded as Decoding
from sartor.data.files import Decoded, Mapped, memory_limit, photo_side
from sartor.data.labels import from_values
from sartor.data.packing import fill
from sartor.data.picture import Unusable, fitted, sized
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
    given = _Given(
        items, name, (channels, side, side), classes, {"name": name, "test": test, "val": val, "native": native}
    )
    known = _known(items)
    if known is None and kept:
        return given.read(wish.tick, kept)
    # A name that nobody else has, where the images cannot be told from others.
    source = f"items\0{known[0] if known else uuid.uuid4()}"
    cache, note = Cache.of(source, [(str(i), 0, 0) for i in range(total)], given.shape)
    images = given.read(wish.tick, kept) if cache is None else given.cached(cache, known, kept, wish.tick)
    images.notes = [note] if note else []
    return images


def _known(items: Any) -> tuple[str, Sequence[Any]] | None:
    """What tells a data set from others, and the labels of all its items; None where it does not say both."""
    fingerprint, labels = getattr(items, "fingerprint", None), getattr(items, "targets", None)
    if not isinstance(fingerprint, str) or labels is None or len(labels) != len(items):
        return None
    return fingerprint, list(labels)


@dataclass(frozen=True, slots=True)
class _Given:
    """A sequence, and what its images become."""

    items: Items
    name: str
    shape: tuple[int, int, int]
    classes: Sequence[str] | None
    about: dict[str, Any]

    def read(self, tick: Tick, kept: bool) -> Images:
        """All of them, `kept` in memory, or asked for again and again."""
        (channels, side, _), total = self.shape, len(self.items)
        out = np.empty((total if kept else 0, *self.shape), np.uint8)
        sha, values = hashlib.sha256(), []
        for i in range(total):
            image, label = _item(self.items, i, self.name)
            pixels, _ = _sized(image, side, channels, f"{self.name}[{i}]")
            values.append(label)
            if kept:
                out[i] = pixels
            else:
                sha.update(np.ascontiguousarray(pixels).tobytes() + repr(label).encode())
            tick("reading images", i + 1, total)
        labels, names = from_values(values, self.classes, self.name)
        if kept:
            return Arrays(torch.from_numpy(out), labels, names, **self.about)
        again = partial(_reread, self.items, side, channels, self.name)
        return Decoded(again, (channels, side), labels, names, digest=sha.hexdigest(), **self.about)

    def cached(self, cache: Cache, known: tuple[str, Sequence[Any]] | None, kept: bool, tick: Tick) -> Images:
        """From the disk, after what is not there was asked for; by several threads where the data set allows that."""
        channels, side, _ = self.shape
        values: list[Any] = list(known[1]) if known else [None] * len(self.items)

        def decode(i: int, out: NDArray[np.uint8]) -> Decoding:
            image, label = _item(self.items, i, self.name)
            values[i] = values[i] if known else label
            return _sized(image, side, channels, f"{self.name}[{i}]", out)

        fill(cache, decode, tick, threads=None if getattr(self.items, "parallel", False) else 1)
        labels, names = from_values(values, self.classes, self.name)
        sha = hashlib.sha256(repr((self.shape, names, known and known[0])).encode() + labels.tobytes())
        sha.update(b"" if known else cache.prints.of_rows(cache.rows).exact.tobytes())
        if kept:
            images: Images = Arrays(torch.from_numpy(cache.pixels.read(cache.rows)), labels, names, **self.about)
        else:
            told: dict[str, Any] = {"digest": sha.hexdigest(), "digest_of": "fingerprint" if known else "pixels"}
            images = Mapped(cache, cache.rows, labels, names, **told, **self.about)
        if known:
            images.kept_in = cache.folder
        else:
            images.kept_in = None
            weakref.finalize(images, shutil.rmtree, cache.folder, ignore_errors=True)
        return images


def _reread(items: Items, side: int, channels: int, name: str, i: int) -> NDArray[np.uint8]:
    return _sized(_item(items, i, name)[0], side, channels, f"{name}[{i}]")[0]


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


def _opened(image: Any) -> Path | io.BytesIO | None:
    """What a decoder opens of a path, or of a file's content; None of an image that is decoded already."""
    if isinstance(image, bytes):
        return io.BytesIO(image)
    return Path(image) if isinstance(image, str | Path) else None


def _look(image: Any, what: str) -> tuple[tuple[int, int], bool]:
    """Size, and whether it is grey."""
    file = _opened(image)
    if file is None:
        picture = _picture(image, what)
        return picture.size, _is_grey(picture)
    try:
        with Image.open(file) as picture:
            return picture.size, isinstance(image, bytes) and _is_grey(picture)
    except Exception as error:  # a decoder may raise anything
        raise BadInput(f"{what} must be a readable image file, but: {error}.") from error


def _is_grey(picture: Image.Image) -> bool:
    return picture.mode in ("L", "1", "I", "F") or picture.mode.startswith("I;16")


def _sized(image: Any, side: int, channels: int, what: str, out: NDArray[np.uint8] | None = None) -> Decoding:
    """Its pixels, into `out` where that is given, and the size that it had."""
    if channels == 1 and not _look(image, what)[1]:
        raise BadInput(f"{what} must be grey as the images before it, but has colours. Convert all alike.")
    try:
        file = _opened(image)
        if file is not None:
            return sized(file, side, channels, out)
        picture = _picture(image, what)
        return fitted(picture, side, channels, out), picture.size
    except Unusable as error:
        raise BadInput(f"{what} must be a readable image, but {error}.") from error


PLUGIN = Sequenced
