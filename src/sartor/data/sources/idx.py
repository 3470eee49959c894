"""IDX files, the format of MNIST and Fashion-MNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput
from sartor.data.base import Images
from sartor.data.sources.arrays import Arrays, from_arrays
from sartor.data.sources.base import Source, Wish

_NAME = re.compile(r"(?P<set>.*?)(?P<part>train|t10k|test)[-_.](?P<kind>images|labels)[-_.]idx[13][-_.]ubyte(?:\.gz)?$")
_MOST_BYTES = 8 << 30  # more than any such data set; a forged header must not fill the memory


@final
class Idx(Source):
    """A folder of IDX files."""

    accepts: ClassVar[str] = "a folder of IDX files (MNIST)"

    def takes(self, given: object) -> bool:
        """Whether a folder holds IDX images under one of the usual names."""
        if not isinstance(given, Path) or not given.is_dir():
            return False
        return any((match := _NAME.match(path.name)) and match["kind"] == "images" for path in given.iterdir())

    def open(self, given: Any, wish: Wish) -> Images:
        """Its t10k (or test) files become the test split."""
        return open_idx(given, wish.image)


def open_idx(
    folder: Path, image: int | None = None, *, name: str | None = None, classes: Sequence[str] | None = None
) -> Arrays:
    """The data set in `folder`; its t10k (or test) files become the test split."""
    found = _find(folder)
    if "train" not in found:
        raise BadInput(
            f"{folder} must hold the training images as train-images-idx3-ubyte (or .gz), but holds only test files. "
            "Add the train files."
        )
    parts = {part: _read_pair(folder, part, files) for part, files in found.items()}
    x, y = parts["train"]
    x_test, y_test = parts.get("test", (None, None))
    return from_arrays(x, y, name=name or folder.name, classes=classes, x_test=x_test, y_test=y_test, image=image)


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The unsigned bytes in an IDX file: two zeros, type 8, the number of axes, their big-endian sizes, the data."""
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(4 + 4 * dimensions)
            if len(head) < 4 + 4 * dimensions or head[:4] != bytes((0, 0, 8, dimensions)):
                raise BadInput(
                    f"{path} must be an IDX file of unsigned bytes with {dimensions} axes, but begins with "
                    f"0x{head[:4].hex()}. Download it again."
                )
            shape = tuple(int(size) for size in np.frombuffer(head[4:], ">u4"))
            size = int(np.prod(np.array(shape, object)))
            if not 0 < size <= _MOST_BYTES:
                raise BadInput(f"{path}: an IDX file must hold some images, but its header says {shape}.")
            data = file.read(size + 1)
    except PermissionError as error:
        raise BadInput(f"{path} must be readable, but there is no permission. Change its permissions.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} must be a readable IDX file, but: {error}. Download it again.") from error
    if len(data) != size:
        at = "fewer" if len(data) < size else "more"
        raise BadInput(f"{path} must hold {size} bytes of data as its header says, but holds {at}. Download it again.")
    return np.frombuffer(data, np.uint8).reshape(shape)


def _find(folder: Path) -> dict[str, dict[str, Path]]:
    """Paths by part (train, test) and kind (images, labels); a plain file goes before its gzipped copy."""
    found: dict[str, dict[str, Path]] = {}
    sets: set[str] = set()
    for path in sorted(folder.iterdir(), key=lambda path: (path.suffix == ".gz", path.name)):
        if not (match := _NAME.match(path.name)):
            continue
        sets.add(match["set"])
        found.setdefault("train" if match["part"] == "train" else "test", {}).setdefault(match["kind"], path)
    if len(sets) > 1:
        raise BadInput(
            f"{folder} must hold one IDX data set, but holds {len(sets)}: {', '.join(sorted(sets))}. "
            "Move the one to use into a folder of its own."
        )
    return found


def _read_pair(folder: Path, part: str, files: dict[str, Path]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    for kind in ("images", "labels"):
        if kind not in files:
            raise BadInput(f"{folder} must hold images and labels, but the {part} {kind} are missing. Add that file.")
    images, labels = read_idx(files["images"], 3), read_idx(files["labels"], 1)
    if len(images) != len(labels):
        raise BadInput(
            f"{files['images']} and {files['labels']} must hold equally many entries, but hold {len(images)} images "
            f"and {len(labels)} labels. Download both again."
        )
    return images, labels


PLUGIN = Idx
