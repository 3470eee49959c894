"""A zip or tar archive with a folder of images for every class, as `folder` has them; it is not unpacked."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, final

import numpy as np

from sartor.core.errors import BadInput
from sartor.data.archive import Inside, is_archive, members
from sartor.data.base import Images, Skipped, shown
from sartor.data.decode import suffixes
from sartor.data.files import Listing, memory_limit, open_files
from sartor.data.sources.base import Source, Wish
from sartor.data.sources.folder import NOT_CLASSES, TEST, TRAIN, VAL

Parts = tuple[str, ...]


@final
class Archive(Source):
    """A .zip or .tar with one folder of images a class."""

    accepts: ClassVar[str] = "a .zip or .tar with one folder of images a class"
    general: ClassVar[bool] = True

    def takes(self, given: object) -> bool:
        """A file with such a name."""
        return isinstance(given, Path) and is_archive(given)

    def open(self, given: Any, wish: Wish) -> Images:
        """Read in place, every image decoded once."""
        return open_files(list_archive(given), wish)


def list_archive(path: Path) -> Listing:
    """Every image of an archive with its class, and whether it is for the test."""
    found: list[tuple[Parts, Inside]] = []
    for member in members(path, memory_limit()):
        parts = PurePosixPath(member.name).parts
        hidden = any(part.startswith(".") or part in NOT_CLASSES for part in parts)
        if not hidden and PurePosixPath(member.name).suffix.lower() in suffixes():
            found.append((parts, member))
    depth = _above([parts for parts, _ in found])
    tops = {parts[depth].lower() for parts, _ in found if len(parts) > depth + 1}
    split = bool(tops & set(TRAIN)) and tops <= {*TRAIN, *TEST, *VAL} and all(len(p) > depth + 2 for p, _ in found)
    # As in a folder: test/ is the test; val/ too where there is no test/, and else joins train/.
    held = next((names for names in (TEST, VAL) if split and tops & set(names)), ())
    named, skipped = [], []
    for parts, member in found:
        if len(parts) < depth + 2 + split:
            skipped.append(Skipped(shown(member.name), "in no folder, so of no class"))
        else:
            named.append((parts[depth + split], split and parts[depth].lower() in held, member))
    if not named:
        raise BadInput(
            f"{shown(path)} must hold a folder of images for each class (cat/1.jpg, dog/2.jpg), but holds none."
        )
    names = sorted({name for name, _, _ in named}, key=os.fsencode)
    named.sort(key=lambda entry: (entry[1], os.fsencode(entry[0]), os.fsencode(entry[2].name)))
    labels = np.array([names.index(name) for name, _, _ in named], np.int64)
    test = np.array([is_test for _, is_test, _ in named]) if held else None
    return Listing(path, shown(path.name), [m for *_, m in named], labels, tuple(names), skipped, test)


def _above(names: Sequence[Parts]) -> int:
    """How many folders all images have in common above those of the classes: ``photos/`` in photos/cat/1.jpg."""
    depth = 0
    while names and all(len(p) > depth + 2 for p in names) and len({p[depth] for p in names}) == 1:
        depth += 1
    return depth


PLUGIN = Archive
