"""`.npz` files: one with x and y, or a folder of parts."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput
from sartor.data.base import Images, shown
from sartor.data.sources.arrays import Arrays, from_arrays
from sartor.data.sources.base import Source, Wish


@final
class Npz(Source):
    """numpy's `.npz`: x, y, and optionally classes, x_test and y_test, or split; y of shape (N, labels) is 0 or 1."""

    accepts: ClassVar[str] = "an .npz file with x and y, or a folder of .npz parts"

    def takes(self, given: object) -> bool:
        """A file of that ending, or a folder with some that the special formats do not know."""
        return isinstance(given, Path) and (
            given.suffix.lower() == ".npz" or (given.is_dir() and any(given.glob("*.npz")))
        )

    def open(self, given: Any, wish: Wish) -> Images:
        """Parts with 'test' in their name are the test images."""
        if not given.is_dir():
            return open_npz(given, wish.image)
        parts = sorted(given.glob("*.npz"))
        train = [part for part in parts if "test" not in part.name.lower()]
        if not train:
            raise BadInput(
                f"{shown(given)} must hold .npz parts to train on, but all are named 'test'. Add those for train."
            )
        return open_parts(train, [part for part in parts if part not in train], given.resolve().name, wish.image)


def open_npz(path: Path, image: int | None = None) -> Arrays:
    """One `.npz` file: x, y, and optionally classes, x_test and y_test, or split (0 / 'train' or 1 / 'test')."""
    held = read_npz(path)
    x, y, x_test, y_test = held["x"], held["y"], held.get("x_test"), held.get("y_test")
    if "split" in held and x_test is None:
        is_test = _test_mask(held["split"], len(x), path)
        if is_test.any():
            x, x_test, y, y_test = x[~is_test], x[is_test], y[~is_test], y[is_test]
    return from_arrays(x, y, name=path.name, classes=_class_list(held), x_test=x_test, y_test=y_test, image=image)


def open_parts(train: Sequence[Path], test: Sequence[Path], name: str, image: int | None = None) -> Arrays:
    """A data set cut into several `.npz` files: the `train` parts one after another, then the `test` parts."""
    held = [read_npz(path) for path in (*train, *test)]
    shapes = {part["x"].shape[1:] for part in held}
    if len(shapes) > 1:
        raise BadInput(
            f"{name}: all .npz parts must hold images of one shape, but they hold {sorted(shapes)}. "
            "Keep the parts of one data set in a folder of their own."
        )
    classes = next((found for part in held if (found := _class_list(part)) is not None), None)
    parts, rest = held[: len(train)], held[len(train) :]
    return from_arrays(
        np.concatenate([part["x"] for part in parts]),
        np.concatenate([part["y"] for part in parts]),
        name=name,
        classes=classes,
        x_test=np.concatenate([part["x"] for part in rest]) if rest else None,
        y_test=np.concatenate([part["y"] for part in rest]) if rest else None,
        image=image,
    )


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a `.npz` file, never unpickling anything."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if isinstance(file, np.ndarray):
                raise BadInput(
                    f"{path} must hold the arrays x and y, but is a single .npy array. Save with numpy.savez."
                )
            held = {key: file[key] for key in ("x", "y", "classes", "x_test", "y_test", "split") if key in file.files}
            present = list(file.files)
    except BadInput:
        raise
    except PermissionError as error:
        raise BadInput(f"{path} cannot be read: no permission. Change its permissions.") from error
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError, MemoryError) as error:
        raise BadInput(
            f"{path} must be a readable .npz file of plain arrays, but: {error}. Write it with "
            "numpy.savez_compressed(path, x=images, y=labels); arrays of Python objects are never loaded."
        ) from error
    for key in ("x", "y"):
        if key not in held:
            raise BadInput(
                f"{path} must hold the arrays x (uint8 images) and y (integer labels), but holds "
                f"{', '.join(present) or 'nothing'}. Save it with numpy.savez_compressed(path, x=images, y=labels)."
            )
    return held


def _class_list(held: dict[str, NDArray[Any]]) -> tuple[str, ...] | None:
    if "classes" not in held:
        return None
    return tuple(
        item.decode() if isinstance(item, bytes) else str(item) for item in held["classes"].reshape(-1).tolist()
    )


def _test_mask(split: NDArray[Any], count: int, path: Path) -> NDArray[np.bool_]:
    words = [item.decode() if isinstance(item, bytes) else str(item) for item in split.reshape(-1).tolist()]
    known = {"0": False, "False": False, "train": False, "1": True, "True": True, "test": True}
    unknown = sorted(set(words) - set(known))
    if unknown or len(words) != count:
        raise BadInput(
            f"{path}: split must hold 'train' or 'test' (or 0 or 1) for each of the {count} images, but holds "
            f"{len(words)} entries{f' with {unknown[:3]}' if unknown else ''}. Correct or leave out split."
        )
    return np.array([known[word] for word in words], bool)


PLUGIN = Npz
