"""Which files are images, and many of them decoded at once; how one is decoded: `sartor.data.picture`."""

from __future__ import annotations

import contextlib
import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import TypeVar

from PIL import Image

from sartor.data.picture import formats

# Photographs that Pillow cannot read: they are named as skipped, where other foreign files are passed over.
FOREIGN = frozenset({".heic", ".heif", ".jxl", ".svg", ".raw", ".cr2", ".cr3", ".nef", ".arw", ".dng", ".orf", ".rw2"})
T = TypeVar("T")
R = TypeVar("R")


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


def workers() -> int:
    """Threads for decoding: Pillow lets other threads run while it decodes."""
    return max(1, min(16, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))


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
