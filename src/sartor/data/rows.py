"""A file of images of one size: read and written by many threads, past the memory that the system keeps of files."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput
from sartor.data.decode import machine_memory, workers

Pixels = NDArray[np.uint8]
_AT_ONCE = 4 << 20  # bytes that a thread reads; fewer are read without another
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # what Linux calls them


@final
class Rows:
    """So many rows of pixels (C, S, S) in a file, which is made as long as that."""

    def __init__(self, file: Path, count: int, shape: tuple[int, ...]) -> None:
        self.file, self.count, self.shape = file, count, tuple(shape)
        self.each = int(np.prod(shape, dtype=np.int64))  # bytes
        with file.open("ab") as stream:
            if stream.tell() < count * self.each:
                stream.truncate(count * self.each)

    def read(self, rows: NDArray[np.int64]) -> Pixels:
        """A copy of some rows: read, which takes a fraction of what touching a map's pages would."""
        many = max(1, _AT_ONCE // self.each)
        shape = (len(rows), *self.shape)
        out = self._room(shape) if len(rows) > many else np.empty(shape, np.uint8)
        parts = [slice(n, n + many) for n in range(0, len(rows), many)]
        if len(parts) > 1:
            list(self._readers.map(lambda part: self._read(out[part], rows[part]), parts))
        else:
            self._read(out, rows)
        return out

    def write(self, rows: NDArray[np.int64], pixels: Pixels) -> None:
        """Rows in ascending order, neighbours at once.

        What lies in whole pages goes past the memory that the system keeps of files: to fill that for a file that is
        read later, if ever, can take as long as to decode it.
        """
        for part in np.split(np.arange(len(rows)), np.flatnonzero(np.diff(rows) != 1) + 1):
            block, where = pixels[part[0] : part[-1] + 1], int(rows[part[0]]) * self.each
            whole = where % mmap.PAGESIZE == block.nbytes % mmap.PAGESIZE == block.ctypes.data % mmap.PAGESIZE == 0
            file = self._direct if whole and self._direct is not None else self._file
            if os.pwrite(file, block.data, where) != block.nbytes:
                raise BadInput(f"the disk of {self.file.parent} is full. Make room, or set SARTOR_CACHE elsewhere.")

    def reserve(self, rows: NDArray[np.int64]) -> None:
        """Take the disk's room for some rows: writing is many times as fast then, and cannot find the disk full."""
        self._fallocate(0, rows)

    def release(self, rows: NDArray[np.int64]) -> None:
        """Give the disk's room of some rows back; they read as zeros."""
        self._fallocate(_KEEP_SIZE | _PUNCH_HOLE, rows)

    def sync(self) -> None:
        """Onto the disk, where a power cut leaves it."""
        os.fsync(self._file)

    @property
    def taken(self) -> int:
        """Bytes of the disk that are taken for the file."""
        return self.file.stat().st_blocks * 512

    def _fallocate(self, mode: int, rows: NDArray[np.int64]) -> None:
        call = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
        if call is None:  # not on this system: the room is taken as it is needed
            return
        call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
        for part in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else ():
            if call(self._file, mode, int(part[0]) * self.each, len(part) * self.each):
                number = ctypes.get_errno()
                if number in (28, 122):  # no space left, quota exceeded; other file systems have no such call
                    raise OSError(number, os.strerror(number))
                return

    def _room(self, shape: tuple[int, ...]) -> Pixels:
        """Memory of an earlier batch that nobody uses any more: to get fresh memory takes half as long as to read."""
        held: Pixels | None = None
        with contextlib.suppress(IndexError):
            held = self._spare.pop()
        if held is None or held.shape != shape:
            held = pages(shape)
        # Whatever is made of this array keeps it alive, as its memory is no array's own.
        out = np.frombuffer(held.data, np.uint8).reshape(shape)
        weakref.finalize(out.base, self._spare.append, held).atexit = False
        return out

    def _read(self, out: Pixels, rows: NDArray[np.int64]) -> None:
        size, page, file, past = self.each, mmap.PAGESIZE, self._file, self._past
        held = None  # the whole pages that an image lies in, where they are not its own
        if past is not None and size % page == out.ctypes.data % page == 0:
            file = past
        elif past is not None:
            file, held = past, pages((size + 2 * page,))
        for image, row in zip(out, rows.tolist(), strict=True):
            before = row * size % page
            if held is None:
                missing = size - os.preadv(file, [image.data], row * size)
            else:
                whole = held[: -(-(before + size) // page) * page]
                missing = before + size - os.preadv(file, [whole.data], row * size - before)
                image[...] = held[before : before + size].reshape(image.shape)
            if missing > 0:
                raise BadInput(f"{self.file} was cut short while it was read. Delete it; images are decoded again.")

    @cached_property
    def _spare(self) -> deque[Pixels]:
        return deque(maxlen=2)

    @cached_property
    def _readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(workers(), thread_name_prefix="read")

    @cached_property
    def _file(self) -> int:
        file = os.open(self.file, os.O_RDWR)
        weakref.finalize(self, os.close, file)
        return file

    @property
    def _past(self) -> int | None:
        """Where rows are read from past the system's memory: if that would not hold them anyway."""
        return self._direct if self.count * self.each > machine_memory() else None

    @cached_property
    def _direct(self) -> int | None:
        """The same file past the memory that the system keeps of files."""
        with contextlib.suppress(OSError, AttributeError):  # a system, or a file system, that has no such way
            file = os.open(self.file, os.O_RDWR | os.O_DIRECT)
            weakref.finalize(self, os.close, file)
            os.preadv(file, [mmap.mmap(-1, mmap.PAGESIZE)], 0)  # refused where it takes larger pages
            return file
        return None


def pages(shape: tuple[int, ...]) -> Pixels:
    """Memory in whole pages, large ones where there are any: to touch it first takes a fraction of the time."""
    held = mmap.mmap(-1, int(np.prod(shape)), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        held.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(held, np.uint8).reshape(shape)
