"""Labels as people write them (numbers, names, several of them) to labels as a task takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput
from sartor.core.task import Labels, MultiLabel, Task

Named = tuple[Labels, tuple[str, ...]]


def task_for(labels: Labels, classes: Sequence[str], image: int, channels: int) -> Task:
    """What images with these labels are for; two classes of one name could not be told apart in any answer."""
    name, count = Counter(classes).most_common(1)[0]
    if count > 1:
        raise BadInput(
            f"class names must differ, but {count} classes are called {name!r}. Give each a name of its own."
        )
    return (MultiLabel if labels.ndim == 2 else Task)(len(classes), image, channels)


def counts(labels: Labels, classes: int) -> NDArray[np.int64]:
    """How many images show each class."""
    return np.bincount(labels, minlength=classes) if labels.ndim == 1 else (labels > 0.5).sum(0)


def from_array(y: Any, classes: Sequence[str] | None, what: str) -> Named:
    """One number for each image, or a row of 0 and 1 for each, one for every label."""
    array = np.asarray(y.detach().cpu() if hasattr(y, "detach") else y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim == 2 and array.dtype.kind in "iufb" and np.isin(array, (0, 1)).all():
        return _from_rows(array, classes, what)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise BadInput(
            f"{what} must hold one integer for each image, or a row of 0 and 1 with a place for every label, but has "
            f"the shape {array.shape} and type {array.dtype}. Number the classes 0, 1, 2, ..."
        )
    return from_values(array.tolist(), classes, what)


def from_values(values: Sequence[Any], classes: Sequence[str] | None, what: str) -> Named:
    """A number, a name or a collection of these for each image; without `classes` the distinct values are the classes.

    Where every image has exactly one label, the task is to find that one.
    """
    if values and hasattr(values[0], "ndim") and values[0].ndim == 1:
        return from_array(np.stack([np.asarray(v) for v in values]), classes, what)
    sets = [_several(value, what) for value in values]
    found = {label for each in sets for label in each}
    if len({type(label) for label in found}) > 1:
        raise BadInput(f"{what}: labels must all be numbers or all be names, but both occur. Write them alike.")
    if classes is None:
        known = {label: k for k, label in enumerate(sorted(found))}
        names = tuple(str(label) for label in known)
    else:
        names = tuple(classes)
        known = {name if isinstance(next(iter(found), 0), str) else k: k for k, name in enumerate(names)}
        unknown = sorted(found - set(known))
        if unknown:
            raise BadInput(
                f"{what}: labels must lie in 0..{len(names) - 1}, the positions in `classes`, or be one of them, but "
                f"{unknown[0]!r} occurs. Correct the labels or the classes."
            )
    return _settled([[known[label] for label in each] for each in sets], names, what)


def _several(value: Any, what: str) -> tuple[Any, ...]:
    """The labels of one image, each a whole number or a text."""
    value = value.item() if hasattr(value, "item") else value
    many = tuple(value) if isinstance(value, Collection) and not isinstance(value, str | bytes) else (value,)
    many = tuple(v.item() if hasattr(v, "item") else v for v in many)
    for label in many:
        if not isinstance(label, int | str):
            raise BadInput(f"{what}: a label must be a number, a name or a list of these, but is {value!r}.")
    return many


def _settled(sets: Sequence[Sequence[int]], names: tuple[str, ...], what: str) -> Named:
    if len(names) < 2:
        raise BadInput(f"{what} must hold at least two classes, but all labels are {', '.join(map(repr, names))}.")
    if all(len(each) == 1 for each in sets):
        return np.array([each[0] for each in sets], np.int64), names
    rows = np.zeros((len(sets), len(names)), np.float32)
    for row, each in zip(rows, sets, strict=True):
        row[list(each)] = 1.0
    return rows, names


def _from_rows(rows: NDArray[Any], classes: Sequence[str] | None, what: str) -> Named:
    names = tuple(classes) if classes is not None else tuple(str(k) for k in range(rows.shape[1]))
    if len(names) != rows.shape[1]:
        raise BadInput(f"{what} must have a place for each of {len(names)} classes, but has {rows.shape[1]}.")
    return _settled([np.flatnonzero(row).tolist() for row in rows], names, what)
