"""Cut a source into train, validation and test: stratified, disjoint, a function of the stream alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput
from sartor.data.base import Images, Index, Splits


def split(images: Images, rng: np.random.Generator, val: float = 0.2, test: float = 0.15) -> Splits:
    """Shares `val` and `test` of every class, rounded, at least one image of it in each split.

    A source that brings its own test images keeps them, and `test` is not used.
    """
    own = images.test
    if not (0 < val < 1 and 0 < test < 1 and val + (0 if own is not None else test) < 1):
        raise BadInput(
            f"the shares val and test must be above 0 and leave some for training, but are val={val:g}, test={test:g}. "
            "Choose for example val=0.2, test=0.15."
        )
    free = np.ones(len(images), bool)
    if own is not None:
        free[own] = False
    counts = np.bincount(images.labels[free], minlength=images.task.classes)
    least = 3 if own is None else 2
    check_counts(counts, least, images.name, images.class_names)
    parts: tuple[list[Index], list[Index], list[Index]] = ([], [], [])
    for label, count in enumerate(counts.tolist()):
        members = rng.permutation(np.flatnonzero(free & (images.labels == label)))
        n_test = 0 if own is not None else min(max(1, round(count * test)), count - 2)
        n_val = min(max(1, round(count * val)), count - n_test - 1)
        for part, piece in zip(parts, np.split(members, [count - n_val - n_test, count - n_test]), strict=True):
            part.append(piece)
    train, validation, held_out = (np.sort(np.concatenate(part)).astype(np.int64) for part in parts)
    return Splits(train, validation, held_out if own is None else np.sort(own).astype(np.int64))


def check_counts(counts: NDArray[Any], least: int, name: str, class_names: Sequence[str], note: str = "") -> None:
    """Refuse a single class, and classes too small to be split: `least` is 3, or 2 beside separate test images.

    `note` is appended to the message: what a source knows about images that are missing.
    """
    if len(class_names) < 2:
        raise BadInput(
            f"{name} must hold at least two classes, but holds only {', '.join(map(repr, class_names))}. "
            f"Add another class.{note}"
        )
    short = [f"{class_names[k]!r} ({counts[k]})" for k in np.flatnonzero(counts < least).tolist()]
    if short:
        more = f" and {len(short) - 5} more" if len(short) > 5 else ""
        parts = "train, validation and test" if least == 3 else "train and validation"
        raise BadInput(
            f"every class of {name} must have at least {least} usable images, one each for {parts}, but too few are "
            f"in: {', '.join(short[:5])}{more}. Add images to these classes or remove the classes.{note}"
        )
