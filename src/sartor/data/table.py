"""Tables of images with their labels and, if they say so, their splits: what CSV and Parquet have in common."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sartor.core.errors import BadInput
from sartor.core.task import Labels
from sartor.data.base import shown
from sartor.data.decode import File
from sartor.data.files import Listing
from sartor.data.labels import from_values

FILE, LABEL = ("file", "path", "image", "filename"), ("label", "labels", "class", "tags")
PARTS = {"": "train", "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
         "test": "test", "testing": "test"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table of files, and where it stands; several labels are apart by ; or |."""

    where: str
    file: str
    labels: str
    part: str


def of_files(rows: Iterable[Row], table: Path) -> Listing:
    """The files that rows name, relative to their table; several rows of a file are several labels of it."""
    labels: dict[str, tuple[str, ...]] = {}
    parts: dict[str, str] = {}
    for row in rows:
        found = [label.strip() for label in row.labels.replace("|", ";").split(";")]
        if not row.file or not all(found):
            raise BadInput(
                f"{row.where} must name a file and its label, but one of them is empty: {row.file!r}, {row.labels!r}."
            )
        part = PARTS.get(row.part.lower())
        if part is None or parts.setdefault(row.file, part) != part:
            raise BadInput(f"{row.where}: split must be train, val or test, the same in all rows of a file.")
        labels[row.file] = tuple(dict.fromkeys((*labels.get(row.file, ()), *found)))
    if not labels:
        raise BadInput(f"{shown(table)} must name some images, but has no rows.")
    names = sorted(labels)
    paths = [table.parent / name for name in names]
    missing = [name for name, path in zip(names, paths, strict=True) if not path.is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise BadInput(
            f"every file named in {shown(table)} must exist, but {len(missing)} of {len(names)} do not: "
            f"{', '.join(missing[:3])}{more}. Paths are relative to the folder of the table."
        )
    known, classes = from_values([labels[name] for name in names], None, shown(table))
    return listed(table.parent.resolve(), table.name, paths, known, classes, [parts[name] for name in names])


def listed(
    root: Path, name: str, paths: Sequence[File], labels: Labels, classes: tuple[str, ...], parts: Sequence[str]
) -> Listing:
    """The images of a table, each with the part that it is for."""
    masks = {part: np.array([p == part for p in parts], bool) for part in ("test", "val")}
    own: dict[str, Any] = {part: mask for part, mask in masks.items() if mask.any()}
    return Listing(root, shown(name), paths, labels, classes, [], **own)


def column(columns: Sequence[str], names: Sequence[str], table: Path) -> int:
    """The place of the first column that is called one of the names."""
    for name in names:
        if name in columns:
            return list(columns).index(name)
    raise BadInput(
        f"{shown(table)} must have a column {' or '.join(names)} in its first line, but has {', '.join(columns)}."
    )
