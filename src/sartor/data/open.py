"""From what a person writes (`digits`, a path, two arrays) to a data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sartor.data.arrays import check_side, digits, from_arrays, from_npz, from_npz_parts
from sartor.data.base import Images
from sartor.errors import BadInput

ACCEPTED = (
    "a folder with one sub-folder of images a class, a folder of IDX files (MNIST), of CIFAR-10 or CIFAR-100 binary "
    "files or of .npz parts, an .npz file with x and y, or the names 'digits' and 'fashion-mnist'"
)


def open_data(source: str | Path | tuple[Any, Any], image: int | None = None) -> Images:
    """Open `source`."""
    check_side(image)
    if isinstance(source, tuple):
        return from_arrays(*source, image=image)
    if str(source) == "digits":
        return digits(image)
    path = Path(source)
    if path.is_dir() and (parts := sorted(path.glob("*.npz"))):
        train = [p for p in parts if "test" not in p.name]
        return from_npz_parts(train, [p for p in parts if "test" in p.name], path.name, image)
    if path.suffix == ".npz":
        return from_npz(path, image)
    raise BadInput(f"data must be {ACCEPTED}, but is {str(source)!r}.")
