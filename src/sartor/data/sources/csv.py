"""A CSV or Parquet file of image files and their labels, one or several an image.

Columns: ``file`` (or path, image, filename), ``label`` (or labels, class, tags), and optionally ``split`` with train,
val or test. Several labels stand in one cell, apart by ``;`` or ``|``, or in several rows of the same file; in Parquet
also as a list. Paths are relative to the CSV. Where every image has exactly one label, the task is to find that one.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from sartor.core.errors import BadInput, require
from sartor.data.base import Images, shown
from sartor.data.files import Listing, open_files
from sartor.data.labels import from_values
from sartor.data.sources.base import Source, Wish

_PARQUET = ".parquet"
_FILE, _LABEL = ("file", "path", "image", "filename"), ("label", "labels", "class", "tags")
_SPLIT = {"": "train", "train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val",
          "test": "test", "testing": "test"}  # fmt: skip


@final
class Csv(Source):
    """A CSV with the columns file and label; several labels an image are apart by ; or | or in rows of their own."""

    accepts: ClassVar[str] = "a .csv or .parquet with the columns file and label"

    def takes(self, given: object) -> bool:
        """A file of that ending."""
        return isinstance(given, Path) and given.suffix.lower() in (".csv", ".tsv", _PARQUET) and given.is_file()

    def open(self, given: Any, wish: Wish) -> Images:
        """The files' own sizes decide the side, as for a folder of photos."""
        labels, splits = _read(given)
        names = sorted(labels)
        paths = [given.parent / name for name in names]
        missing = [name for name, path in zip(names, paths, strict=True) if not path.is_file()]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise BadInput(
                f"every file named in {shown(given)} must exist, but {len(missing)} of {len(names)} do not: "
                f"{', '.join(missing[:3])}{more}. Paths are relative to the folder of the CSV."
            )
        known, classes = from_values([labels[name] for name in names], None, shown(given))
        marks = {part: np.array([splits[name] == part for name in names]) for part in ("test", "val")}
        own: dict[str, Any] = {part: mask for part, mask in marks.items() if mask.any()}
        return open_files(Listing(given.parent.resolve(), shown(given.name), paths, known, classes, [], **own), wish)


def _read(path: Path) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Labels and split of every file."""
    labels: dict[str, tuple[str, ...]] = {}
    splits: dict[str, str] = {}
    for where, name, said, part in _columns(path) if path.suffix.lower() == _PARQUET else _rows(path):
        found = [label.strip() for label in said.replace("|", ";").split(";")]
        if not name or not all(found):
            raise BadInput(f"{where} must name a file and its label, but one of them is empty: {name!r}, {said!r}.")
        split = _SPLIT.get(part.lower())
        if split is None or splits.setdefault(name, split) != split:
            raise BadInput(f"{where}: split must be train, val or test, the same in all rows of a file.")
        labels[name] = tuple(dict.fromkeys((*labels.get(name, ()), *found)))
    if not labels:
        raise BadInput(f"{shown(path)} must name some images, but has no rows.")
    return labels, splits


def _rows(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Where a row stands, its file, its labels and its split."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        delimiter = max(",\t;", key=text.partition("\n")[0].count)
        rows = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
        columns = [name.strip().lower() for name in next(rows, [])]
        at = [_column(columns, _FILE, path), _column(columns, _LABEL, path)]
        at += [columns.index("split")] if "split" in columns else []
        for row in rows:
            where = f"{shown(path)}, line {rows.line_num}"
            if row and len(row) != len(columns):
                raise BadInput(f"{where} must have {len(columns)} cells as the first line, but has {len(row)}.")
            if row:
                name, said, *part = (row[k].strip() for k in at)
                yield where, name, said, "".join(part)
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{shown(path)} must be a CSV in UTF-8, but: {error}. Save it as CSV UTF-8.") from error


def _columns(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """The same of a Parquet file; of its columns only those that are needed are read."""
    parquet = require("pyarrow.parquet", "parquet")
    try:
        file = parquet.ParquetFile(path)
        names = {name.lower(): name for name in file.schema_arrow.names}
        told = [list(names)[_column(list(names), wanted, path)] for wanted in (_FILE, _LABEL)]
        told += ["split"] if "split" in names else []
        table = file.read(columns=[names[name] for name in told]).to_pydict()
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise BadInput(f"{shown(path)} must be a Parquet file, but: {error}.") from error
    for n, row in enumerate(zip(*(table[names[name]] for name in told), strict=True)):
        cells = (";".join(map(str, v)) if isinstance(v, list) else "" if v is None else str(v) for v in row)
        name, said, *part = (cell.strip() for cell in cells)
        yield f"{shown(path)}, row {n + 1}", name, said, "".join(part)


def _column(columns: list[str], names: tuple[str, ...], path: Path) -> int:
    for name in names:
        if name in columns:
            return columns.index(name)
    raise BadInput(
        f"{shown(path)} must have a column {' or '.join(names)} in its first line, but has {', '.join(columns)}."
    )


PLUGIN = Csv
