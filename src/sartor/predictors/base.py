"""The contract of a learned predictor: measured networks in, a function of the architecture out.

``zeta = (alpha, beta)`` of the paper is the one-hot vector of all choices. A choice that has no
effect on a network (its `needs` are not met) has the zero vector there, so that it never counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sartor.core.arch import Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Array

Index = NDArray[np.int64]


@runtime_checkable
class Fitted(Protocol):
    """What every predictor returns; a `Quadratic` is one."""

    def batch(self, picks: ArrayLike) -> Array:
        """The predictions for (n, choices) picks."""
        ...


class Predictor(ABC):
    """A frozen dataclass whose fields are its options."""

    @abstractmethod
    def fit(self, picks: ArrayLike, targets: ArrayLike, choices: Sequence[Choice], rng: np.random.Generator) -> Fitted:
        """Learn from networks, as (n, choices) picks, and their measured targets, as (n,) numbers."""

    def suits(self, choices: Sequence[Choice]) -> bool:
        """Whether there is anything in these choices that this predictor is about; `auto` tries those that suit."""
        return True


def check_samples(
    picks: ArrayLike, targets: ArrayLike, choices: Sequence[Choice], least: int = 3
) -> tuple[Index, Array, tuple[int, ...]]:
    """The samples as arrays, and the sizes; raises BadInput where they do not fit the choices or are too few."""
    sizes = tuple(len(c.options) for c in choices)
    index, y = np.asarray(picks, np.int64), np.asarray(targets, np.float64)
    if index.ndim != 2 or index.shape[1] != len(sizes) or y.shape != (len(index),):
        raise BadInput(
            f"samples must be n rows of {len(sizes)} picks and n targets, but got {index.shape} and {y.shape}."
        )
    if len(index) < least:
        raise BadInput(f"at least {least} samples are needed here, but got {len(index)}.")
    if (index < 0).any() or (index >= np.asarray(sizes)).any():
        raise BadInput("every pick must be the index of an option of its choice.")
    if not np.isfinite(y).all():
        raise BadInput("every target must be a finite number.")
    return index, y, sizes
