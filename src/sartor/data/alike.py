"""Which images are the same, and which nearly: by hashes, so that a data set is not compared pair by pair.

Equal pixels have equal hashes. Images that are nearly the same (encoded again, scaled, a little brighter) have nearly
the same low frequencies: a discrete cosine transform's 63 lowest coefficients without the mean. Their signs are a
perceptual hash; two that differ in at most 7 bits agree in one byte at least, so only images that share a byte are
compared, and only coefficients that correlate to 0.99 make them alike.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Index = NDArray[np.int64]
Mask = NDArray[np.bool_]
Sums = NDArray[np.int16]

LEAST_SIDE = 16  # pixels: below, different images may well look alike
_FREQUENCIES = 8  # in either direction
_BITS, _CORRELATION = 7, 0.99  # nearly the same: at most so many signs differ, at least so much agrees
_MANY, _NEIGHBOURS = 100_000, 2000  # images from which on bands are wider; how many of one band an image is compared to
_BLANK = 8  # levels of 255: images that differ by no more show nothing
_AT_ONCE = 1 << 18  # pixels
_POOLS, _FINE = (8, 4, 2, 1), 20  # rows of large images that are added up; not below so many rows
_ROOM = threading.local()
_FLAT, _PLAIN = 2, 0.6  # a smaller step between neighbours is none; with more than this share of none, it is a drawing


@dataclass(frozen=True, slots=True)
class Prints:
    """What is kept of images to find them again."""

    exact: NDArray[np.uint64]  # a hash that differs where pixels do
    form: NDArray[np.float32]  # (N, 63): the low frequencies, of length 1
    blank: Mask  # of one colour
    plain: Mask  # too little detail to call two of them nearly the same

    @classmethod
    def of(cls, pixels: NDArray[np.uint8]) -> Prints:
        """Of images (N, C, S, S), so few at a time that what is computed stays in a core's cache."""
        pixels, side = np.ascontiguousarray(pixels), pixels.shape[-1]
        pool = next(p for p in _POOLS if side % p == 0 and (p == 1 or side >= _FINE * p))
        many = max(1, _AT_ONCE * pool // side**2)
        return cls.joined([cls._few(pixels[n : n + many], pool) for n in range(0, max(1, len(pixels)), many)])

    @classmethod
    def _few(cls, pixels: NDArray[np.uint8], pool: int) -> Prints:
        count, channels, side, _ = pixels.shape
        rows = side // pool
        total, part, grey, steps, small = _room(count, rows, side)
        for row in reversed(range(pool)):
            some = pixels[:, :, row::pool]
            # Channel by channel, in small numbers: several times as fast as a sum.
            np.add(some[:, 0], some[:, 1], out=part, dtype=np.int16) if channels > 1 else np.copyto(part, some[:, 0])
            for channel in range(2, channels):
                part += some[:, channel]
            np.copyto(total, part) if row == pool - 1 else np.add(total, part, out=total)
        grey[...] = total
        columns = _waves(rows) @ grey
        some, sums = np.ascontiguousarray(pixels[:, :, ::pool]), np.ascontiguousarray(columns[:, 0])
        exact = [_hash(image, sum_) for image, sum_ in zip(some, sums, strict=True)]
        form = (columns @ _waves(side).T).reshape(count, -1)[:, 1:]
        length = np.linalg.norm(form, axis=1, keepdims=True)
        blank = np.ptp(total.reshape(count, -1), axis=1) <= _BLANK * channels * pool
        for n in np.flatnonzero(blank):  # few: the colours one by one
            flat = pixels[n].reshape(channels, -1)
            blank[n] = (flat.max(1).astype(int) - flat.min(1) <= _BLANK).all()
        # From every pixel to the next, in one go over some rows; the steps from one row to another count as none.
        np.subtract(part.reshape(-1)[1:], part.reshape(-1)[:-1], out=steps.reshape(-1)[:-1])
        np.less(np.abs(steps, out=steps), _FLAT * channels, out=small)
        small[:, :, -1] = False
        plain = np.array([np.count_nonzero(image) for image in small]) > _PLAIN * rows * (side - 1)
        return cls(np.array(exact, np.uint64), form / np.maximum(length, channels * 1e-6), blank, blank | plain)

    @classmethod
    def joined(cls, parts: list[Prints]) -> Prints:
        """One after another."""
        return cls(*(np.concatenate([getattr(p, name) for p in parts]) for name in cls.__slots__))

    def of_rows(self, rows: Index) -> Prints:
        """Those of some images."""
        return Prints(*(getattr(self, name)[rows] for name in self.__slots__))

    def packed(self) -> dict[str, NDArray[np.generic]]:
        """In 73 bytes an image, to be kept: the low frequencies in 8 bits."""
        most = np.maximum(np.abs(self.form).max(1, keepdims=True, initial=0), 1e-9)
        return {"exact": self.exact.view(np.int64), "form": np.rint(self.form * (127 / most)).astype(np.int8),
                "blank": self.blank, "plain": self.plain}  # fmt: skip

    @classmethod
    def unpacked(cls, held: Mapping[str, NDArray[np.generic]]) -> Prints:
        """What was kept."""
        form = held["form"].astype(np.float32)
        form /= np.maximum(np.linalg.norm(form, axis=1, keepdims=True), 1e-9)
        return cls(
            held["exact"].astype(np.int64).view(np.uint64), form, *(held[n].astype(bool) for n in ("blank", "plain"))
        )


def _hash(image: NDArray[np.uint8], sums: NDArray[np.float32]) -> int:
    """64 bits: a checksum of the bytes, of large images of some rows, and one of all columns' sums (whole numbers)."""
    return zlib.crc32(image.data) << 32 | zlib.crc32(sums.data)


@cache
def _waves(side: int) -> NDArray[np.float32]:
    return np.cos(np.pi * np.outer(np.arange(_FREQUENCIES), np.arange(side) + 0.5) / side).astype(np.float32)


def _room(many: int, rows: int, side: int) -> tuple[Sums, Sums, NDArray[np.float32], Sums, Mask]:
    """Arrays of one thread for sums of colours and the steps between them: fresh memory would take longer than both."""
    shape = (many, rows, side)
    if not hasattr(_ROOM, "held") or _ROOM.held[0].shape != shape:
        _ROOM.held = (np.empty(shape, np.int16), np.empty(shape, np.int16), np.empty(shape, np.float32),
                      np.zeros(shape, np.int16), np.empty(shape, bool))  # fmt: skip
    held: tuple[Sums, Sums, NDArray[np.float32], Sums, Mask] = _ROOM.held
    return held


@dataclass(frozen=True, slots=True)
class Alike:
    """Images that belong together have the same number in `exact`, or in `near`, which counts equal ones as near."""

    exact: Index
    near: Index
    blank: Mask
    plain: Mask

    def groups(self, numbers: Index) -> list[Index]:
        """The images of every group of two or more, in order."""
        order = np.argsort(numbers, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
        return sorted((p for p in parts if len(p) > 1), key=lambda p: int(p[0]))


def alike(prints: Prints, side: int) -> Alike:
    """Which images belong together; blank ones to none, those too small or plain only where they are equal."""
    count = len(prints.exact)
    own = np.arange(count)
    _, first, number = np.unique(prints.exact, return_index=True, return_inverse=True)
    exact = np.where(prints.blank, own, first[number]).astype(np.int64)
    plain = np.ones(count, bool) if side < LEAST_SIDE else prints.plain
    near, once = exact, np.flatnonzero((exact == own) & ~plain)
    if len(once) > 1:
        lead = own.copy()
        lead[once] = once[_lead(prints.form[once])]
        near = lead[exact]
    return Alike(exact, near, prints.blank, plain)


def _lead(form: NDArray[np.float32]) -> Index:
    """For every image the first of those that it is nearly the same as, directly or through others."""
    powers = np.uint64(1) << np.arange(form.shape[1], dtype=np.uint64)
    hashes = np.where(form > 0, powers, np.uint64(0)).sum(1, dtype=np.uint64)
    width = 8 if len(form) <= _MANY else 16  # wider bands make smaller groups, and find fewer differing bits
    number = np.arange(len(form))
    for shift in range(0, 64, width):
        band = (hashes >> np.uint64(shift)) & np.uint64((1 << width) - 1)
        order = np.lexsort((hashes, band))
        band = band[order]
        for step in range(1, min(len(form), _NEIGHBOURS)):
            same = np.flatnonzero(band[step:] == band[:-step])
            if not len(same):
                break
            a, b = order[same], order[same + step]
            close = np.bitwise_count(hashes[a] ^ hashes[b]) <= _BITS
            a, b = a[close], b[close]
            close = (number[a] != number[b]) & (np.einsum("nk,nk->n", form[a], form[b]) >= _CORRELATION)
            if close.any():
                number = _merged(number, a[close], b[close])
    return np.asarray(np.unique(number, return_index=True)[1][number], np.int64)


def _merged(number: Index, a: Index, b: Index) -> Index:
    """Groups in which every image of `a` is together with that of `b`, numbered without gaps."""
    size = len(number)
    edges = coo_array((np.ones(len(a)), (number[a], number[b])), shape=(size, size))
    found = connected_components(edges, directed=False)[1]
    return np.asarray(np.unique(found[number], return_inverse=True)[1], np.int64)
