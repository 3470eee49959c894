"""Which files are images, and many of them decoded at once; how one is decoded: `sartor.data.picture`."""

from __future__ import annotations

import contextlib
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sartor.data.archive import BROKEN, Inside
from sartor.data.picture import Unusable, formats, sized

# Photographs that Pillow cannot read: they are named as skipped, where other foreign files are passed over.
FOREIGN = frozenset({".heic", ".heif", ".jxl", ".svg", ".raw", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".rw2"})
T = TypeVar("T")
R = TypeVar("R")
File = Path | Inside
Decoded = tuple[NDArray[np.uint8], tuple[int, int]]  # pixels, with the width and height that they had


@dataclass(frozen=True, slots=True)
class Failed:
    """Why a file has no pixels; `passing` where it may have some another time."""

    why: str
    passing: bool = False


def attempt(file: File, side: int, channels: int = 3, out: NDArray[np.uint8] | None = None) -> Decoded | Failed:
    """A file's pixels, into `out` where that is given; or why there are none."""
    try:
        return sized(readable(file), side, channels, out)
    except Unusable as error:
        return Failed(str(error), error.passing)


def readable(file: File) -> Path | io.BytesIO:
    """What a decoder opens."""
    if not isinstance(file, Inside):
        return file
    try:
        return io.BytesIO(file.read())
    except BROKEN as error:
        raise Unusable(f"damaged: {error}", isinstance(error, OSError) and error.errno is not None) from error


@cache
def suffixes() -> frozenset[str]:
    """The file name endings of these formats, in lower case."""
    known = set(formats())
    return frozenset(ending for ending, name in Image.registered_extensions().items() if name in known)


def shorter_side(path: Path | io.BytesIO) -> int | None:
    """Of the picture in `path`, from its header; None where that cannot be read."""
    try:
        with Image.open(path, formats=formats()) as image:
            return min(image.size)
    except Exception:  # the reason is told when the file is decoded
        return None


def is_image(path: Path) -> bool:
    """Whether the content of `path` is of a known format, for names without an ending."""
    try:
        with Image.open(path, formats=formats()):
            return True
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return True
    except Exception:  # whatever it is, it is not recognised as an image
        return False


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def workers() -> int:
    """Threads for decoding: Pillow lets other threads run while it decodes."""
    return max(1, min(16, cores()))


def machine_memory() -> int:
    """Bytes that this machine, or this container, has."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        physical = 8 << 30
    with contextlib.suppress(OSError, ValueError):  # no control groups, or "max": no limit
        physical = min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return physical


def in_order(pool: ThreadPoolExecutor, function: Callable[[T], R], items: Iterable[T], ahead: int = 256) -> Iterator[R]:
    """`map`, with at most `ahead` results waiting, which also bounds what an interruption has to wait for."""
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
