"""AutoAugment's policy for CIFAR-10 (arXiv:1805.09501): every image meets one of 25 pairs of operations.

An operation happens with its own probability, at a strength of 0..9; where there is a direction, either is as likely.
The operations are RandAugment's; all images pass all of them, and masks decide, since nothing says beforehand how many
draw which.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sartor.data.rand_augment import GROUPS, NUMBER

_Step = tuple[str, float, int]  # operation, probability, strength
_INVERT = "solarize"  # from the darkest value on
POLICY: tuple[tuple[_Step, _Step], ...] = (
    ((_INVERT, 0.1, 9), ("contrast", 0.2, 6)), (("rotate", 0.7, 2), ("translate-x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)), (("shear-y", 0.5, 8), ("translate-y", 0.7, 9)),
    (("autocontrast", 0.5, 8), ("equalize", 0.9, 2)), (("shear-y", 0.2, 7), ("posterize", 0.3, 7)),
    (("colour", 0.4, 3), ("brightness", 0.6, 7)), (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)), (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("colour", 0.7, 7), ("translate-x", 0.5, 8)), (("equalize", 0.3, 7), ("autocontrast", 0.4, 8)),
    (("translate-y", 0.4, 3), ("sharpness", 0.2, 6)), (("brightness", 0.9, 6), ("colour", 0.2, 8)),
    (("solarize", 0.5, 2), (_INVERT, 0.0, 9)), (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)), (("colour", 0.9, 9), ("equalize", 0.6, 6)),
    (("autocontrast", 0.8, 4), ("solarize", 0.2, 8)), (("brightness", 0.1, 3), ("colour", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 3)), (("translate-y", 0.9, 9), ("translate-y", 0.7, 9)),
    (("autocontrast", 0.9, 2), ("solarize", 0.8, 3)), (("equalize", 0.8, 8), (_INVERT, 0.1, 9)),
    (("translate-y", 0.7, 9), ("autocontrast", 0.9, 1)),
)  # fmt: skip
_TABLE = [[(float(NUMBER[name]), chance, level / 9) for name, chance, level in pair] for pair in POLICY]


def auto_augment(x: Tensor, generator: torch.Generator) -> Tensor:
    """Both operations of a drawn pair on every image of uint8 `x` (B, C, H, W)."""
    draw = torch.rand((5, x.shape[0]), generator=generator, device=x.device)
    pair = (draw[0] * len(POLICY)).long().clamp_(max=len(POLICY) - 1)
    drawn = torch.tensor(_TABLE).to(x.device, non_blocking=True)[pair]
    for step in range(2):
        number, chance, level = drawn[:, step].unbind(1)
        operation = torch.where(draw[1 + step] < chance, number, float(NUMBER["identity"])).long()
        sign = torch.where(draw[3 + step] < 0.5, -1.0, 1.0)
        for first, last, apply in GROUPS:
            mine = ((operation >= first) & (operation <= last))[:, None, None, None]
            x = torch.where(mine, apply(x, operation, level, sign), x)
    return x
