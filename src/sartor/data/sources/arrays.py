"""Images held in memory: pairs of arrays, and what other sources decode into them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar, final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from sartor.core.errors import BadInput
from sartor.core.task import Labels
from sartor.data.base import Images, Index, Skipped
from sartor.data.labels import from_array, task_for
from sartor.data.sources.base import Source, Wish

LEAST_SIDE = 8  # pixels: the smallest image the spaces are built for
_GPU_SHARE = 0.4  # of a GPU's free memory that the pixels may take
_LARGE_SHARE, _LEFT = 0.75, 24 << 30  # likewise of one that has this many bytes left for the training
_LAYOUTS = "(N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W)"


@final
class Arrays(Images):
    """All images as one uint8 tensor (N, C, S, S)."""

    def __init__(
        self,
        pixels: Tensor,
        labels: Labels,
        class_names: Sequence[str],
        *,
        name: str,
        test: Index | None = None,
        val: Index | None = None,
        skipped: Sequence[Skipped] = (),
        native: int | None = None,
        files: Sequence[str] = (),
        sizes: NDArray[np.int32] | None = None,
    ) -> None:
        n, channels, side, width = pixels.shape
        assert pixels.dtype == torch.uint8
        assert (side, n) == (width, len(labels))
        self.name = name
        self.task = task_for(labels, class_names, side, channels)
        self.class_names = tuple(class_names)
        self.labels = labels
        self.test, self.val, self.native = test, val, native
        self.skipped, self.files, self.sizes = tuple(skipped), files, sizes
        self._pixels = pixels.contiguous()
        self._copies: dict[torch.device, Tensor] = {}

    def __getstate__(self) -> dict[str, Any]:
        """For another process: without copies on devices, and as an array, since shared memory may be scarce."""
        return {**vars(self), "_pixels": self._pixels.numpy(), "_copies": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _pixels=torch.from_numpy(state["_pixels"]))

    def pixels(self, index: Index) -> Tensor:
        """The images at `index`, a copy."""
        return self._pixels.index_select(0, torch.from_numpy(np.ascontiguousarray(index, np.int64)))

    def resident(self, device: str | torch.device) -> Tensor | None:
        """All pixels on `device`, copied there once; None where they would crowd out the training."""
        device = torch.device(device)
        if device.type == "cpu":
            return self._pixels
        if device not in self._copies:
            if not room(device, self._pixels.nbytes):
                return None
            self._copies[device] = self._pixels.to(device)
        return self._copies[device]

    def digest(self) -> str:
        """sha256 over every pixel, label, class name and test index."""
        return pixel_digest(self._pixels, self.labels, self.class_names, self.test, self.val)


def room(device: torch.device, size: int) -> bool:
    """Whether a GPU has so many bytes for pixels: a share of what is free, or all of a large one but some."""
    if device.type != "cuda":
        return True
    free = torch.cuda.mem_get_info(device)[0]
    return size <= max(_GPU_SHARE * free, min(_LARGE_SHARE * free, free - _LEFT))


def pixel_digest(
    pixels: Tensor, labels: Labels, class_names: Sequence[str], test: Index | None, val: Index | None = None
) -> str:
    """sha256 over shape, pixels, labels, class names and the indices of the source's own test and validation images."""
    sha = hashlib.sha256(repr((tuple(pixels.shape), tuple(class_names))).encode())
    for start in range(0, len(pixels), 4096):  # in pieces: no second copy of the data set in memory
        sha.update(pixels[start : start + 4096].contiguous().numpy().data)
    sha.update(np.ascontiguousarray(labels).tobytes())
    sha.update(b"test" + (b"" if test is None else np.ascontiguousarray(test, np.int64).tobytes()))
    sha.update(b"" if val is None else b"val" + np.ascontiguousarray(val, np.int64).tobytes())
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
    pixels = as_tensor(x, f"{name}: x")
    y = _same_length(pixels, y, name, "x", "y")
    test: Index | None = None
    if (x_test is None) != (y_test is None):
        raise BadInput(f"{name}: x_test and y_test belong together, but only one of them was given. Give both or none.")
    if x_test is not None:
        more = as_tensor(x_test, f"{name}: x_test")
        y_test = _same_length(more, y_test, name, "x_test", "y_test")
        if more.shape[1:] != pixels.shape[1:]:
            raise BadInput(
                f"{name}: test images must have the shape of the others (channels, height, width) = "
                f"{tuple(pixels.shape[1:])}, but have {tuple(more.shape[1:])}. Resize or convert one of the two."
            )
        test = np.arange(len(pixels), len(pixels) + len(more), dtype=np.int64)
        pixels, y = torch.cat([pixels, more]), np.concatenate([y, y_test])
    labels, names = from_array(y, classes, f"{name}: y")
    native = min(pixels.shape[-2:])
    return Arrays(fit_square(pixels, image), labels, names, name=name, test=test, native=native)


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
            piece = F.interpolate(piece, target, mode="bicubic", antialias=True, align_corners=False)  # as Pillow
            out[start : start + 1024] = piece.round_().clamp_(0, 255).to(torch.uint8)
        pixels = out
    top, left = (pixels.shape[-2] - side) // 2, (pixels.shape[-1] - side) // 2
    return pixels[..., top : top + side, left : left + side].contiguous()


def as_tensor(x: Any, what: str) -> Tensor:
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


def _same_length(pixels: Tensor, y: Any, name: str, x_name: str, y_name: str) -> Any:
    """The labels as an array, one for each image."""
    array = np.asarray(y.detach().cpu() if isinstance(y, Tensor) else y)
    if array.ndim == 0 or len(pixels) != len(array):
        raise BadInput(
            f"{name}: {x_name} and {y_name} must be equally long, but hold {len(pixels)} images, {array.size} labels."
        )
    return array


@final
class Pair(Source):
    """Two arrays in memory, images and labels."""

    accepts: ClassVar[str] = "a pair of arrays (x, y)"

    def takes(self, given: object) -> bool:
        """A tuple or a list, but not of images with their labels."""
        if not isinstance(given, tuple | list):
            return False
        return not (given and all(isinstance(item, tuple | list) and len(item) == 2 for item in given))

    def open(self, given: Any, wish: Wish) -> Images:
        """As they are, or scaled to the side wished for."""
        if len(given) != 2:
            raise BadInput(f"arrays must be given as the pair (x, y), but {len(given)} were given.")
        return from_arrays(*given, image=wish.image)


PLUGIN = Pair
