"""Decoded images kept on the disk: one memory-mapped file of uint8, made once by several threads, for later runs too.

A folder `images/KEY` of the user's cache (SARTOR_CACHE) belongs to a list of files at one side; the key is made of
their names, sizes and times of change, so that a file that changes makes another. Every image has a state: to do,
usable or not. It is marked after its pixels are written: what was killed in the middle is taken up from there.
Nothing in it is needed: deleting the folder costs the time of decoding.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import mmap
import os
import shutil
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput
from sartor.data.alike import Prints
from sartor.data.base import Tick
from sartor.data.decode import in_order, machine_memory, workers
from sartor.runs.directory import cache_folder

LEAST = 2000  # files below which decoding again takes no longer than a look
_SHARE = 0.5  # of the disk's free space that images may take
_CHUNK = 32  # images that a thread decodes before it marks them
_AT_ONCE = 4 << 20  # bytes that a thread reads; fewer are read without another
_FORMAT = 2
_TO_DO, _USABLE, _UNUSABLE = 0, 1, 2
Stamp = tuple[str, int, int]  # a file's name, its size, and when it was changed
Result = tuple[NDArray[np.uint8], tuple[int, int]] | str  # pixels with the size that they had, or why there are none


@dataclass(frozen=True, eq=False)
class Cache:
    """The maps of one list of files; rows are the files, usable or not."""

    folder: Path
    pixels: NDArray[np.uint8]  # (N, 3, S, S)
    state: NDArray[np.uint8]
    sizes: NDArray[np.int32]
    prints: Prints

    @classmethod
    def of(cls, stamps: Sequence[Stamp], side: int) -> Cache | None:
        """The cache of these files, new or as it was left; None where none is kept, or the disk has no room for one."""
        root = cache_folder("images")
        if root is None or len(stamps) < LEAST:
            return None
        sha = hashlib.sha256(repr((_FORMAT, side)).encode())
        for name, size, changed in stamps:
            sha.update(os.fsencode(name) + f"\0{size}\0{changed}\0".encode())
        folder, count = root / sha.hexdigest()[:24], len(stamps)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if count * 3 * side * side > _SHARE * shutil.disk_usage(folder).free and not (folder / "pixels").exists():
                return None
            return cls(folder, *cls._maps(folder, count, side))
        except OSError:  # a disk that takes no files: the images are decoded again and again
            return None

    @staticmethod
    def _maps(folder: Path, count: int, side: int) -> tuple[Any, Any, Any, Prints]:
        def mapped(name: str, kind: Any, *shape: int) -> Any:
            path = folder / name
            wanted = count * int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
            with path.open("ab") as file:
                if file.tell() != wanted:  # new, or of a kill while it was made
                    file.truncate(wanted)
            return np.memmap(path, kind, "r+", shape=(count, *shape))

        prints = Prints(
            mapped("exact", np.uint64), mapped("form", np.float32, 63), mapped("blank", np.bool_),
            mapped("plain", np.bool_),
        )  # fmt: skip
        return (
            mapped("pixels", np.uint8, 3, side, side), mapped("state", np.uint8), mapped("sizes", np.int32, 2), prints,
        )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the same files."""
        return _reopened, (self.folder, len(self.state), self.pixels.shape[-1])

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which files are images."""
        return np.asarray(self.state == _USABLE)

    def fill(self, decode: Callable[[int], Result], tick: Tick) -> dict[int, str]:
        """Decode what is still to do; of every file that cannot be used, why. A second process waits for the first."""
        with self._held():
            todo, total = np.flatnonzero(self.state == _TO_DO), len(self.state)
            told, lock, room = self.folder / "unusable.jsonl", threading.Lock(), threading.local()
            with told.open("a", encoding="utf-8") as log, ThreadPoolExecutor(workers()) as pool:

                def work(chunk: NDArray[np.int64]) -> int:
                    if not hasattr(room, "pixels"):  # fresh memory for every image would take a tenth of the time
                        room.pixels = _pages((_CHUNK, *self.pixels.shape[1:]))
                    good: list[int] = []
                    for i in chunk.tolist():
                        found = decode(i)
                        if isinstance(found, str):
                            with lock:
                                log.write(json.dumps([i, found]) + "\n")
                                log.flush()
                            self.state[i] = _UNUSABLE
                        else:
                            room.pixels[i % _CHUNK], self.sizes[i] = found
                            good.append(i)
                    if good:
                        self._write(chunk, room.pixels)
                        self._describe(good, room.pixels)
                        self.state[good] = _USABLE
                    return len(chunk)

                done, parts = total - len(todo), np.split(todo, np.flatnonzero(np.diff(todo // _CHUNK)) + 1)
                for count in in_order(pool, work, parts, 4 * workers()):
                    done += count
                    tick("decoding images", done, total)
            lines = told.read_text(encoding="utf-8").splitlines()
        reasons = {int(i): str(why) for i, why in map(json.loads, lines)}
        return {int(i): reasons.get(int(i), "cannot be read") for i in np.flatnonzero(self.state == _UNUSABLE)}

    def read(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """A copy of some images: read, which takes a fraction of what touching the map's pages would."""
        each = max(1, _AT_ONCE // int(np.prod(self.pixels.shape[1:])))
        shape = (len(rows), *self.pixels.shape[1:])
        out = self._room(shape) if len(rows) > each else np.empty(shape, np.uint8)
        parts = [slice(n, n + each) for n in range(0, len(rows), each)]
        if len(parts) > 1:
            list(self._readers.map(lambda part: self._read(out[part], rows[part]), parts))
        else:
            self._read(out, rows)
        return out

    def _room(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Memory of an earlier batch that nobody uses any more: to get fresh memory takes half as long as to read."""
        held: NDArray[np.uint8] | None = None
        with contextlib.suppress(IndexError):
            held = self._spare.pop()
        if held is None or held.shape != shape:
            held = _pages(shape)
        # Whatever is made of this array keeps it alive, as its memory is no array's own.
        out = np.frombuffer(held.data, np.uint8).reshape(shape)
        weakref.finalize(out.base, self._spare.append, held).atexit = False
        return out

    def _read(self, out: NDArray[np.uint8], rows: NDArray[np.int64]) -> None:
        size, page, file, past = int(np.prod(out.shape[1:])), mmap.PAGESIZE, self._file, self._past
        held = None  # the whole pages that an image lies in, where they are not its own
        if past is not None and size % page == out.ctypes.data % page == 0:
            file = past
        elif past is not None:
            file, held = past, _pages((size + 2 * page,))
        for image, row in zip(out, rows.tolist(), strict=True):
            before = row * size % page
            if held is None:
                missing = size - os.preadv(file, [image.data], row * size)
            else:
                whole = held[: -(-(before + size) // page) * page]
                missing = before + size - os.preadv(file, [whole.data], row * size - before)
                image[...] = held[before : before + size].reshape(image.shape)
            if missing > 0:
                raise BadInput(f"{self.folder} was cut short while it was read. Delete it; images are decoded again.")

    @cached_property
    def _spare(self) -> deque[NDArray[np.uint8]]:
        return deque(maxlen=2)

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(workers(), thread_name_prefix="read")

    @cached_property
    def _file(self) -> int:
        return os.open(self.folder / "pixels", os.O_RDWR)

    @cached_property
    def _past(self) -> int | None:
        """The same file past the memory that the system keeps of files, where that would not hold it anyway."""
        with contextlib.suppress(OSError, AttributeError):  # a system, or a file system, that has no such way
            if self.pixels.nbytes > machine_memory():
                file = os.open(self.folder / "pixels", os.O_RDWR | os.O_DIRECT)
                os.preadv(file, [mmap.mmap(-1, mmap.PAGESIZE)], 0)  # refused where it takes larger pages
                return file
        return None

    def _describe(self, rows: list[int], pixels: NDArray[np.uint8]) -> None:
        """What finds the images of a chunk again."""
        found = Prints.of(pixels if len(rows) == _CHUNK else pixels[np.array(rows) % _CHUNK])
        for name in Prints.__slots__:
            getattr(self.prints, name)[rows] = getattr(found, name)

    def _write(self, rows: NDArray[np.int64], pixels: NDArray[np.uint8]) -> None:
        """The pixels of a chunk; the rows of those that are none are never read."""
        for part in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):  # neighbours at once
            first = int(part[0]) % _CHUNK
            block, where = pixels[first : first + len(part)], int(part[0]) * pixels[0].nbytes
            whole = where % mmap.PAGESIZE == block.nbytes % mmap.PAGESIZE == 0
            file = self._past if whole and self._past is not None else self._file
            if os.pwrite(file, block.data, where) != block.nbytes:
                raise BadInput(f"the disk of {self.folder} is full. Make room, or set SARTOR_CACHE to another folder.")

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        with (self.folder / ".lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


def _reopened(folder: Path, count: int, side: int) -> Cache:
    return Cache(folder, *Cache._maps(folder, count, side))


def _pages(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Memory in whole pages, large ones where there are any: to touch it first takes a fraction of the time."""
    held = mmap.mmap(-1, int(np.prod(shape)), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        held.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(held, np.uint8).reshape(shape)
