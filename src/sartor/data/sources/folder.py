"""A folder with a sub-folder of images for every class.

With ``train/`` beside ``test/`` (or ``val/``), each holding the class folders, ``test/`` becomes the test split; where
both ``val/`` and ``test/`` exist, ``val/`` joins ``train/``, for the validation split is drawn anew. Images are always
RGB. Classes and files are taken in the order of their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from sartor.core.errors import BadInput
from sartor.data.base import Images, Skipped, shown
from sartor.data.decode import FOREIGN, is_image, suffixes
from sartor.data.files import Listing, open_files
from sartor.data.sources.base import Source, Wish

TRAIN, TEST, VAL = ("train", "training"), ("test", "testing"), ("val", "valid", "validation")
NOT_CLASSES = frozenset({"__MACOSX", "@eaDir", "lost+found"})


@final
class Folder(Source):
    """A folder with a sub-folder of images for every class; the side follows the photos' own sizes."""

    accepts: ClassVar[str] = "a folder with one sub-folder of images a class"
    general: ClassVar[bool] = True

    def takes(self, given: object) -> bool:
        """Any folder that holds nothing more special."""
        return isinstance(given, Path) and given.is_dir()

    def open(self, given: Any, wish: Wish) -> Images:
        """Every file is decoded once."""
        return open_files(list_folder(given), wish)


def list_folder(root: Path) -> Listing:
    """Every candidate image under `root`, with its class."""
    root = root.resolve()
    skipped: list[Skipped] = []
    parts = _parts(root, skipped)
    found: dict[str, list[tuple[Path, bool]]] = {}
    for part, is_test in parts:
        for folder in _sub_folders(part):
            before = len(skipped)
            images = sorted(images_under(folder, root, skipped), key=os.fsencode)
            if images or len(skipped) > before:  # a class of unreadable images is a class, and named as too small
                found.setdefault(folder.name, []).extend((file, is_test) for file in images)
            else:
                skipped.append(Skipped(f"{shown(folder.relative_to(root))}{os.sep}", "no images: not taken as a class"))
    if not found:
        raise _nothing(root)
    names = sorted(found, key=os.fsencode)
    files = [(file, k, is_test) for k, name in enumerate(names) for file, is_test in found[name]]
    files.sort(key=lambda file: file[2])  # stable: the test images follow the others
    labels, marks = np.array([f[1] for f in files], np.int64), np.array([f[2] for f in files], bool)
    test = marks if any(is_test for _, is_test in parts) else None
    return Listing(root, shown(root.name), [f[0] for f in files], labels, tuple(map(shown, names)), skipped, test)


def _parts(root: Path, skipped: list[Skipped]) -> list[tuple[Path, bool]]:
    """The folders that hold the class folders, each with whether its images are for the test only."""
    folders = _sub_folders(root)
    by_name = {folder.name.lower(): folder for folder in folders}
    train = next((by_name[name] for name in TRAIN if name in by_name), None)
    if train is None or set(by_name) - {*TRAIN, *TEST, *VAL} or not _sub_folders(train):
        return [(root, False)]
    held_out: list[Path] = []
    for folder in (by_name[name] for name in (*TEST, *VAL) if name in by_name):
        if _sub_folders(folder):
            held_out.append(folder)
        else:
            skipped.append(
                Skipped(f"{folder.name}{os.sep}", "no class folders inside: images without a class are not used")
            )
    return [(train, False), *((folder, k == 0) for k, folder in enumerate(held_out))]


def _sub_folders(folder: Path) -> list[Path]:
    try:
        names = os.listdir(folder)
    except PermissionError as error:
        raise BadInput(
            f"{shown(folder)} must be readable, but there is no permission. Change its permissions."
        ) from error
    visible = [name for name in names if not name.startswith(".") and name not in NOT_CLASSES]
    return [path for name in sorted(visible, key=os.fsencode) if (path := folder / name).is_dir()]


def images_under(folder: Path, root: Path | None, skipped: list[Skipped]) -> Iterator[Path]:
    """Candidate images in `folder` at any depth; every real directory is entered once, so links cannot loop."""
    entered = {_identity(root)} if root is not None else set()
    waiting: list[str | Path] = [folder]
    while waiting:
        here = waiting.pop()
        if _identity(here) in entered:
            continue
        entered.add(_identity(here))
        entries = _visible(here)
        waiting += reversed([entry.path for entry in entries if _holds(entry.is_dir)])
        for path in (Path(entry.path) for entry in entries if _holds(entry.is_file)):
            ending = path.suffix.lower()
            if ending in FOREIGN:
                reason = f"{ending} files cannot be read: convert them to JPEG or PNG"
                skipped.append(Skipped(shown(path.relative_to(root or folder)), reason))
            elif ending in suffixes() or (not ending and is_image(path)):
                yield path


def _visible(folder: str | Path) -> list[os.DirEntry[str]]:
    """What a folder holds, in the order of its names; an entry knows what it is, so that no file is asked for it."""
    try:
        with os.scandir(folder) as entries:
            return sorted((e for e in entries if not e.name.startswith(".")), key=lambda e: os.fsencode(e.name))
    except OSError as error:
        raise BadInput(f"{error.filename} must be readable, but: {error.strerror}. Change its permissions.") from error


def _holds(question: Callable[[], bool]) -> bool:
    """Its answer; no where a link leads nowhere."""
    try:
        return question()
    except OSError:
        return False


def _identity(folder: str | Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _nothing(root: Path) -> BadInput:
    """Why a folder without class folders is refused."""
    must = "must hold one sub-folder of images for each class (photos/cat/1.jpg, photos/dog/2.jpg)"
    name = shown(root)
    if not any(root.iterdir()):
        return BadInput(f"{name} {must}, but is empty. Put the images there.")
    loose = sum(1 for path in root.iterdir() if path.is_file() and path.suffix.lower() in suffixes())
    if loose:
        return BadInput(f"{name} {must}, but holds {loose} images directly. Move them into a folder for each class.")
    return BadInput(f"{name} {must}, but no image was found in it. Check the path.")


PLUGIN = Folder
