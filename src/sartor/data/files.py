"""Image files with labels, however they were listed: checked, decoded once, kept if the memory allows.

What cannot be decoded is skipped and named. Images are always RGB.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sartor.core.errors import BadInput
from sartor.core.task import Labels
from sartor.data.alike import Prints
from sartor.data.archive import Inside
from sartor.data.base import Images, Index, Skipped, Tick, shown
from sartor.data.cache import Cache, Stamp
from sartor.data.decode import Failed, File, attempt, in_order, machine_memory, readable, shorter_side, workers
from sartor.data.labels import counts, task_for
from sartor.data.packing import fill
from sartor.data.picture import Unusable, square
from sartor.data.sources.arrays import LEAST_SIDE, Arrays, room
from sartor.data.sources.base import SIDES, Wish
from sartor.data.split import check_counts

_MEMORY_SHARE = 0.25  # of the physical memory that decoded images may take
_HEADERS = 500  # files whose size is looked at to choose the image side
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Listing:
    """Files with their labels, before anything is decoded; `test` and `val` mark those that are for nothing else."""

    root: Path
    name: str
    paths: Sequence[File]
    labels: Labels
    class_names: tuple[str, ...]
    skipped: list[Skipped]
    test: Mask | None = None
    val: Mask | None = None
    stamps: Sequence[Stamp] = ()  # of the files, asked for once

    def check(self, whole: bool = False) -> None:
        """Refuse what cannot be split, as early as it is known; of what stays `whole` any image will do."""
        if whole and self.paths:
            return
        unusable = _unusable(self.skipped)
        note = f" {len(unusable)} files cannot be used, such as {_told(unusable[0])}." if unusable else ""
        own = [mask for mask in self.marks().values() if mask is not None]
        free = ~np.logical_or.reduce(own) if own else np.ones(len(self.paths), bool)
        found = counts(self.labels[free], len(self.class_names))
        check_counts(found, 3 - len(own), shown(self.root), self.class_names, note)
        if self.test is not None and not self.test.any():
            raise BadInput(
                f"the test images in {shown(self.root)} must be usable and of these classes, but there are none. Add "
                f"some, or leave the test out to have a test split drawn.{note}"
            )

    def only(self, keep: Mask, skipped: list[Skipped]) -> Listing:
        """Without the files that could not be used."""
        if keep.all():
            return replace(self, skipped=skipped)
        paths = [path for path, kept in zip(self.paths, keep, strict=True) if kept]
        stamps = [stamp for stamp, kept in zip(self.stamps, keep, strict=True) if kept]
        test, val = (None if mask is None else mask[keep] for mask in self.marks().values())
        return replace(self, paths=paths, labels=self.labels[keep], skipped=skipped, test=test, val=val, stamps=stamps)

    def marks(self) -> dict[str, Mask | None]:
        """Which files are for one split only."""
        return {"test": self.test, "val": self.val}


@final
class Mapped(Images):
    """Images too many for the memory, in a cache on the disk: read from there, or from the GPU where they fit."""

    def __init__(
        self, cache: Cache, rows: Index, labels: Labels, class_names: Sequence[str], *, name: str, digest: str,
        test: Index | None, val: Index | None, native: int, skipped: Sequence[Skipped] = (), files: Sequence[str] = (),
        digest_of: str = "files",
    ) -> None:  # fmt: skip
        self.name, self.labels, self.class_names, self.skipped = name, labels, tuple(class_names), tuple(skipped)
        self.task = task_for(labels, class_names, cache.pixels.shape[-1], cache.pixels.shape[0])
        self.test, self.val, self.native, self.digest_of = test, val, native, digest_of
        self.files, self.sizes, self.kept_in = files, np.asarray(cache.sizes[rows]), cache.folder
        self._cache, self._rows, self._digest = cache, rows, digest
        self._copies: dict[torch.device, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What is on a GPU stays there."""
        return {**self.__dict__, "_copies": {}}

    def pixels(self, index: Index) -> Tensor:
        """A copy of the images at `index`."""
        return torch.from_numpy(self._cache.pixels.read(self._rows[index]))

    def resident(self, device: str | torch.device) -> Tensor | None:
        """All pixels on a GPU that has room for them, copied there once."""
        device = torch.device(device)
        if device.type == "cpu":
            return None
        if device not in self._copies:
            shape = (len(self), *self._cache.pixels.shape)
            if not room(device, int(np.prod(shape, dtype=np.int64))):
                return None
            whole = torch.empty(shape, dtype=torch.uint8, device=device)
            for start in range(0, len(self), 4096):
                index = np.arange(start, min(start + 4096, len(self)))
                whole[start : start + 4096] = self.pixels(index).to(device)
            self._copies[device] = whole
        return self._copies[device]

    def prints(self) -> Prints:
        """As they were taken when the images were decoded."""
        return self._cache.prints.of_rows(self._rows)

    def digest(self) -> str:
        """Of names, sizes and labels."""
        return self._digest


@final
class Decoded(Images):
    """Images too many for the memory: decoded when they are asked for, several at a time where `threads` allow."""

    def __init__(
        self,
        decode: Callable[[int], NDArray[np.uint8]],
        shape: tuple[int, int],
        labels: Labels,
        class_names: Sequence[str],
        *,
        name: str,
        digest: str,
        digest_of: str = "pixels",
        threads: int = 1,
        test: Index | None = None,
        val: Index | None = None,
        skipped: Sequence[Skipped] = (),
        native: int | None = None,
        files: Sequence[str] = (),
        sizes: NDArray[np.int32] | None = None,
        prints: Prints | None = None,
    ) -> None:
        self.name, self.labels, self.class_names, self.skipped = name, labels, tuple(class_names), tuple(skipped)
        self.task = task_for(labels, class_names, shape[1], shape[0])
        self.test, self.val, self.native, self.digest_of = test, val, native, digest_of
        self.files, self.sizes, self._prints = files, sizes, prints
        self._decode, self._digest = decode, digest
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")

    def pixels(self, index: Index) -> Tensor:
        """Decode the images at `index`."""
        out = np.empty((len(index), self.task.channels, self.task.image, self.task.image), np.uint8)
        for k, array in enumerate(in_order(self._pool, self._decode, (int(i) for i in index))):
            out[k] = array
        return torch.from_numpy(out)

    def prints(self) -> Prints:
        """As they were taken when the images were first read."""
        return self._prints or super().prints()

    def digest(self) -> str:
        """As it was when they were first read."""
        return self._digest


def open_files(listing: Listing, wish: Wish, memory: int | None = None) -> Images:
    """Decode every file once; keep the pixels if they take at most `memory` bytes (a quarter of the machine's)."""
    with _without_warnings():
        listing.check(wish.whole)
        native = _native(listing)
        side = wish.image if wish.image is not None else photo_side(native, wish.largest)
        keep = len(listing.paths) * 3 * side * side <= (memory if memory is not None else memory_limit())
        listing = replace(listing, stamps=[stamp(path, listing.root) for path in listing.paths])
        source = f"{os.path.abspath(listing.root)}\0{listing.name}"
        cache, note = Cache.of(source, listing.stamps, (3, side, side))
        read, usable = (
            _decode_all(listing, side, keep, wish.tick)
            if cache is None
            else _cached(listing, side, keep, cache, wish.tick)
        )
        usable.check(wish.whole)
    marks = {name: None if mask is None else np.flatnonzero(mask) for name, mask in usable.marks().items()}
    about: dict[str, Any] = {"name": usable.name, "skipped": usable.skipped, "native": native, **marks}
    about |= {"files": [shown(name) for name, _, _ in usable.stamps], "sizes": read.sizes}
    images = _images(usable, side, read, cache, about)
    images.notes = [note] if note else []
    return images


def _images(usable: Listing, side: int, read: _Read, cache: Cache | None, about: dict[str, Any]) -> Images:
    """In memory where they are, else in the cache where there is one, else decoded again and again."""
    if read.pixels is not None:
        held = Arrays(torch.from_numpy(read.pixels), usable.labels, usable.class_names, **about)
        held.kept_in = None if cache is None else cache.folder
        return held
    if cache is not None:
        del about["sizes"]
        rows, digest = read.rows, _digest(usable, side)
        return Mapped(cache, rows, usable.labels, usable.class_names, digest=digest, **about)
    return Decoded(
        partial(_decode_again, usable.paths, side), (3, side), usable.labels, usable.class_names,
        digest=_digest(usable, side), digest_of="files", threads=workers(), prints=read.prints, **about,
    )  # fmt: skip


def stamp(path: File, root: Path) -> Stamp:
    """What a file is known by."""
    if isinstance(path, Inside):
        return _below(path, root), path.size, path.changed
    status = path.stat()
    return _below(path, root), status.st_size, status.st_mtime_ns


def _below(path: File, root: Path) -> str:
    """`os.path.relpath`, without its work where the one name plainly begins with the other: every image's is asked."""
    whole, top = os.fspath(path), os.path.join(root, "")
    plain = whole.startswith(top) and ".." not in whole
    return whole[len(top) :] if plain else os.path.relpath(whole, root)


def _cached(listing: Listing, side: int, keep: bool, cache: Cache, tick: Tick) -> tuple[_Read, Listing]:
    """The same as `_decode_all`, with what was decoded before from the disk."""
    on_disk = not any(isinstance(path, Inside) for path in listing.paths[:1])
    failed = fill(cache, lambda i, out: attempt(listing.paths[i], side, 3, out), tick, helped=on_disk)
    skipped = [Skipped(shown(listing.stamps[i][0]), why) for i, why in sorted(failed.items())]
    _check_most(listing, len(listing.paths) - len(failed), [*listing.skipped, *skipped])
    rows, usable = cache.rows[cache.usable], listing.only(cache.usable, [*listing.skipped, *skipped])
    pixels = cache.pixels.read(rows) if keep else None
    return _Read(pixels, None, np.asarray(cache.sizes[rows]), rows), usable


def _decode_again(paths: Sequence[File], side: int, i: int) -> NDArray[np.uint8]:
    try:
        return square(readable(paths[i]), side)
    except Unusable as error:  # it was readable when the files were opened
        raise BadInput(
            f"{shown(paths[i])} must stay as it was while Sartor runs, but now: {error}. Restore the file, "
            "then run the same command again."
        ) from error


def _digest(listing: Listing, side: int) -> str:
    """sha256 over the names, sizes and labels of the files: reading many gigabytes again would take too long."""
    sha = hashlib.sha256(repr((side, listing.class_names)).encode())
    for (name, size, _), label in zip(listing.stamps, listing.labels.tolist(), strict=True):
        sha.update(os.fsencode(name) + f"\0{size}\0{label}\0".encode())
    return sha.hexdigest()


def photo_side(native: int, largest: int) -> int:
    """The largest of `SIDES` not above the images' own shorter side, nor above `largest`."""
    return min(largest, max((side for side in SIDES if side <= native), default=LEAST_SIDE))


def _native(listing: Listing) -> int:
    """The median of the images' shorter sides, from the headers of some."""
    spaced = np.linspace(0, len(listing.paths) - 1, min(_HEADERS, len(listing.paths))).round().astype(int)
    with ThreadPoolExecutor(workers()) as pool:
        sides = list(in_order(pool, lambda i: _side(listing.paths[i]), spaced.tolist()))
    known = [side for side in sides if side is not None]
    return int(np.median(known)) if known else 0


def _side(path: File) -> int | None:
    try:
        return shorter_side(readable(path))
    except Unusable:
        return None


@dataclass(frozen=True, slots=True)
class _Read:
    """What is kept of the files that could be read."""

    pixels: NDArray[np.uint8] | None
    prints: Prints | None
    sizes: NDArray[np.int32]
    rows: Index = field(default_factory=lambda: np.zeros(0, np.int64))  # of the cache


def _decode_all(listing: Listing, side: int, keep: bool, tick: Tick) -> tuple[_Read, Listing]:
    """Decode every file; the pixels if they are to be kept, and the listing without the files that failed."""
    total, skipped, usable = len(listing.paths), list(listing.skipped), np.zeros(len(listing.paths), bool)
    out, good = np.empty((total if keep else 0, 3, side, side), np.uint8), 0
    prints: list[Prints] = []
    sizes = np.zeros((total, 2), np.int32)

    def look(path: File) -> tuple[NDArray[np.uint8] | Prints, tuple[int, int]] | Failed:
        found = attempt(path, side)
        return found if isinstance(found, Failed) or keep else (Prints.of(found[0][None]), found[1])

    with ThreadPoolExecutor(workers()) as pool:
        for k, (path, result) in enumerate(zip(listing.paths, in_order(pool, look, listing.paths), strict=True)):
            if isinstance(result, Failed):
                skipped.append(Skipped(shown(_below(path, listing.root)), result.why))
            else:
                kept, sizes[good] = result
                if isinstance(kept, Prints):
                    prints.append(kept)
                else:
                    out[good] = kept
                usable[k], good = True, good + 1
            tick("decoding images", k + 1, total)
    _check_most(listing, good, skipped)
    read = _Read(out[:good] if keep else None, Prints.joined(prints) if prints else None, sizes[:good])
    return read, listing.only(usable, skipped)


def _check_most(listing: Listing, good: int, skipped: Sequence[Skipped]) -> None:
    """Refuse a listing of which most is no image."""
    failed = _unusable(skipped)
    if len(failed) > good:
        some = ", ".join(map(_told, failed[:3]))
        raise BadInput(
            f"at least half of the images in {shown(listing.root)} must be usable, but {len(failed)} of "
            f"{len(failed) + good} are not: {some}. Replace or remove these files."
        )


def _unusable(skipped: Sequence[Skipped]) -> list[Skipped]:
    """Of what was passed over, the files; the rest are folders."""
    return [entry for entry in skipped if not entry.name.endswith(os.sep)]


def _told(entry: Skipped) -> str:
    return f"{entry.name} ({entry.reason})"


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Pillow warns of images over its size limit, which are skipped here, and of oddities that do no harm."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def memory_limit() -> int:
    """Bytes that decoded images may take: a share of what this machine, or this container, has."""
    return int(machine_memory() * _MEMORY_SHARE)
