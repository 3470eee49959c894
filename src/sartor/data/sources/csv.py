"""A CSV of image files and their labels, one or several an image.

Columns: ``file`` (or path, image, filename), ``label`` (or labels, class, tags), and optionally ``split`` with train,
val or test. Several labels stand in one cell, apart by ``;`` or ``|``, or in several rows of the same file. Paths are
relative to the CSV. Where every image has exactly one label, the task is to find that one.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, final

from sartor.core.errors import BadInput
from sartor.data.base import Images, shown
from sartor.data.files import open_files
from sartor.data.sources.base import Source, Wish
from sartor.data.table import FILE, LABEL, Row, column, of_files


@final
class Csv(Source):
    """A CSV with the columns file and label; several labels an image are apart by ; or | or in rows of their own."""

    accepts: ClassVar[str] = "a .csv with the columns file and label"

    def takes(self, given: object) -> bool:
        """A file of that ending."""
        return isinstance(given, Path) and given.suffix.lower() in (".csv", ".tsv") and given.is_file()

    def open(self, given: Any, wish: Wish) -> Images:
        """The files' own sizes decide the side, as for a folder of photos."""
        return open_files(of_files(_rows(given), given), wish)


def _rows(path: Path) -> Iterator[Row]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        delimiter = max(",\t;", key=text.partition("\n")[0].count)
        rows = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
        columns = [name.strip().lower() for name in next(rows, [])]
        at = [column(columns, FILE, path), column(columns, LABEL, path)]
        at += [columns.index("split")] if "split" in columns else []
        for row in rows:
            where = f"{shown(path)}, line {rows.line_num}"
            if row and len(row) != len(columns):
                raise BadInput(f"{where} must have {len(columns)} cells as the first line, but has {len(row)}.")
            if row:
                name, said, *part = (row[k].strip() for k in at)
                yield Row(where, name, said, "".join(part))
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{shown(path)} must be a CSV in UTF-8, but: {error}. Save it as CSV UTF-8.") from error


PLUGIN = Csv
