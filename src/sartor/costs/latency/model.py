"""Prices of parts that were not timed, from those of their kind that were.

Latency is smooth in widths and sides, not in kinds. So of a part of any kind

    log price = log(w . work) + rest(kind, place)

where `work` is what its layers compute, read and write, and ``w >= 0``, common to all kinds, what each of that takes on
this device (least squares of the relative errors); `rest` is a Gaussian process over the logarithms of widths and
sides, of which other kinds know a little. Its variance is the price's interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import nnls

from sartor.costs.base import Price
from sartor.spaces.base import Part

if TYPE_CHECKING:
    from sartor.costs.layers import Count

Array = NDArray[np.float64]

_LANES = 16  # channels that a processor computes together at most: others of the last lot are idle
_LEAST = 6  # parts of a kind that are timed at least
_FLOOR = 1e-4  # ms: what cannot be told from nothing
# Of the process, in logarithms: the kinds' own levels, the bends within a kind, how far these reach (1: a factor e in
# one width or side), the noise of a timing, and what two kinds have in common.
_LEVEL, _BEND, _REACH, _NOISE, _SHARED = 0.2, 0.25, 1.5, 0.03, 0.3
_UNFILLED = 0.7  # how far apart channels are that fill all lanes and such that do not


@dataclass(frozen=True, eq=False)
class Traits:
    """What the price of a part follows from."""

    kind: str
    work: Array
    place: Array

    @classmethod
    def of(cls, part: Part, count: Count) -> Traits:
        """From its shapes and its layers."""
        dense = grouped = written = 0.0
        for layer in count.layers:
            filled = -(-layer.channels // _LANES) * _LANES / layer.channels
            dense += 0 if layer.grouped else layer.macs * filled
            grouped += layer.macs * filled if layer.grouped else 0
            written += layer.outputs * filled
        ends = math.prod(part.in_shape) + math.prod(count.out_shape)
        weights, layers = sum(layer.weights for layer in count.layers), 1e4 * len(count.layers)
        place = []
        for shape in (part.in_shape, count.out_shape):
            place += [math.log(shape[0]), math.log(shape[-1]), _UNFILLED * (shape[0] % _LANES > 0)]
        return cls(part.kind, np.array([dense, grouped, written, weights, ends, layers]) / 1e6, np.array(place))


def designed(traits: Mapping[str, Traits], most: int) -> list[str]:
    """About `most` parts to be timed: of every kind its share, at least a few, as far from each other as can be."""
    kinds: dict[str, list[str]] = {}
    for key, t in traits.items():
        kinds.setdefault(t.kind, []).append(key)
    chosen = []
    for keys in kinds.values():
        place = np.stack([traits[k].place for k in keys])
        here = int(np.argmax([traits[k].work.sum() for k in keys]))
        away = np.full(len(keys), np.inf)
        for _ in range(min(len(keys), max(_LEAST, round(most * len(keys) / len(traits))))):
            chosen.append(keys[here])
            away = np.minimum(away, ((place - place[here]) ** 2).sum(axis=1))
            away[here] = -1.0  # others may stand in the same place
            here = int(np.argmax(away))
    return chosen


class Model:
    """The law of the timed parts."""

    def __init__(self, traits: Sequence[Traits], prices: Sequence[float]) -> None:
        self.traits = tuple(traits)
        value = np.maximum(prices, _FLOOR)
        work = np.stack([t.work for t in traits])
        self.rates, _ = nnls(work / value[:, None], np.ones(len(value)))
        rest = np.log(value) - self._trend(self.traits)
        inner = _kernel(self.traits, self.traits) + _NOISE**2 * np.eye(len(value))
        self.factor = cho_factor(inner, lower=True)
        self.weights: Array = cho_solve(self.factor, rest)
        inverse = cho_solve(self.factor, np.eye(len(value)))
        self.errors: Array = np.expm1(np.abs(self.weights / np.diag(inverse)))  # of each part, from the others alone

    def prices(self, traits: Sequence[Traits]) -> list[Price]:
        """What other parts take, with 95 % intervals."""
        cross = _kernel(traits, self.traits)
        known = np.einsum("ij,ji->i", cross, cho_solve(self.factor, cross.T))
        spread = np.sqrt(np.maximum(_LEVEL**2 + _BEND**2 - known, 0) + _NOISE**2)
        middle = self._trend(traits) + cross @ self.weights
        low, value, high = (np.exp(middle + z * spread) for z in (-1.96, 0, 1.96))
        return [Price(*map(float, row)) for row in zip(value, low, high, strict=True)]

    def _trend(self, traits: Sequence[Traits]) -> Array:
        value: Array = np.stack([t.work for t in traits]) @ self.rates
        return np.log(np.maximum(value, _FLOOR))


def _kernel(a: Sequence[Traits], b: Sequence[Traits]) -> Array:
    one, other = np.stack([t.place for t in a]), np.stack([t.place for t in b])
    apart = ((one[:, None] - other[None]) ** 2).sum(axis=-1)
    alike = np.array([t.kind for t in a])[:, None] == np.array([t.kind for t in b])[None]
    common = np.where(alike, 1.0, _SHARED)
    return np.asarray(common * (_LEVEL**2 + _BEND**2 * np.exp(-apart / (2 * _REACH**2))))
