"""Tabular benchmarks: a CSV file of architectures and what was measured of them.

An architecture is named by a column ``arch`` in the space's customary notation, or by one column per choice with the
option's name. Further files without either are joined by their column ``index``: hardware costs, say.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sartor.bench.nasbench101 import read_nasbench101
from sartor.core.arch import Arch, canonical, from_names
from sartor.core.errors import BadInput
from sartor.spaces.base import Space

Rows = list[dict[str, str]]


@dataclass(frozen=True, eq=False)
class Table:
    """Architectures, as (n, choices) picks, and every numeric column; what is missing is NaN."""

    picks: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.float64]]

    def __len__(self) -> int:
        return len(self.picks)

    def column(self, name: str) -> NDArray[np.float64]:
        """A numeric column by its name."""
        if name not in self.columns:
            raise BadInput(f"the table has no numeric column {name!r}; it has {', '.join(self.columns)}.")
        return self.columns[name]

    @cached_property
    def rows(self) -> dict[tuple[int, ...], int]:
        """The row of every architecture."""
        return {tuple(p): n for n, p in enumerate(self.picks.tolist())}

    def row(self, arch: Arch) -> int | None:
        """The row of an architecture, or None where the table does not list it."""
        return self.rows.get(arch.picks)

    def inside(self, limits: Mapping[str, float]) -> NDArray[np.bool_]:
        """Which rows have every limited column at most at its limit."""
        keep = np.ones(len(self), bool)
        for name, high in limits.items():
            values = self.column(name)
            keep &= values <= high
            if not keep.any():
                raise BadInput(
                    f"no row of the table has {', '.join(f'{n} <= {v:g}' for n, v in limits.items())}: the least "
                    f"{name} is {np.nanmin(values):g}. Raise the limit."
                )
        return keep


def read_table(paths: Sequence[Path], space: Space) -> Table:
    """The first file names the architectures; the others bring further columns, joined by ``index``.

    An ``.npz`` file is NAS-Bench-101 (see `_nasbench101`); nothing is joined to it.
    """
    if not paths:
        raise BadInput("a table is needed: give at least one CSV file.")
    if paths[0].suffix == ".npz":
        known, found = read_nasbench101(paths[0], space)
        return Table(known, found)
    main, picks = _rows(paths[0]), []
    for number, row in enumerate(main, start=2):
        try:
            picks.append(_arch(row, space).picks)
        except BadInput as error:
            raise BadInput(f"{paths[0]}, line {number}: {error}") from error
    columns = _columns(main)
    for path in paths[1:]:
        more = _rows(path)
        if "index" not in main[0] or "index" not in more[0]:
            raise BadInput(f"{path} must have a column index, and {paths[0]} too, to be joined with it.")
        by_index = {row["index"]: row for row in more}
        empty = dict.fromkeys(more[0], "")
        joined = _columns([by_index.get(row["index"], empty) for row in main])
        columns |= {name: values for name, values in joined.items() if name not in columns}
    return Table(np.asarray(picks, np.int64), columns)


def _rows(path: Path) -> Rows:
    try:
        packed = path.read_bytes()
        text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode("utf-8")
        rows = [dict(row) for row in csv.DictReader(text.splitlines())]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} must be a CSV file, or one compressed with gzip, but: {error}.") from error
    if not rows or any(None in row or None in row.values() for row in rows):  # csv's marks of long and short rows
        raise BadInput(f"{path} must have a line of names and then lines of as many values each.")
    return rows


def _arch(row: Mapping[str, str], space: Space) -> Arch:
    names = [c.name for c in space.choices]
    if all(name in row for name in names):
        return canonical(space.choices, from_names(space.choices, {name: row[name] for name in names}))
    if "arch" not in row:
        raise BadInput(f"there must be a column arch, or one per choice: {', '.join(names)}.")
    return canonical(space.choices, space.read(row["arch"]))


def _columns(rows: Rows) -> dict[str, NDArray[np.float64]]:
    """The columns all of whose entries are numbers or empty."""
    found = {}
    for name in rows[0]:
        values = [_number(row[name]) for row in rows]
        if all(v is not None for v in values):
            found[name] = np.asarray(values, np.float64)
    return found


def _number(text: str) -> float | None:
    try:
        return float(text) if text.strip() else math.nan
    except ValueError:
        return None
