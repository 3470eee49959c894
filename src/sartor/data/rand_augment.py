"""One layer of RandAugment (arXiv:1909.13719) for a whole batch: an operation an image, uniformly drawn.

Images are dealt to operations by systematic sampling: after a random order, slot i of B gets operation
``floor(K (i + u) / B)`` with one ``u ~ U[0, 1)``. Every image still meets each of the K operations with probability
1/K, but a group of neighbouring operations concerns a range of slots whose size is known beforehand. So a group works
on its share of the batch only, without asking the device how many images drew it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

# n images of a group, C channels, S side
OPERATIONS = (
    "rotate", "shear-x", "shear-y", "translate-x", "translate-y",
    "solarize", "solarize-add", "posterize", "autocontrast", "equalize",
    "colour", "contrast", "brightness", "sharpness",
    "identity",
)  # fmt: skip
NUMBER = {name: k for k, name in enumerate(OPERATIONS)}


def layer(x: Tensor, magnitude: float, spread: float, generator: torch.Generator) -> Tensor:
    """One operation an image of uint8 `x` (B, C, H, W), its strength drawn from N(magnitude, spread) within 0..10."""
    b, kinds = x.shape[0], len(OPERATIONS)
    draw = torch.rand((3, b), generator=generator, device=x.device)
    level = magnitude + spread * torch.randn(b, generator=generator, device=x.device)
    level = level.clamp_(0, 10) / 10
    sign = torch.where(draw[0] < 0.5, -1.0, 1.0)
    order = draw[1].argsort()
    slot = torch.arange(b, device=x.device) + draw[2, :1]
    operation = (slot * (kinds / b)).long().clamp_(max=kinds - 1)
    out = x.clone()
    for first, last, apply in GROUPS:
        share = slice(first * b // kinds, -(-(last + 1) * b // kinds))  # every slot that may hold one of the group
        who, drawn = order[share], operation[share]
        part = out.index_select(0, who)
        mine = ((drawn >= first) & (drawn <= last))[:, None, None, None]
        changed = apply(part, drawn, level[share], sign[share])
        out.index_copy_(0, who, torch.where(mine, changed, part))
    return out


def affine(x: Tensor, drawn: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Rotation up to 30 degrees, shear up to 0.3, shift up to 0.45 of the side; the border pixel fills what is bare."""
    amount, zero = level * sign, torch.zeros_like(level)

    def of(name: str, most: float) -> Tensor:
        return torch.where(drawn == NUMBER[name], amount * most, zero)

    angle = of("rotate", math.radians(30))
    cos, sin = angle.cos(), angle.sin()
    x_row = torch.stack([cos, of("shear-x", 0.3) - sin, of("translate-x", 0.9)], 1)  # the grid spans 2, not 1
    y_row = torch.stack([of("shear-y", 0.3) + sin, cos, of("translate-y", 0.9)], 1)
    return warp(x, torch.stack([x_row, y_row], 1))


def warp(x: Tensor, matrix: Tensor) -> Tensor:
    """Each image of uint8 `x` under its own affine map (n, 2, 3), bilinear, the border pixel repeated outside."""
    height, width = x.shape[-2:]
    across = (torch.arange(width, device=x.device) * 2 + 1) / width - 1  # pixel centres on a grid from -1 to 1
    down = (torch.arange(height, device=x.device) * 2 + 1) / height - 1
    rows = matrix[:, :, 1:2] * down + matrix[:, :, 2:3]
    grid = (matrix[:, None, None, :, 0] * across[:, None]) + rows.transpose(1, 2)[:, :, None]  # (n, H, W, 2)
    moved = F.grid_sample(x.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return to_uint8(moved)


def tone(x: Tensor, drawn: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Operations that map each value of a channel to another: one table (n, C, 256) an image, one look-up."""
    n, c = x.shape[:2]
    flat = x.flatten(2).long()
    counts = histogram(flat)
    value = torch.arange(256, device=x.device).expand(n, c, 256)

    def per_image(t: Tensor) -> Tensor:
        return t.long()[:, None, None]

    kind = per_image(drawn)
    table = torch.where(kind == NUMBER["solarize"], solarize_table(value, per_image(256 - level * 256)), value)
    table = torch.where(kind == NUMBER["solarize-add"], solarize_add_table(value, per_image(level * 110)), table)
    bits = per_image(8 - (level * 4).round())
    table = torch.where(kind == NUMBER["posterize"], posterize_table(value, bits), table)
    table = torch.where(kind == NUMBER["autocontrast"], autocontrast_table(value, counts), table)
    table = torch.where(kind == NUMBER["equalize"], equalize_table(counts), table)
    return table.to(torch.uint8).gather(2, flat).view_as(x)


def histogram(flat: Tensor) -> Tensor:
    """How often each value 0..255 occurs in each channel: int64 (n, C, 256) of int64 (n, C, H * W)."""
    one = torch.ones((1, 1, 1), dtype=torch.int64, device=flat.device)
    return torch.zeros((*flat.shape[:2], 256), dtype=torch.int64, device=flat.device).scatter_add_(
        2, flat, one.expand_as(flat)
    )


def solarize_table(value: Tensor, threshold: Tensor) -> Tensor:
    """Values from the threshold on are inverted."""
    return torch.where(value < threshold, value, 255 - value)


def solarize_add_table(value: Tensor, added: Tensor) -> Tensor:
    """Values under 128 are raised by `added`."""
    return torch.where(value < 128, (value + added).clamp(max=255), value)


def posterize_table(value: Tensor, bits: Tensor) -> Tensor:
    """The `bits` highest bits stay."""
    step = torch.ones_like(bits) << (8 - bits)
    return torch.div(value, step, rounding_mode="floor") * step


def autocontrast_table(value: Tensor, counts: Tensor) -> Tensor:
    """The darkest value of a channel becomes 0, the brightest 255; a flat channel stays."""
    present = counts > 0
    low = present.int().argmax(-1, keepdim=True)
    high = 255 - present.flip(-1).int().argmax(-1, keepdim=True)
    span = (high - low).clamp(min=1)
    stretched = torch.div((value - low) * 255, span, rounding_mode="floor").clamp(0, 255)
    return torch.where(high > low, stretched, value)


def equalize_table(counts: Tensor) -> Tensor:
    """Histogram equalisation exactly as Pillow's ImageOps.equalize, with integers only."""
    value = torch.arange(256, device=counts.device).expand_as(counts)
    high = 255 - (counts > 0).flip(-1).int().argmax(-1, keepdim=True)
    step = torch.div(counts.sum(-1, keepdim=True) - counts.gather(-1, high), 255, rounding_mode="floor")
    below = counts.cumsum(-1) - counts
    table = torch.div(below + torch.div(step, 2, rounding_mode="floor"), step.clamp(min=1), rounding_mode="floor")
    return torch.where(step > 0, table.clamp(max=255), value)


def blend(x: Tensor, drawn: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Away from or towards a degenerate image by a factor 1 +- 0.9: its grey, its grey's mean, or black."""
    kind = drawn[:, None, None, None]
    values = x.float()
    grey = luma(values)
    base = torch.where(kind == NUMBER["colour"], grey, grey.mean((2, 3), keepdim=True).round())
    base = torch.where(kind == NUMBER["brightness"], 0.0, base)
    return _away(values, base, level, sign)


def sharpen(x: Tensor, drawn: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Away from or towards the smoothed image; apart from `blend` because smoothing costs more than the rest."""
    values = x.float()
    return _away(values, smooth(values), level, sign)


def _away(values: Tensor, base: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    factor = (1 + 0.9 * level * sign)[:, None, None, None]
    return to_uint8(base + factor * (values - base))


def luma(x: Tensor) -> Tensor:
    """ITU-R 601 grey (n, 1, H, W) of float RGB; one channel is its own grey."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x.unbind(1)
    return (0.299 * red + 0.587 * green + 0.114 * blue).round()[:, None]


def smooth(x: Tensor) -> Tensor:
    """Pillow's SMOOTH filter, (sum of the 3 x 3 neighbours + 4 times the centre) / 13; the border stays."""
    out = x.clone()
    columns = x[..., :-2, :] + x[..., 1:-1, :] + x[..., 2:, :]
    around = columns[..., :-2] + columns[..., 1:-1] + columns[..., 2:]
    out[..., 1:-1, 1:-1] = (around + 4 * x[..., 1:-1, 1:-1]) / 13
    return out


def to_uint8(x: Tensor) -> Tensor:
    """Rounded and clipped."""
    return x.round_().clamp_(0, 255).to(torch.uint8)


_Apply = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
GROUPS: tuple[tuple[int, int, _Apply], ...] = ((0, 4, affine), (5, 9, tone), (10, 12, blend), (13, 13, sharpen))
