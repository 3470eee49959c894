"""From what a person writes (`digits`, a path, two arrays) to a data source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sartor.core.errors import BadInput
from sartor.data.base import Images, Tick, silent
from sartor.data.sources.arrays import check_side, digits, from_arrays, from_npz, from_npz_parts
from sartor.data.sources.cifar import holds_cifar, open_cifar
from sartor.data.sources.folder import SIDES, open_folder, shown
from sartor.data.sources.idx import holds_idx, open_fashion_mnist, open_idx

ACCEPTED = (
    "a folder with one sub-folder of images a class, a folder of IDX files (MNIST), of CIFAR-10 or CIFAR-100 binary "
    "files or of .npz parts, an .npz file with x and y, or one of the names 'digits' and 'fashion-mnist'"
)
_ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst")
_PICKLES = (".pkl", ".pickle", ".pt", ".pth")


def open_data(
    source: str | Path | tuple[Any, Any], image: int | None = None, tick: Tick = silent, largest: int = SIDES[-1]
) -> Images:
    """Open `source`, with images of `image` x `image` pixels; None keeps an array's size and chooses a folder's.

    The size chosen for a folder of photos follows their own sizes, up to `largest`.

    The names `digits` and `fashion-mnist` go before folders called so; write ``./digits`` for the folder.
    """
    check_side(image)
    if isinstance(source, tuple | list):
        if len(source) != 2:
            raise BadInput(f"arrays must be given as the pair (x, y), but {len(source)} were given.")
        return from_arrays(*source, image=image)
    if not isinstance(source, str | Path):
        raise BadInput(f"data must be {ACCEPTED}, or a pair of arrays (x, y), but is a {type(source).__name__}.")
    if source == "digits":
        return digits(image)
    if source == "fashion-mnist":
        return open_fashion_mnist(image)
    path = Path(source).expanduser()
    try:
        if not _exists(path):
            raise BadInput(f"data must be {ACCEPTED}, but {shown(path)!r} is neither a name nor an existing path.")
        return _open_directory(path, image, tick, largest) if path.is_dir() else _open_file(path, image)
    except PermissionError as error:
        raise BadInput(
            f"{shown(path)} must be readable, but there is no permission. Change its permissions."
        ) from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        raise
    except (OSError, ValueError) as error:  # names too long, or with a zero byte
        raise BadInput(f"data must be {ACCEPTED}, but {str(path)[:100]!r} is no usable path: {error}.") from error


def _open_directory(path: Path, image: int | None, tick: Tick, largest: int) -> Images:
    if holds_idx(path):
        return open_idx(path, image)
    if holds_cifar(path):
        return open_cifar(path, image)
    if parts := sorted(path.glob("*.npz")):
        train = [part for part in parts if "test" not in part.name.lower()]
        if not train:
            raise BadInput(
                f"{shown(path)} must hold .npz parts to train on, but all are named 'test'. Add those for train."
            )
        return from_npz_parts(train, [part for part in parts if part not in train], path.resolve().name, image)
    return open_folder(path, image, tick, largest=largest)


def _open_file(path: Path, image: int | None) -> Images:
    ending = path.suffix.lower()
    if ending == ".npz":
        return from_npz(path, image)
    if ending in _ARCHIVES:
        raise BadInput(
            f"data must be a folder, but {shown(path)} is an archive. Unpack it first, then give the folder."
        )
    if ending in _PICKLES:
        raise BadInput(
            f"{shown(path)} is a pickle, which is not loaded because unpickling can run any code. Save the arrays with "
            "numpy.savez_compressed(path, x=images, y=labels)."
        )
    raise BadInput(f"data must be {ACCEPTED}, but {shown(path)} is another file.")
