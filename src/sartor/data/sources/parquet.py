"""Parquet files of images with their labels, as Hugging Face stores data sets; or of image files and their labels.

Where the column of images holds their bytes (alone, or as ``{"bytes", "path"}``), they are read in place. Where it
holds text, that names files, as in a CSV. The file, or a folder of such files (or of a folder ``data`` with them),
whose names say which split they belong to: ``train-00000-of-00004.parquet``, ``test-...``; a column ``split`` says it
for every row.
"""

from __future__ import annotations

import json
import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, final

from sartor.core.errors import BadInput, require
from sartor.data.archive import Inside
from sartor.data.base import Images, shown
from sartor.data.files import open_files
from sartor.data.labels import from_values
from sartor.data.sources.base import Source, Wish
from sartor.data.table import FILE, LABEL, PARTS, Row, column, listed, of_files

_ENDING = ".parquet"
_IMAGE = ("image", "img", "picture", *FILE)
_HELD, _LEAST = 256 << 20, 2  # bytes of the groups of rows that are kept, and how many of them at least


@final
class Parquet(Source):
    """Parquet files that hold images, or name them, with their labels."""

    accepts: ClassVar[str] = "a .parquet, or a folder of them, with the columns image (or file) and label"

    def takes(self, given: object) -> bool:
        """A file of that ending, or a folder with some."""
        return isinstance(given, Path) and bool(_files(given))

    def open(self, given: Any, wish: Wish) -> Images:
        """One after another; every image decoded once."""
        tables = [_Table(path) for path in _files(given)]
        first = tables[0]
        if not first.holds_images:
            if len(tables) > 1:
                raise BadInput(f"{shown(given)} must be one table where it names files, but holds {len(tables)}.")
            return open_files(of_files(first.rows(), first.path), wish)
        paths, values, parts, classes = [], [], [], first.classes
        for table in tables:
            for member, value, part in table.images():
                paths.append(member)
                values.append(value)
                parts.append(part)
        if not paths:
            raise BadInput(f"{shown(given)} must hold some images, but has no rows.")
        labels, names = from_values(values, classes, shown(given))
        return open_files(listed(first.path.parent.resolve(), given.name, paths, labels, names, parts), wish)


def _files(given: Path) -> list[Path]:
    """The Parquet files that a path stands for."""
    if given.suffix.lower() == _ENDING and given.is_file():
        return [given]
    for folder in (given, given / "data"):
        found = sorted(p for p in folder.iterdir() if p.suffix.lower() == _ENDING) if folder.is_dir() else []
        if found:
            return found
    return []


class _Table:
    """One file: its columns, its labels, and its images by row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parquet = require("pyarrow.parquet", "parquet")
        self.types = require("pyarrow", "parquet").types
        try:
            self.file = self.parquet.ParquetFile(path)
        except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
            raise BadInput(f"{shown(path)} must be a Parquet file, but: {error}.") from error
        self.names: dict[str, str] = {name.lower(): name for name in self.file.schema_arrow.names}
        self.image, self.label = (self._named(names) for names in (_IMAGE, LABEL))
        kind = self.file.schema_arrow.field(self.image).type
        self.in_struct = self.types.is_struct(kind)
        self.holds_images = self.in_struct or self.types.is_binary(kind) or self.types.is_large_binary(kind)

    def _named(self, names: Sequence[str]) -> str:
        """The column that is called one of the names, as it is written there."""
        return list(self.names.values())[column(list(self.names), names, self.path)]

    @property
    def classes(self) -> Sequence[str] | None:
        """Their names, where Hugging Face wrote them beside the schema."""
        told = (self.file.schema_arrow.metadata or {}).get(b"huggingface")
        feature = json.loads(told)["info"]["features"].get(self.label, {}) if told else {}
        feature = feature[0] if isinstance(feature, list) else feature.get("feature", feature)
        names: Sequence[str] | None = feature.get("names") if isinstance(feature, dict) else None
        return names

    def _columns(self, *names: str) -> dict[str, list[Any]]:
        """Some columns whole; of a struct, one of its fields."""
        held: dict[str, list[Any]] = self.file.read(columns=list(names)).to_pydict()
        return held

    def rows(self) -> Iterator[Row]:
        """Of a table that names files."""
        told = [self.image, self.label, *([self.names["split"]] if "split" in self.names else [])]
        table = self._columns(*told)
        for n, cells in enumerate(zip(*(table[name] for name in told), strict=True)):
            texts = (";".join(map(str, v)) if isinstance(v, list) else "" if v is None else str(v) for v in cells)
            name, said, *part = (text.strip() for text in texts)
            yield Row(f"{shown(self.path)}, row {n + 1}", name, said, "".join(part))

    def images(self) -> Iterator[tuple[Inside, Any, str]]:
        """Every image with its label and its part."""
        status, groups = self.path.stat(), _Groups(self.path, self.image)
        labels = self._columns(self.label)[self.label]
        fields = {f.name for f in self.file.schema_arrow.field(self.image).type} if self.in_struct else set()
        paths = self._columns(f"{self.image}.path")[self.image] if "path" in fields else [None] * len(labels)
        said = self._columns(self.names["split"])[self.names["split"]] if "split" in self.names else None
        usual = PARTS.get(re.split(r"[-_.]", self.path.name.lower())[0], "train")
        for n, (label, path) in enumerate(zip(labels, paths, strict=True)):
            if label is None:
                raise BadInput(f"{shown(self.path)}, row {n + 1} must have a label, but has none.")
            part = usual if said is None else PARTS.get(str(said[n] or "").lower())
            if part is None:
                raise BadInput(f"{shown(self.path)}, row {n + 1}: split must be train, val or test.")
            named = Path(path["path"]).name if path and path["path"] else ""
            name = f"{n}-{named}" if named else str(n)
            yield Inside(self.path, name, status.st_size, status.st_mtime_ns, partial(groups.read, n)), label, part


class _Groups:
    """The images of a file by their rows: it is read in groups of rows, of which the last ones asked for are kept."""

    def __init__(self, path: Path, image: str) -> None:
        self.path, self.image, self.lock = path, image, threading.Lock()
        self.file = require("pyarrow.parquet", "parquet").ParquetFile(path)
        about = self.file.metadata
        self.starts = [0, *accumulate(about.row_group(g).num_rows for g in range(about.num_row_groups))]
        self.held: OrderedDict[int, Any] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the file itself."""
        return _Groups, (self.path, self.image)

    def read(self, row: int) -> bytes:
        """The bytes of one image; of one that is elsewhere, those of the file that the row names."""
        group = bisect_right(self.starts, row) - 1
        with self.lock:
            if group not in self.held:
                self.held[group] = self.file.read_row_group(group, columns=[self.image]).column(0)
                while len(self.held) > _LEAST and sum(column.nbytes for column in self.held.values()) > _HELD:
                    self.held.popitem(last=False)
            self.held.move_to_end(group)
            held = self.held[group][row - self.starts[group]].as_py()
        if isinstance(held, dict):
            if held["bytes"] is None and held.get("path"):
                return Path(self.path.parent, held["path"]).read_bytes()
            held = held["bytes"]
        return bytes(held or b"")


PLUGIN = Parquet
