"""Images held in memory: numpy arrays, `.npz` files, and scikit-learn's digits."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sartor.core.errors import BadInput, require
from sartor.core.task import Task
from sartor.data.base import Images, Index, Skipped

LEAST_SIDE = 8  # pixels: the smallest image the spaces are built for
_GPU_SHARE = 0.4  # of a GPU's free memory that the pixels may take
_LAYOUTS = "(N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W)"


@final
class Arrays(Images):
    """All images as one uint8 tensor (N, C, S, S)."""

    def __init__(
        self,
        pixels: Tensor,
        labels: Index,
        class_names: Sequence[str],
        *,
        name: str,
        test: Index | None = None,
        skipped: Sequence[Skipped] = (),
    ) -> None:
        n, channels, side, width = pixels.shape
        assert pixels.dtype == torch.uint8
        assert (side, n) == (width, len(labels))
        self.name = name
        self.task = Task(classes=len(class_names), image=side, channels=channels)
        self.class_names = tuple(class_names)
        self.labels = labels
        self.test = test
        self.skipped = tuple(skipped)
        self._pixels = pixels.contiguous()
        self._copies: dict[torch.device, Tensor] = {}

    def pixels(self, index: Index) -> Tensor:
        """The images at `index`, a copy."""
        return self._pixels.index_select(0, torch.from_numpy(np.ascontiguousarray(index, np.int64)))

    def resident(self, device: str | torch.device) -> Tensor | None:
        """All pixels on `device`, copied there once; None where they would crowd out the training."""
        device = torch.device(device)
        if device.type == "cpu":
            return self._pixels
        if device not in self._copies:
            if device.type == "cuda" and self._pixels.nbytes > _GPU_SHARE * torch.cuda.mem_get_info(device)[0]:
                return None
            self._copies[device] = self._pixels.to(device)
        return self._copies[device]

    def digest(self) -> str:
        """sha256 over every pixel, label, class name and test index."""
        return pixel_digest(self._pixels, self.labels, self.class_names, self.test)


def pixel_digest(pixels: Tensor, labels: Index, class_names: Sequence[str], test: Index | None) -> str:
    """sha256 over shape, pixels, labels, class names and the indices of the source's own test images."""
    sha = hashlib.sha256(repr((tuple(pixels.shape), tuple(class_names))).encode())
    for start in range(0, len(pixels), 4096):  # in pieces: no second copy of the data set in memory
        sha.update(pixels[start : start + 4096].contiguous().numpy().data)
    sha.update(np.ascontiguousarray(labels, np.int64).tobytes())
    sha.update(b"test" + (b"" if test is None else np.ascontiguousarray(test, np.int64).tobytes()))
    return sha.hexdigest()


def from_arrays(
    x: Any,
    y: Any,
    *,
    name: str = "arrays",
    classes: Sequence[str] | None = None,
    x_test: Any = None,
    y_test: Any = None,
    image: int | None = None,
) -> Arrays:
    """Check arrays and make them one source; `x_test` and `y_test` become its own test split."""
    pixels, values = _as_tensor(x, f"{name}: x"), _as_labels(y, f"{name}: y")
    _same_length(pixels, values, name, "x", "y")
    test: Index | None = None
    if (x_test is None) != (y_test is None):
        raise BadInput(f"{name}: x_test and y_test belong together, but only one of them was given. Give both or none.")
    if x_test is not None:
        more, more_values = _as_tensor(x_test, f"{name}: x_test"), _as_labels(y_test, f"{name}: y_test")
        _same_length(more, more_values, name, "x_test", "y_test")
        if more.shape[1:] != pixels.shape[1:]:
            raise BadInput(
                f"{name}: test images must have the shape of the others (channels, height, width) = "
                f"{tuple(pixels.shape[1:])}, but have {tuple(more.shape[1:])}. Resize or convert one of the two."
            )
        test = np.arange(len(pixels), len(pixels) + len(more), dtype=np.int64)
        pixels, values = torch.cat([pixels, more]), np.concatenate([values, more_values])
    labels, names = _named(values, classes, name)
    return Arrays(fit_square(pixels, image), labels, names, name=name, test=test)


def from_npz(path: Path, image: int | None = None) -> Arrays:
    """One `.npz` file: x, y, and optionally classes, x_test and y_test, or split (0 / 'train' or 1 / 'test')."""
    held = read_npz(path)
    x, y, x_test, y_test = held["x"], held["y"], held.get("x_test"), held.get("y_test")
    if "split" in held and x_test is None:
        is_test = _test_mask(held["split"], len(x), path)
        if is_test.any():
            x, x_test, y, y_test = x[~is_test], x[is_test], y[~is_test], y[is_test]
    return from_arrays(x, y, name=path.name, classes=_class_list(held), x_test=x_test, y_test=y_test, image=image)


def from_npz_parts(train: Sequence[Path], test: Sequence[Path], name: str, image: int | None = None) -> Arrays:
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


def digits(image: int | None = None) -> Arrays:
    """scikit-learn's 1,797 handwritten digits, 8 x 8, one channel; values 0..16 scaled to 0..255."""
    require("sklearn", "digits")
    held = require("sklearn.datasets", "digits").load_digits()
    x = np.rint(np.asarray(held.images) * (255.0 / 16.0)).astype(np.uint8)
    return from_arrays(x, np.asarray(held.target, np.int64), name="digits", image=image)


def check_side(image: int | None) -> int | None:
    """Refuse a side that no network here is built for."""
    if image is not None and not LEAST_SIDE <= image <= 1024:
        raise BadInput(f"the image side must be {LEAST_SIDE} to 1024 pixels, but is {image}. Choose another size.")
    return image


def fit_square(pixels: Tensor, side: int | None) -> Tensor:
    """Shorter side to `side` (antialiased; None keeps it), then the centre square. uint8 (N, C, H, W) in and out."""
    height, width = pixels.shape[-2:]
    shorter = min(height, width)
    side = check_side(side if side is not None else max(shorter, LEAST_SIDE))
    assert side is not None
    if shorter != side:
        target = (round(height * side / shorter), round(width * side / shorter))
        out = torch.empty((*pixels.shape[:2], *target), dtype=torch.uint8)
        for start in range(0, len(pixels), 1024):  # float32 copies of a piece at a time
            piece = pixels[start : start + 1024].float()
            piece = F.interpolate(piece, target, mode="bilinear", antialias=True, align_corners=False)
            out[start : start + 1024] = piece.round_().clamp_(0, 255).to(torch.uint8)
        pixels = out
    top, left = (pixels.shape[-2] - side) // 2, (pixels.shape[-1] - side) // 2
    return pixels[..., top : top + side, left : left + side].contiguous()


def _as_tensor(x: Any, what: str) -> Tensor:
    """uint8 (N, C, H, W) from any accepted layout."""
    if isinstance(x, Tensor):
        x = x.detach().cpu().numpy()
    array = np.asarray(x)
    if array.dtype != np.uint8:
        hint = "multiply by 255 and convert with .astype('uint8')" if array.dtype.kind == "f" else "convert to uint8"
        raise BadInput(f"{what} must hold uint8 values 0..255, but holds {array.dtype}: {hint} first.")
    if array.ndim == 3:
        array = array[:, None]
    elif array.ndim == 4 and array.shape[-1] in (1, 3):
        array = array.transpose(0, 3, 1, 2)
    elif array.ndim != 4 or array.shape[1] not in (1, 3):
        raise BadInput(f"{what} must have the shape {_LAYOUTS}, but has {array.shape}. Transpose or convert it.")
    if array.size == 0:
        raise BadInput(f"{what} must hold at least one image, but has the shape {array.shape}.")
    return torch.from_numpy(np.array(array, order="C"))  # a copy: the caller's array may change later


def _as_labels(y: Any, what: str) -> Index:
    if isinstance(y, Tensor):
        y = y.detach().cpu().numpy()
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise BadInput(
            f"{what} must hold one integer a picture, but has the shape {array.shape} and type {array.dtype}. "
            "Number the classes 0, 1, 2, ..."
        )
    return array.astype(np.int64)


def _same_length(pixels: Tensor, labels: Index, name: str, x: str, y: str) -> None:
    if len(pixels) != len(labels):
        raise BadInput(
            f"{name}: {x} and {y} must be equally long, but hold {len(pixels)} images, {len(labels)} labels."
        )


def _named(values: Index, classes: Sequence[str] | None, name: str) -> tuple[Index, tuple[str, ...]]:
    """Labels 0..K-1 and their names; without names the distinct values themselves are the names."""
    if classes is None:
        distinct, labels = np.unique(values, return_inverse=True)
        names = tuple(str(value) for value in distinct)
    else:
        names, labels = tuple(classes), values
        if values.min() < 0 or values.max() >= len(names):
            raise BadInput(
                f"{name}: labels must lie in 0..{len(names) - 1}, the positions in `classes`, but range from "
                f"{values.min()} to {values.max()}. Correct y or classes."
            )
    if len(names) < 2:
        raise BadInput(f"{name} must hold at least two classes, but all labels are {names[0]!r}. Add another class.")
    return labels.astype(np.int64).reshape(-1), names


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
