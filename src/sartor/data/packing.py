"""Decoding what a cache has still to do: by several threads and processes, which share the chunks of its rows.

A row is marked after its pixels are written: what was killed in the middle is taken up from there. Each chunk is
decoded by whoever locks its byte of `.claims`; the lock goes with its process. On a machine of many cores further
processes help, since a part of decoding holds Python's own lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sartor.data.alike import Prints
from sartor.data.base import Tick, silent
from sartor.data.cache import TO_DO, UNSYNCED, UNUSABLE, USABLE, Cache, Row, boot, names
from sartor.data.decode import Decoded, Failed, attempt, cores, in_order, workers
from sartor.data.rows import Pixels, pages

_CHUNK = 32  # rows that a thread decodes before it marks them
_TICK = 0.2  # seconds from one look at what is done to the next
_CORES, _MANY = 4, 20_000  # for a process of its own; and files to do, from which on starting it is worth while
_REASONS = "unusable.jsonl"
Decode = Callable[[int, Pixels], Decoded | Failed]  # of the file with that number in the listing, into an array


def fill(cache: Cache, decode: Decode, tick: Tick, helped: bool = False, threads: int | None = None) -> dict[int, str]:
    """Decode what is still to do; of every file that cannot be used, why.

    A file that could not be read, and perhaps can be later, stays to do. `helped`: the rows are files below the source,
    which other processes can decode as well. `threads`, where not as many as cores may decode.
    """
    failed: dict[int, str] = {}
    todo = np.flatnonzero(cache.to_do)
    if len(todo):
        processes = max(1, cores() // _CORES) if helped and len(todo) >= _MANY else 1
        (cache.folder / UNSYNCED).write_text(boot())
        many = _CORES if processes > 1 else workers()
        many += 1 + many // 4  # some wait for the disk
        with _helpers(cache, processes - 1), _Packer(cache, decode, threads or many) as packer:
            failed = packer.pack(todo, tick)
            cache.sync()
            if packer.claims.everything():  # else another one is still writing
                (cache.folder / UNSYNCED).unlink(missing_ok=True)
    told = _reasons(cache.folder)
    for n in np.flatnonzero(cache.states[cache.rows] == UNUSABLE).tolist():
        failed[n] = told.get(int(cache.rows[n]), "cannot be read")
    return failed


class _Claims:
    """Chunks of rows that this process decodes, and no other one meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.file: IO[Any] = (folder / ".claims").open("a")

    def take(self, chunk: int, wait: bool) -> bool:
        """Whether the chunk is this process's now."""
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, chunk)
        except OSError:
            return False
        return True

    def give(self, chunk: int) -> None:
        """Let others have it."""
        fcntl.lockf(self.file, fcntl.LOCK_UN, 1, chunk)

    def everything(self) -> bool:
        """Whether nobody else has a chunk."""
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


class _Packer:
    """What the threads of one process share while they decode."""

    def __init__(self, cache: Cache, decode: Decode, threads: int) -> None:
        self.cache, self.decode, self.threads = cache, decode, threads
        self.claims, self.room, self.lock = _Claims(cache.folder), threading.local(), threading.Lock()
        self.failed: dict[int, str] = {}  # for now
        self.reasons: IO[str] = (cache.folder / _REASONS).open("a", encoding="utf-8")

    def __enter__(self) -> _Packer:
        return self

    def __exit__(self, *error: object) -> None:
        self.reasons.close()
        self.claims.file.close()

    def pack(self, todo: Row, tick: Tick, wait: bool = True) -> dict[int, str]:
        """Decode these files of the listing; at the end wait for what other processes have begun."""
        rows = self.cache.rows[todo]
        order = np.argsort(rows, kind="stable")
        todo, rows = todo[order], rows[order]
        chunks = np.split(todo, np.flatnonzero(np.diff(rows // _CHUNK)) + 1)
        left, looked = [], 0.0
        with ThreadPoolExecutor(self.threads) as pool:
            for chunk, mine in in_order(
                pool, lambda chunk: (chunk, self._chunk(chunk, False)), chunks, 4 * self.threads
            ):
                left += [] if mine else [chunk]
                if time.monotonic() - looked > _TICK:
                    looked = time.monotonic()
                    self._tell(tick)
        for chunk in left if wait else ():
            self._chunk(chunk, True)
            self._tell(tick)
        self._tell(tick)
        return self.failed

    def _tell(self, tick: Tick) -> None:
        todo = int(self.cache.to_do.sum()) - len(self.failed)
        tick("decoding images", len(self.cache.rows) - todo, len(self.cache.rows))

    def _chunk(self, chunk: NDArray[np.int64], wait: bool) -> bool:
        number = int(self.cache.rows[chunk[0]]) // _CHUNK
        if not self.claims.take(number, wait):
            return False
        try:
            self._decoded(chunk)
        finally:
            self.claims.give(number)
        return True

    def _decoded(self, chunk: NDArray[np.int64]) -> None:
        cache = self.cache
        if not hasattr(self.room, "pixels"):  # fresh memory for every image would take a tenth of the time
            self.room.pixels = pages((_CHUNK, *cache.pixels.shape))
        chunk = chunk[cache.states[cache.rows[chunk]] == TO_DO]  # another process may have been faster
        rows, good = cache.rows[chunk], np.ones(len(chunk), bool)
        for k, (n, row) in enumerate(zip(chunk.tolist(), rows.tolist(), strict=True)):
            found = self.decode(n, self.room.pixels[k])
            if isinstance(found, Failed):
                self._fail(n, row, found)
                good[k] = False
            else:
                cache.sizes[row] = found[1]
        if good.any():
            pixels = self.room.pixels[: len(rows)]
            cache.pixels.write(rows, pixels)  # also of those that failed: nobody reads them
            prints = Prints.of(pixels if good.all() else pixels[good])
            for name in Prints.__slots__:
                getattr(cache.prints, name)[rows[good]] = getattr(prints, name)
            cache.states[rows[good]] = USABLE

    def _fail(self, n: int, row: int, found: Failed) -> None:
        with self.lock:
            if found.passing:
                self.failed[n] = found.why
                return
            self.reasons.write(json.dumps([row, found.why]) + "\n")
            self.reasons.flush()
        self.cache.states[row] = UNUSABLE


def _reasons(folder: Path) -> dict[int, str]:
    """Why rows are not usable; the last reason of each."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError):
        for line in (folder / _REASONS).read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(ValueError, TypeError):  # half written when it was killed
                row, why = json.loads(line)
                found[int(row)] = str(why)
    return found


# further processes --------------------------------------------------------------------------------


@contextlib.contextmanager
def _helpers(cache: Cache, many: int) -> Iterator[None]:
    """So many processes that decode beside this one, and end with it."""
    command = [sys.executable, "-m", "sartor.data.packing", str(cache.folder)]
    started = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(many)]
    try:
        yield
    finally:
        for process in started:
            process.terminate()
            process.wait()


def help_with(folder: Path) -> None:
    """Decode what a cache has to do, as far as nobody else has begun with it."""
    source, shape, files = names(folder)
    root, kept = Path(source.partition("\0")[0]), [row for row, name in enumerate(files) if name is not None]
    cache = Cache.opened(folder, np.array(kept), shape, len(files))
    channels, side, _ = shape
    with _Packer(cache, lambda n, out: attempt(root / str(files[kept[n]]), side, channels, out), _CORES) as packer:
        packer.pack(np.flatnonzero(cache.to_do), silent, wait=False)


def _end_with_parent() -> None:
    sys.stdin.read()  # until the other end is closed
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    help_with(Path(sys.argv[1]))
