"""CIFAR-10 and CIFAR-100 in their binary version. The Python version is pickled, which is never loaded here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput
from sartor.data.base import Images
from sartor.data.sources.arrays import from_arrays
from sartor.data.sources.base import Source, Wish

_PIXELS = 3 * 32 * 32
_UNPACKED = ("cifar-10-batches-bin", "cifar-100-binary")  # what the archives unpack to
_CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where one of the two data sets keeps what; a record is `label_bytes` labels, the last one fine, then pixels."""

    name: str
    label_bytes: int
    classes: int
    train: str
    test: str
    names: str


_LAYOUTS = (
    _Layout("CIFAR-10", 1, 10, "data_batch_*.bin", "test_batch.bin", "batches.meta.txt"),
    _Layout("CIFAR-100", 2, 100, "train.bin", "test.bin", "fine_label_names.txt"),
)


@final
class Cifar(Source):
    """A folder of CIFAR-10 or CIFAR-100 (its 100 fine classes), or the folder its archive unpacks to."""

    accepts: ClassVar[str] = "a folder of CIFAR-10 or CIFAR-100 binary files"

    def takes(self, given: object) -> bool:
        """Whether a folder holds CIFAR files, binary or pickled."""
        return isinstance(given, Path) and given.is_dir() and (_locate(given) is not None or _pickled(given))

    def open(self, given: Any, wish: Wish) -> Images:
        """With its own test images."""
        located = _locate(given)
        if located is None:
            raise BadInput(
                f"{given} must hold the binary version of CIFAR (data_batch_1.bin, ...; for CIFAR-100 train.bin), but "
                "holds the pickled Python version, which is not loaded because unpickling can run any code. Download "
                "cifar-10-binary.tar.gz or cifar-100-binary.tar.gz and unpack it."
            )
        here, layout = located
        x, y = _read_all(sorted(here.glob(layout.train)), layout)
        tests = sorted(here.glob(layout.test))
        x_test, y_test = _read_all(tests, layout) if tests else (None, None)
        names = _names(here, layout)
        return from_arrays(x, y, name=given.name, classes=names, x_test=x_test, y_test=y_test, image=wish.image)


def _locate(folder: Path) -> tuple[Path, _Layout] | None:
    for here in (folder, *(folder / name for name in _UNPACKED)):
        for layout in _LAYOUTS:
            if here.is_dir() and any(here.glob(layout.train)):
                return here, layout
    return None


def _pickled(folder: Path) -> bool:
    for here in (folder, folder / "cifar-10-batches-py", folder / "cifar-100-python"):
        if (here / "data_batch_1").is_file() or all((here / name).is_file() for name in ("train", "test", "meta")):
            return True
    return False


def _read_all(paths: list[Path], layout: _Layout) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    parts = [_read(path, layout) for path in paths]
    return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])


def _read(path: Path, layout: _Layout) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    record = layout.label_bytes + _PIXELS
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        raise BadInput(f"{path} must be readable, but: {error.strerror}. Change its permissions.") from error
    if len(data) == 0 or len(data) % record:
        raise BadInput(
            f"{path} must hold whole {layout.name} records of {record} bytes, but has {len(data)} bytes. "
            "Download it again."
        )
    rows = data.reshape(-1, record)
    labels = rows[:, layout.label_bytes - 1]
    if labels.max() >= layout.classes:
        raise BadInput(
            f"{path}: {layout.name} labels must lie in 0..{layout.classes - 1}, but {labels.max()} occurs. "
            "Download the file again."
        )
    return rows[:, layout.label_bytes :].reshape(-1, 3, 32, 32), labels


def _names(folder: Path, layout: _Layout) -> tuple[str, ...]:
    path = folder / layout.names
    if not path.is_file():
        return _CIFAR10 if layout.classes == 10 else tuple(str(k) for k in range(layout.classes))
    names = tuple(line.strip() for line in path.read_text("utf-8", "replace").splitlines() if line.strip())
    if len(names) != layout.classes:
        raise BadInput(f"{path} must hold {layout.classes} class names, but holds {len(names)}. Restore or delete it.")
    return names


PLUGIN = Cifar
