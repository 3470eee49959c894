"""What a student learns from a teacher's features (BINAS, as PAPERS.md A1 settles it); the rest is the task's."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor


def feature_loss(features: Sequence[Tensor], teacher: Sequence[Tensor], scale: float = 1 / 50) -> Tensor:
    """``scale`` times the mean squared error of the features, summed over the stem and the stages."""
    errors = [F.mse_loss(mine.float(), theirs.float()) for mine, theirs in zip(features, teacher, strict=True)]
    total = errors[0]
    for error in errors[1:]:
        total = total + error
    return scale * total
