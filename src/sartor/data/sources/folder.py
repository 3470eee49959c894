"""A folder with a sub-folder of images for every class.

With ``train/`` beside ``test/`` (or ``val/``), each holding the class folders, ``test/`` becomes the test split; where
both ``val/`` and ``test/`` exist, ``val/`` joins ``train/``, for the validation split is drawn anew. Images are always
RGB. Classes and files are taken in the order of their names.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.data.base import Images, Index, Skipped, Tick, silent
from sartor.data.decode import FOREIGN, Unusable, in_order, is_image, shorter_side, square, suffixes, workers
from sartor.data.sources.arrays import LEAST_SIDE, Arrays, check_side
from sartor.data.split import check_counts

SIDES = (16, 24, 32, 48, 64, 96, 128, 160, 192, 224)  # what the automatic choice chooses from
_MEMORY_SHARE = 0.25  # of the physical memory that decoded images may take
_HEADERS = 2000  # files whose size is looked at to choose the image side
_TRAIN, _TEST, _VAL = ("train", "training"), ("test", "testing"), ("val", "valid", "validation")
_NOT_CLASSES = frozenset({"__MACOSX", "@eaDir", "lost+found"})


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    label: int
    test: bool


@dataclass(frozen=True, slots=True)
class _Listing:
    """What a folder holds, before anything is decoded."""

    root: Path
    files: list[_File]
    class_names: tuple[str, ...]
    skipped: list[Skipped]
    separate_test: bool


@final
class Folder(Images):
    """A folder too large for the memory: its images are decoded when they are asked for."""

    digest_of = "files"

    def __init__(self, listing: _Listing, side: int) -> None:
        self.name = shown(listing.root.name)
        self.task = Task(classes=len(listing.class_names), image=side, channels=3)
        self.class_names = listing.class_names
        self.labels = _labels(listing.files)
        self.test = _test_index(listing)
        self.skipped = tuple(listing.skipped)
        self._root = listing.root
        self._paths = [file.path for file in listing.files]
        self._sizes = [path.stat().st_size for path in self._paths]
        self._pool = ThreadPoolExecutor(workers(), thread_name_prefix="decode")

    def pixels(self, index: Index) -> Tensor:
        """Decode the images at `index`, several at a time."""
        out = np.empty((len(index), 3, self.task.image, self.task.image), np.uint8)
        for k, array in enumerate(in_order(self._pool, self._decode, (int(i) for i in index))):
            out[k] = array
        return torch.from_numpy(out)

    def digest(self) -> str:
        """sha256 over the names, sizes and labels of the files: reading many gigabytes again would take too long."""
        sha = hashlib.sha256(repr((self.task.image, self.class_names)).encode())
        for path, size, label in zip(self._paths, self._sizes, self.labels.tolist(), strict=True):
            sha.update(os.fsencode(path.relative_to(self._root)) + f"\0{size}\0{label}\0".encode())
        return sha.hexdigest()

    def _decode(self, i: int) -> NDArray[np.uint8]:
        try:
            return square(self._paths[i], self.task.image)
        except Unusable as error:  # it was readable when the folder was opened
            raise BadInput(
                f"{shown(self._paths[i])} must stay as it was while Sartor runs, but now: {error}. Restore the file, "
                "then run the same command again."
            ) from error


def open_folder(
    path: Path, image: int | None = None, tick: Tick = silent, memory: int | None = None, largest: int = SIDES[-1]
) -> Images:
    """Open the class folders under `path`; `image` None chooses the side, up to `largest`, from the images' own sizes.

    All images are decoded once. They are kept if they take at most `memory` bytes (a quarter of the machine's by
    default); otherwise this pass only finds those that cannot be used.
    """
    check_side(image)
    with _without_warnings():
        listing = _list(path)
        _check(listing)
        side = image if image is not None else min(largest, _choose_side(listing))
        keep = len(listing.files) * 3 * side * side <= (memory if memory is not None else _memory_limit())
        pixels, usable = _decode_all(listing, side, keep, tick)
        _check(usable)
    if pixels is None:
        return Folder(usable, side)
    return Arrays(
        pixels,
        _labels(usable.files),
        usable.class_names,
        name=shown(path.resolve().name),
        test=_test_index(usable),
        skipped=usable.skipped,
    )


def shown(name: str | Path) -> str:
    """A file name as text that can be printed: bytes that are no UTF-8 become the replacement character."""
    return os.fsencode(name).decode("utf-8", "replace")


def _list(root: Path) -> _Listing:
    """Every candidate image under `root`, with its class."""
    root = root.resolve()
    skipped: list[Skipped] = []
    parts = _parts(root, skipped)
    found: dict[str, list[tuple[Path, bool]]] = {}
    for part, is_test in parts:
        for folder in _sub_folders(part):
            before = len(skipped)
            images = sorted(_images_under(folder, root, skipped), key=os.fsencode)
            if images or len(skipped) > before:  # a class of unreadable images is a class, and named as too small
                found.setdefault(folder.name, []).extend((file, is_test) for file in images)
            else:
                skipped.append(Skipped(f"{shown(folder.relative_to(root))}{os.sep}", "no images: not taken as a class"))
    if not found:
        raise _nothing(root)
    names = sorted(found, key=os.fsencode)
    files = [_File(file, k, is_test) for k, name in enumerate(names) for file, is_test in found[name]]
    files.sort(key=lambda file: file.test)  # stable: the test images follow the others
    return _Listing(root, files, tuple(map(shown, names)), skipped, any(is_test for _, is_test in parts))


def _parts(root: Path, skipped: list[Skipped]) -> list[tuple[Path, bool]]:
    """The folders that hold the class folders, each with whether its images are for the test only."""
    folders = _sub_folders(root)
    by_name = {folder.name.lower(): folder for folder in folders}
    train = next((by_name[name] for name in _TRAIN if name in by_name), None)
    if train is None or set(by_name) - {*_TRAIN, *_TEST, *_VAL} or not _sub_folders(train):
        return [(root, False)]
    held_out: list[Path] = []
    for folder in (by_name[name] for name in (*_TEST, *_VAL) if name in by_name):
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
    visible = [name for name in names if not name.startswith(".") and name not in _NOT_CLASSES]
    return [path for name in sorted(visible, key=os.fsencode) if (path := folder / name).is_dir()]


def _images_under(folder: Path, root: Path, skipped: list[Skipped]) -> Iterator[Path]:
    """Candidate images in `folder` at any depth; every real directory is entered once, so links cannot loop."""

    def refuse(error: OSError) -> None:
        raise BadInput(f"{error.filename} must be readable, but: {error.strerror}. Change its permissions.") from error

    entered = {_identity(root)}
    for here, below, names in os.walk(folder, onerror=refuse, followlinks=True):
        if _identity(here) in entered:
            below.clear()
            continue
        entered.add(_identity(here))
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in names:
            path = Path(here, name)
            ending = path.suffix.lower()
            if name.startswith(".") or not path.is_file():
                continue
            if ending in FOREIGN:
                reason = f"{ending} files cannot be read: convert them to JPEG or PNG"
                skipped.append(Skipped(shown(path.relative_to(root)), reason))
            elif ending in suffixes() or (not ending and is_image(path)):
                yield path


def _identity(folder: str | Path) -> tuple[int, int]:
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _check(listing: _Listing) -> None:
    """Refuse what cannot be split, as early as it is known."""
    counts = np.bincount([f.label for f in listing.files if not f.test], minlength=len(listing.class_names))
    unusable = _unusable(listing.skipped)
    note = f" {len(unusable)} files cannot be used, such as {_told(unusable[0])}." if unusable else ""
    least = 2 if listing.separate_test else 3
    check_counts(counts, least, shown(listing.root), listing.class_names, note)
    if listing.separate_test and not any(file.test for file in listing.files):
        raise BadInput(
            f"the test folder in {shown(listing.root)} must hold usable images of these classes, but holds none. Add "
            f"some, or remove the folder to have a test split drawn.{note}"
        )


def _unusable(skipped: Sequence[Skipped]) -> list[Skipped]:
    """Of what was passed over, the files; the rest are folders."""
    return [entry for entry in skipped if not entry.name.endswith(os.sep)]


def _told(entry: Skipped) -> str:
    return f"{entry.name} ({entry.reason})"


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


def _choose_side(listing: _Listing) -> int:
    """The largest of `SIDES` not above the median of the images' shorter sides."""
    spaced = np.linspace(0, len(listing.files) - 1, min(_HEADERS, len(listing.files))).round().astype(int)
    with ThreadPoolExecutor(workers()) as pool:
        sides = list(in_order(pool, lambda i: shorter_side(listing.files[i].path), spaced.tolist()))
    known = [side for side in sides if side is not None]
    median = float(np.median(known)) if known else 0
    return max((side for side in SIDES if side <= median), default=LEAST_SIDE)


def _decode_all(listing: _Listing, side: int, keep: bool, tick: Tick) -> tuple[Tensor | None, _Listing]:
    """Decode every file; the pixels if they are to be kept, and the listing without the files that failed."""
    total, skipped = len(listing.files), list(listing.skipped)
    usable: list[_File] = []
    out = np.empty((total if keep else 0, 3, side, side), np.uint8)

    def attempt(file: _File) -> NDArray[np.uint8] | str:
        try:
            return square(file.path, side)
        except Unusable as error:
            return str(error)

    with ThreadPoolExecutor(workers()) as pool:
        for k, (file, result) in enumerate(zip(listing.files, in_order(pool, attempt, listing.files), strict=True)):
            if isinstance(result, str):
                skipped.append(Skipped(shown(file.path.relative_to(listing.root)), result))
            else:
                if keep:
                    out[len(usable)] = result
                usable.append(file)
            tick("decoding images", k + 1, total)
    failed = _unusable(skipped)
    if len(failed) > len(usable):
        some = ", ".join(map(_told, failed[:3]))
        raise BadInput(
            f"at least half of the images in {shown(listing.root)} must be usable, but {len(failed)} of "
            f"{len(failed) + len(usable)} are not: {some}. Replace or remove these files."
        )
    left = _Listing(listing.root, usable, listing.class_names, skipped, listing.separate_test)
    return (torch.from_numpy(out[: len(usable)]) if keep else None), left


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Pillow warns of images over its size limit, which are skipped here, and of oddities that do no harm."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _labels(files: Sequence[_File]) -> Index:
    return np.array([file.label for file in files], np.int64)


def _test_index(listing: _Listing) -> Index | None:
    if not listing.separate_test:
        return None
    return np.flatnonzero([file.test for file in listing.files]).astype(np.int64)


def _memory_limit() -> int:
    """Bytes that decoded images may take: a share of what this machine, or this container, has."""
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        physical = 8 << 30
    with contextlib.suppress(OSError, ValueError):  # no control groups, or "max": no limit
        physical = min(physical, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(physical * _MEMORY_SHARE)
