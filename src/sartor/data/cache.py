"""Decoded images kept on the disk for later runs: one cache a folder of images and side, to which new files are added.

A folder `images/KEY` of the user's cache (SARTOR_CACHE) belongs to one source of images (a folder, a table, an archive)
at one side. `files.json` says which file every row holds, by name, size and time of change: what has not changed is
found again, what is new or has changed gets a free row, and rows of files that are gone become free once nobody uses
them. Every row has a state: to do, usable or not (`packing` decodes what is to do). Nothing in it is needed: deleting
the folder costs the time of decoding.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import RunError
from sartor.data.alike import Prints
from sartor.data.rows import Rows
from sartor.runs.directory import atomic, cache_folder

LEAST = 2000  # files below which decoding again takes no longer than a look
_SHARE = 0.5  # of the disk's free space that images may take
_FORMAT = 3
TO_DO, USABLE, UNUSABLE = 0, 1, 2
_VERIFIED = 256  # rows that are checked at a time
Stamp = tuple[str, int, int]  # a file's name, its size, and when it was changed
Row = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Cache:
    """The rows of some files, usable or not: `rows` says which belongs to which file."""

    folder: Path
    rows: Row
    pixels: Rows
    states: NDArray[np.uint8]  # these three of all rows of the cache
    sizes: NDArray[np.int32]
    prints: Prints
    used: IO[Any] = field(repr=False)  # open for as long as the rows must stay what they are

    @classmethod
    def of(cls, source: str, stamps: Sequence[Stamp], shape: tuple[int, ...]) -> tuple[Cache | None, str]:
        """The cache of these files of a source, new or as it was left; or None, and why, where something is wrong."""
        root = cache_folder("images")
        if root is None or len(stamps) < LEAST:
            return None, ""
        folder = root / hashlib.sha256(os.fsencode(f"{_FORMAT}\0{shape}\0{source}")).hexdigest()[:24]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with held(folder / ".lock"):
                return cls._of(folder, source, stamps, shape)
        except (OSError, RunError) as error:
            return None, f"the cache in {root} cannot be written ({error}): {_EVERY_TIME}"

    @classmethod
    def _of(
        cls, folder: Path, source: str, stamps: Sequence[Stamp], shape: tuple[int, ...]
    ) -> tuple[Cache | None, str]:
        used = (folder / ".used").open("a")
        os.utime(folder / ".used")
        known = _Index.load(folder)
        alone = _alone(used)
        rows, index = known.placed(stamps, reuse=alone)
        room, each = folder / "pixels", int(np.prod(shape))
        taken = room.stat().st_blocks * 512 if room.exists() else 0
        needed = max(0, len(rows) * each - taken)
        told = _make_room(folder, needed)
        if told and needed > _SHARE * shutil.disk_usage(folder).free:
            if not known.files:
                shutil.rmtree(folder, ignore_errors=True)
            return None, told
        cache = cls.opened(folder, rows, shape, len(index.files), used)
        if index is not known:
            free = np.array([n for n, file in enumerate(index.files) if file is None], np.int64) if alone else rows[:0]
            cache.states[np.union1d(free, index.changed)] = TO_DO
            _flush(cache.states)  # before a row is said to be another file's
            cache.pixels.release(free)
            index.save(folder, source, shape)
        cache._after_a_power_cut()
        cache.pixels.reserve(np.sort(rows[cache.states[rows] == TO_DO]))
        return cache, told

    @classmethod
    def opened(cls, folder: Path, rows: Row, shape: tuple[int, ...], count: int, used: IO[Any] | None = None) -> Cache:
        """Some rows of a cache of so many."""

        def mapped(name: str, kind: Any, *more: int) -> Any:
            path = folder / name
            wanted = count * int(np.prod(more, dtype=np.int64)) * np.dtype(kind).itemsize
            with path.open("ab") as file:
                if file.tell() < wanted:  # new, or files were added
                    file.truncate(wanted)
            return np.asarray(np.memmap(path, kind, "r+", shape=(count, *more)))  # in less time than memmap's own

        if used is None:
            used = (folder / ".used").open("a")
            fcntl.flock(used, fcntl.LOCK_SH)
        prints = Prints(
            mapped("exact", np.uint64), mapped("form", np.float32, 63), mapped("blank", np.bool_),
            mapped("plain", np.bool_),
        )  # fmt: skip
        pixels = Rows(folder / "pixels", count, shape)
        return cls(folder, rows, pixels, mapped("states", np.uint8), mapped("sizes", np.int32, 2), prints, used)

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the same files."""
        return Cache.opened, (self.folder, self.rows, self.pixels.shape, self.pixels.count)

    @property
    def usable(self) -> NDArray[np.bool_]:
        """Which files are images."""
        return np.asarray(self.states[self.rows] == USABLE)

    @property
    def to_do(self) -> NDArray[np.bool_]:
        """Which files are still to be decoded."""
        return np.asarray(self.states[self.rows] == TO_DO)

    def sync(self) -> None:
        """Everything onto the disk, where a power cut leaves it."""
        self.pixels.sync()
        for part in (self.sizes, *(getattr(self.prints, name) for name in Prints.__slots__), self.states):
            _flush(part)

    def _after_a_power_cut(self) -> None:
        """Rows may be marked whose pixels never came to the disk: those that are not what was described are to do."""
        told = self.folder / UNSYNCED
        if not told.is_file() or told.read_text() == boot():
            return
        marked = np.flatnonzero(self.states != TO_DO)
        for rows in np.split(marked, range(_VERIFIED, len(marked), _VERIFIED)):
            found = Prints.of(self.pixels.read(rows))
            sound = (found.exact == self.prints.exact[rows]) & (self.sizes[rows] > 0).all(1)
            self.states[rows[~sound]] = TO_DO
            for name in ("form", "blank", "plain"):
                getattr(self.prints, name)[rows] = getattr(found, name)
        self.sync()
        told.unlink(missing_ok=True)


def _flush(array: NDArray[Any]) -> None:
    """What was written into a map, onto the disk."""
    assert isinstance(array.base, np.memmap)
    array.base.flush()


_EVERY_TIME = "images are decoded again in every epoch"
UNSYNCED = "unsynced"  # a file that is there while rows are written, with the boot that they are written in


def boot() -> str:
    """The machine's present run, where the system tells: what was written in an earlier one may not be on the disk."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return platform.node()


@dataclass(frozen=True)
class _Index:
    """Which file every row holds; None where it is free. `changed` are rows that hold another one than before."""

    files: Sequence[Stamp | None]
    digest: str | None = None  # of a listing whose files are the rows in order, with none beside them
    changed: Row = field(default_factory=lambda: np.zeros(0, np.int64))

    @classmethod
    def load(cls, folder: Path) -> _Index:
        """Of a folder; empty where there is none, or none that can be read."""
        try:
            held = json.loads((folder / "files.json").read_bytes())
            stamps = zip(held["names"], held["sizes"], held["changed"], strict=True)
            return cls([None if name is None else (name, size, time) for name, size, time in stamps], held["digest"])
        except (OSError, ValueError, KeyError, TypeError):
            return cls(())

    def placed(self, stamps: Sequence[Stamp], reuse: bool) -> tuple[Row, _Index]:
        """A row for every file; rows of files that are gone are free, and used for others, where that is allowed."""
        digest = _digest(stamps)
        if digest == self.digest:
            return np.arange(len(stamps)), self
        place = {stamp: row for row, stamp in enumerate(self.files) if stamp is not None}
        rows = np.array([place.get(stamp, -1) for stamp in stamps], np.int64)
        files = list(self.files)
        if reuse:
            kept = set(rows.tolist())
            files = [file if row in kept else None for row, file in enumerate(files)]
        free = iter([row for row, file in enumerate(files) if file is None] if reuse else [])
        changed = np.flatnonzero(rows < 0)
        for n in changed.tolist():
            if stamps[n] in place:  # named twice
                rows[n] = place[stamps[n]]
                continue
            rows[n] = place[stamps[n]] = row = next(free, len(files))
            files[row : row + 1] = [stamps[n]]
        whole = len(rows) == len(files) and bool((rows == np.arange(len(files))).all())
        if files == list(self.files) and not whole:
            return rows, self
        return rows, _Index(files, digest if whole else None, np.unique(rows[changed]))

    def save(self, folder: Path, source: str, shape: tuple[int, ...]) -> None:
        """Whole, and onto the disk, or not at all."""
        columns = zip(*((file or (None, 0, 0)) for file in self.files), strict=True)
        names, sizes, changed = map(list, columns)
        held = {"format": _FORMAT, "source": source, "shape": list(shape), "digest": self.digest, "names": names,
                "sizes": sizes, "changed": changed}  # fmt: skip
        with atomic(folder / "files.json") as tmp, tmp.open("w", encoding="utf-8") as file:
            json.dump(held, file)  # names that are no UTF-8 are escaped
            file.flush()
            os.fsync(file.fileno())


def names(folder: Path) -> tuple[str, tuple[int, ...], list[str | None]]:
    """The source of a cache, the shape of its images, and the file of every row."""
    held = json.loads((folder / "files.json").read_bytes())
    return held["source"], tuple(held["shape"]), held["names"]


def _digest(stamps: Sequence[Stamp]) -> str:
    sha = hashlib.sha256()
    for name, size, changed in stamps:
        sha.update(os.fsencode(name) + f"\0{size}\0{changed}\0".encode())
    return sha.hexdigest()


@contextlib.contextmanager
def held(lock: Path) -> Iterator[None]:
    """A lock that other processes wait for."""
    with lock.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _alone(used: IO[Any]) -> bool:
    """Whether no other process uses a cache, which this one then does."""
    try:
        fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
        alone = True
    except OSError:
        alone = False
    fcntl.flock(used, fcntl.LOCK_SH)
    return alone


def _make_room(folder: Path, needed: int) -> str:
    """Delete caches of other images, those not used for the longest first, until so many bytes fit; what was done."""
    deleted = []
    others = [path for path in folder.parent.iterdir() if path.is_dir() and path != folder]
    for other in sorted(others, key=_last_use):
        if needed <= _SHARE * shutil.disk_usage(folder).free:
            break
        with contextlib.suppress(OSError), (other / ".used").open("a") as used:
            fcntl.flock(used, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(other)
            deleted.append(other.name)
    free = shutil.disk_usage(folder).free
    gone = f"{len(deleted)} older caches in {folder.parent} were deleted to make room. " if deleted else ""
    if needed <= _SHARE * free:
        return gone
    return (
        f"{gone}The decoded images would take {needed / 1e9:.1f} GB of the {free / 1e9:.1f} GB that are free in "
        f"{folder.parent}, more than half: {_EVERY_TIME}. Make room, or set SARTOR_CACHE to another folder"
    )


def _last_use(folder: Path) -> float:
    for name in (".used", ""):
        with contextlib.suppress(OSError):
            return (folder / name).stat().st_mtime
    return 0.0
