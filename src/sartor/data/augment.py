"""Random changes to training batches, whole batches at a time, on whichever device holds them.

All randomness comes from the generator passed in, so a batch is a function of its pixels and its seed. Nothing waits
for the device: shapes never depend on drawn values, selections are masks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.data import rand_augment
from sartor.data.auto_augment import auto_augment
from sartor.data.base import Images, Index

# B batch, C channels, S side of the image
Strength = Literal[
    "none", "light", "cut", "cutout", "crops", "standard", "strong", "crops_strong", "auto", "auto_cutout"
]  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True, slots=True)
class Augment:
    """Crop and flip, RandAugment or AutoAugment, cut-out, random erasing; a field at 0 switches its step off."""

    pad: int = 0  # random crop after reflecting this many pixels at every border
    flip: bool = False  # left-right, half of the images
    crop: float = 0.0  # least share of the area that a random crop, resized to the whole, keeps; 0: no such crops
    rand_augment: int = 0  # operations an image (RandAugment, arXiv:1909.13719)
    magnitude: float = 9.0  # of RandAugment, 0..10
    magnitude_std: float = 0.5  # of the normal distribution around it, drawn for each image
    auto: bool = False  # AutoAugment's policy for CIFAR-10 (arXiv:1805.09501)
    cutout: float = 0.0  # side of the square, as a fraction of the image's (arXiv:1708.04552)
    erase: float = 0.0  # probability of erasing a random rectangle (arXiv:1708.04896)

    def __post_init__(self) -> None:
        shares = dict.fromkeys(("cutout", "erase"), ">= 0 <= 1")
        check(self, pad=">= 0", rand_augment=">= 0", magnitude=">= 0 <= 10", magnitude_std=">= 0", **shares)

    @classmethod
    def for_task(cls, task: Task, strength: Strength = "standard") -> Augment:
        """A preset that suits the images: grey-scale ones are not mirrored, tiny ones not distorted.

        Mirrored digits and letters are other signs; under 16 pixels a rotation or shear destroys more than it varies.
        """
        if strength not in get_args(Strength):
            raise BadInput(f"strength must be one of {', '.join(get_args(Strength))}, but is {strength!r}.")
        if strength == "none":
            return cls()
        pad, flip, small = max(1, task.image // 8), task.channels > 1, task.image < 16
        if strength == "light":
            return cls(pad=pad, flip=flip)
        if strength == "cut":
            return cls(pad=pad, flip=flip, cutout=0.25)
        if strength == "cutout":  # a square of half the side, as the papers have it
            return cls(pad=pad, flip=flip, cutout=0.5)
        if strength in ("auto", "auto_cutout"):  # the same square
            return cls(pad=pad, flip=flip, auto=not small, cutout=0.5 if strength == "auto_cutout" else 0.0)
        if strength == "crops":
            return cls(crop=0.35, flip=flip)
        if strength == "crops_strong":
            return cls(crop=0.25, flip=flip, rand_augment=0 if small else 1, cutout=0.25)
        if strength == "standard":
            return cls(pad=pad, flip=flip, rand_augment=0 if small else 1, cutout=0.0 if small else 0.25)
        return cls(pad=pad, flip=flip, rand_augment=0 if small else 2, cutout=0.25 if small else 0.5, erase=0.1)

    def __call__(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        """Augmented float32 pixels 0..255 (B, C, S, S) of uint8 ones (float ones are rounded first)."""
        if generator.device.type != pixels.device.type:
            raise BadInput(
                f"the generator must be on the images' device, but is on {generator.device}, the images on "
                f"{pixels.device}. Make it with seeds.torch(purpose, device=...)."
            )
        if pixels.dtype != torch.uint8:
            pixels = pixels.round().clamp(0, 255).to(torch.uint8)
        if self.crop:
            pixels = resized_crop(pixels, self.crop, self.flip, generator)
        elif self.pad or self.flip:
            pixels = crop_flip(pixels, self.pad, self.flip, generator)
        for _ in range(self.rand_augment):
            pixels = rand_augment.layer(pixels, self.magnitude, self.magnitude_std, generator)
        if self.auto:
            pixels = auto_augment(pixels, generator)
        out = pixels.float()
        if self.cutout:
            out = cutout(out, round(self.cutout * out.shape[-1]), generator)
        if self.erase:
            out = erase(out, self.erase, generator)
        return out


def uniform(shape: tuple[int, ...], like: Tensor, generator: torch.Generator) -> Tensor:
    """Float32 values in [0, 1) on the device of `like`."""
    return torch.rand(shape, generator=generator, device=like.device)


def crop_flip(x: Tensor, pad: int, flip: bool, generator: torch.Generator) -> Tensor:
    """Shift every image by up to `pad` pixels, reflecting at the border, and mirror half of them.

    One gather of whole pixels: exact in uint8, and nothing is padded in memory.
    """
    b, c, height, width = x.shape
    if pad >= min(height, width):
        raise BadInput(f"pad must be smaller than the image, but is {pad} for {height} x {width} pixels.")
    draw = uniform((3, b, 1), x, generator)
    shift = (draw[:2] * (2 * pad + 1)).floor().clamp_(max=2 * pad).long() - pad
    rows = torch.arange(height, device=x.device) + shift[0]
    cols = torch.arange(width, device=x.device).expand(b, width)
    if flip:
        cols = torch.where(draw[2] < 0.5, width - 1 - cols, cols)
    rows, cols = _reflect(rows, height), _reflect(cols + shift[1], width)
    where = (rows[:, :, None] * width + cols[:, None, :]).view(b, 1, height * width)
    return x.reshape(b, c, height * width).gather(2, where.expand(b, c, -1)).view(b, c, height, width)


def resized_crop(x: Tensor, least: float, flip: bool, generator: torch.Generator) -> Tensor:
    """A rectangle of `least` to all of every image's area, aspect 3/4 to 4/3, stretched to the whole; half mirrored.

    The crop of photographs (Inception, arXiv:1409.4842), bilinear, by one sampling of the batch. uint8 in and out.
    """
    draw = uniform((5, x.shape[0]), x, generator)
    area = least + (1 - least) * draw[0]
    ratio = torch.exp(math.log(4 / 3) * (2 * draw[1] - 1))
    wide, tall = (area * ratio).sqrt().clamp(max=1), (area / ratio).sqrt().clamp(max=1)
    sign = torch.where(draw[2] < 0.5, -1.0, 1.0) if flip else torch.ones_like(wide)
    left, top = (1 - wide) * (2 * draw[3] - 1), (1 - tall) * (2 * draw[4] - 1)
    zero = torch.zeros_like(wide)
    rows = torch.stack([torch.stack([sign * wide, zero, left], 1), torch.stack([zero, tall, top], 1)], 1)
    grid = F.affine_grid(rows, list(x.shape), align_corners=False)
    return (
        F.grid_sample(x.float(), grid, padding_mode="reflection", align_corners=False)
        .round_()
        .clamp_(0, 255)
        .to(torch.uint8)
    )


def mix(
    x: Tensor, y: Tensor, classes: int, share: float, rng: np.random.Generator, alpha: float = 0.3
) -> tuple[Tensor, Tensor]:
    """Mix `share` of the images with their neighbours, half by cut-mix, half by mix-up; labels become shares.

    Cut-mix (arXiv:1905.04899) puts a rectangle of the other image in, of a uniformly drawn area; mix-up
    (arXiv:1710.09412) adds both with a weight drawn from Beta(alpha, alpha). Batches are shuffled, so a neighbour is
    a random other image.
    """
    b, _, height, width = x.shape
    kind = rng.random(b)
    cut, blend = kind < share / 2, (kind >= share / 2) & (kind < share)
    area = np.where(cut, rng.random(b), 0.0)  # of the rectangle
    tall, wide = np.floor(np.sqrt(area) * height), np.floor(np.sqrt(area) * width)
    top, left = np.floor(rng.random(b) * (height - tall + 1)), np.floor(rng.random(b) * (width - wide + 1))
    mine = np.where(blend, rng.beta(alpha, alpha, b), 1.0 - tall * wide / (height * width))
    numbers = torch.from_numpy(np.stack([top, left, tall, wide, mine, blend]).astype(np.float32)).to(x.device)
    boxes, weight, blended = numbers[:4, :, None], numbers[4], numbers[5]
    other = x.roll(1, 0)
    keep = torch.where(blended > 0, weight, 1.0)[:, None, None, None]
    x = torch.where(_box(x, *boxes), other, keep * x + (1 - keep) * other)
    labels = F.one_hot(y, classes).float() if y.ndim == 1 else y
    return x, weight[:, None] * labels + (1 - weight[:, None]) * labels.roll(1, 0)


def _reflect(i: Tensor, size: int) -> Tensor:
    """Indices up to size - 1 outside 0..size-1, mirrored at the border pixels."""
    return (size - 1) - ((size - 1) - i.abs()).abs()


def cutout(x: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Replace a square with a uniformly drawn centre by the image's mean; the part outside the image is cut off."""
    height, width = x.shape[-2:]
    draw = uniform((2, x.shape[0], 1), x, generator)
    top = (draw[0] * height).floor() - side // 2
    left = (draw[1] * width).floor() - side // 2
    return torch.where(_box(x, top, left, side, side), x.mean((2, 3), keepdim=True), x)


def erase(x: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Replace a rectangle (2 % to a third of the area, aspect 0.3 to 3.3) by a random colour, with `probability`."""
    b, c, height, width = x.shape
    draw = uniform((5, b, 1), x, generator)
    area = (0.02 + (1 / 3 - 0.02) * draw[0]) * (height * width)
    ratio = torch.exp(math.log(0.3) + (math.log(1 / 0.3) - math.log(0.3)) * draw[1])
    tall = (area * ratio).sqrt().round().clamp(1, height)
    wide = (area / ratio).sqrt().round().clamp(1, width)
    top, left = (draw[2] * (height - tall + 1)).floor(), (draw[3] * (width - wide + 1)).floor()
    box = _box(x, top, left, tall, wide) & (draw[4] < probability)[:, :, None, None]
    return torch.where(box, (uniform((b, c, 1, 1), x, generator) * 256).floor().clamp_(max=255), x)


def _box(x: Tensor, top: Tensor, left: Tensor, tall: Tensor | int, wide: Tensor | int) -> Tensor:
    """A mask (B, 1, H, W) of one rectangle an image; corners are (B, 1)."""
    rows = torch.arange(x.shape[-2], device=x.device)
    cols = torch.arange(x.shape[-1], device=x.device)
    inside_rows, inside_cols = (rows >= top) & (rows < top + tall), (cols >= left) & (cols < left + wide)
    return (inside_rows[:, :, None] & inside_cols[:, None, :])[:, None]


def statistics(images: Images, index: Index, most: int = 10_000) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of every channel, in units of 0..255, over at most `most` of the images.

    The sample is evenly spaced over `index`, so it needs no seed. A constant channel reports a deviation of 1.
    """
    count = min(len(index), most)
    chosen = np.asarray(index)[np.linspace(0, len(index) - 1, count).round().astype(np.int64)]
    total = torch.zeros(images.task.channels, dtype=torch.float64)
    square, pixels = total.clone(), 0
    for start in range(0, count, 64):
        part = images.pixels(chosen[start : start + 64])
        # The squares of a row of up to 256 pixels add up to less than 2^24, which single precision holds exactly.
        rows = part.float() if part.shape[-1] <= 256 else part.double()
        total += rows.sum(3).double().sum((0, 2))
        square += rows.square_().sum(3).double().sum((0, 2))
        pixels += part[:, 0].numel()
    mean = total / pixels
    std = (square / pixels - mean.square()).clamp(min=0).sqrt()
    if (std < 1e-3).all():
        colour = ", ".join(f"{m:.0f}" for m in mean.tolist())
        raise BadInput(
            f"the training images must show something, but all {len(index)} are one plain colour ({colour} of 255). "
            "Look at the files: they may be empty, or masks instead of photos."
        )
    std = torch.where(std < 1e-3, torch.ones_like(std), std)
    return tuple(mean.tolist()), tuple(std.tolist())
