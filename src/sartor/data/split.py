"""Cut a source into train, validation and test: stratified, disjoint, a function of the stream alone."""

from __future__ import annotations

import numpy as np

from sartor.data.base import Images, Index, Splits
from sartor.errors import BadInput


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
    _check_counts(counts, least, images)
    parts: tuple[list[Index], list[Index], list[Index]] = ([], [], [])
    for label, count in enumerate(counts.tolist()):
        members = rng.permutation(np.flatnonzero(free & (images.labels == label)))
        n_test = 0 if own is not None else min(max(1, round(count * test)), count - 2)
        n_val = min(max(1, round(count * val)), count - n_test - 1)
        for part, piece in zip(parts, np.split(members, [count - n_val - n_test, count - n_test]), strict=True):
            part.append(piece)
    train, validation, held_out = (np.sort(np.concatenate(part)).astype(np.int64) for part in parts)
    return Splits(train, validation, held_out if own is None else np.sort(own).astype(np.int64))


def _check_counts(counts: Index, least: int, images: Images) -> None:
    short = [f"{images.class_names[k]!r} ({counts[k]})" for k in np.flatnonzero(counts < least)]
    if len(images.class_names) < 2:
        raise BadInput(f"{images.name} must hold at least two classes, but holds one. Add another class.")
    if short:
        more = f" and {len(short) - 5} more" if len(short) > 5 else ""
        parts = "train, validation and test" if least == 3 else "train and validation"
        raise BadInput(
            f"every class of {images.name} must have at least {least} images, one each for {parts}, but too few are "
            f"in: {', '.join(short[:5])}{more}. Add images to these classes or remove them."
        )
