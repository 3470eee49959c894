"""Cut a source into train, validation and test: stratified, disjoint, a function of the stream alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput
from sartor.core.task import Labels
from sartor.data.base import Images, Index, Splits
from sartor.data.labels import counts

Mask = NDArray[np.bool_]


def split(images: Images, rng: np.random.Generator, val: float = 0.2, test: float = 0.15) -> Splits:
    """Shares `val` and `test` of every class, rounded, at least one image of it in each split.

    A source that brings its own test or validation images keeps them, and that share is not used. Of what is drawn
    here, images that are alike stay together: else a network would be tested on what it was trained on.
    """
    own = {"val": images.val, "test": images.test}
    shares = [0.0 if own[name] is not None else share for name, share in (("val", val), ("test", test))]
    if not (0 < val < 1 and 0 < test < 1 and sum(shares) < 1):
        raise BadInput(
            f"the shares val and test must be above 0 and leave some for training, but are val={val:g}, test={test:g}. "
            "Choose for example val=0.2, test=0.15."
        )
    free = np.ones(len(images), bool)
    for index in own.values():
        if index is not None:
            free[index] = False
    found = counts(images.labels[free], images.task.classes)
    check_counts(found, 1 + sum(share > 0 for share in shares), images.name, images.class_names)
    wanted = np.array([_sizes(count, *shares) for count in found.tolist()])
    draw = _by_class if images.labels.ndim == 1 else _by_rarest
    parts = dict(zip(("train", "val", "test"), _together(images, draw(images.labels, free, wanted, rng)), strict=True))
    _check_parts({name: part for name, part in parts.items() if own.get(name) is None}, images.name)
    parts |= {name: np.sort(index) for name, index in own.items() if index is not None}
    return Splits(*(parts[name].astype(np.int64) for name in ("train", "val", "test")))


def _sizes(count: int, val: float, test: float) -> tuple[int, int, int]:
    """How many of a class's images go to train, val and test; a share of 0 gets none, the others at least one."""
    n_test = min(max(1, round(count * test)), count - 2) if test else 0
    n_val = min(max(1, round(count * val)), count - n_test - 1) if val else 0
    return count - n_val - n_test, n_val, n_test


def _by_class(labels: Labels, free: Mask, wanted: Index, rng: np.random.Generator) -> list[Index]:
    parts: tuple[list[Index], ...] = ([], [], [])
    for label, (n_train, n_val, _) in enumerate(wanted.tolist()):
        members = rng.permutation(np.flatnonzero(free & (labels == label)))
        for part, piece in zip(parts, np.split(members, [n_train, n_train + n_val]), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def _by_rarest(labels: Labels, free: Mask, wanted: Index, rng: np.random.Generator) -> list[Index]:
    """Iterative stratification (Sechidis et al., ECML 2011): the label with the fewest images left is dealt out first.

    Every image goes to the split that lacks most of what it wants of that label, so each split gets some of all.
    Images without any label follow by the splits' sizes.
    """
    rows = rng.permutation(np.flatnonzero(free))
    has, placed = labels[rows] > 0.5, np.full(len(rows), -1)
    lacking = wanted.astype(float)
    size = np.maximum(wanted.sum(0), 1e-9)
    while (left := has[placed < 0].sum(0)).any():
        label = int(np.where(left > 0, left, len(rows) + 1).argmin())
        for row in np.flatnonzero((placed < 0) & has[:, label]):
            share = np.where(wanted[label] > 0, lacking[label] / np.maximum(wanted[label], 1), -np.inf)
            best = np.flatnonzero(share >= share.max() - 1e-9)
            placed[row] = best[size[best].argmin()]  # of splits that lack alike, the smallest
            lacking[has[row], placed[row]] -= 1
    rest = np.flatnonzero(placed < 0)
    placed[rest] = np.searchsorted(np.cumsum(size / size.sum()), (np.arange(len(rest)) + 0.5) / max(1, len(rest)))
    return [np.sort(rows[placed == part]) for part in range(3)]


def _together(images: Images, parts: list[Index]) -> list[Index]:
    """All images that are alike where most of them are; others with the same labels take the places they leave."""
    place = np.full(len(images), -1)
    for number, part in enumerate(parts):
        place[part] = number
    groups = [g[place[g] >= 0] for g in images.alike.groups(images.alike.near)]
    groups = [g for g in groups if len(set(place[g].tolist())) > 1]
    if not groups:
        return parts
    labels = [label.tobytes() for label in images.labels]
    alone = place >= 0
    alone[np.concatenate(images.alike.groups(images.alike.near))] = False
    free: dict[tuple[bytes, int], list[int]] = {}
    for i in np.flatnonzero(alone).tolist():
        free.setdefault((labels[i], int(place[i])), []).append(i)
    for group in groups:
        target = int(np.bincount(place[group]).argmax())
        for i in group[place[group] != target].tolist():
            others = free.get((labels[i], target))
            if others:
                place[others.pop()] = place[i]
            place[i] = target
    return [np.flatnonzero(place == number) for number in range(3)]


def _check_parts(parts: Mapping[str, Index], name: str) -> None:
    """Refuse images so few of which differ that a part would be empty; a share of none is none."""
    empty = [part for part, index in parts.items() if not len(index)]
    if empty:
        raise BadInput(
            f"{name} must hold different images for train, validation and test, but so many are the same that none is "
            f"left for {' and '.join(empty)}. `sartor audit` names them; add others."
        )


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
        parts = {3: "train, validation and test", 2: "train and validation (or test)"}.get(least, "train")
        raise BadInput(
            f"every class of {name} must have at least {least} usable images, one each for {parts}, but too few are "
            f"in: {', '.join(short[:5])}{more}. Add images to these classes or remove the classes.{note}"
        )
