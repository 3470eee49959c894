"""Losses: the labels, and a teacher's outputs and features (BINAS, as PAPERS.md A1 settles it)."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor


def label_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy with label smoothing."""
    return F.cross_entropy(logits.float(), labels, label_smoothing=smoothing)


def imitation_loss(logits: Tensor, teacher: Tensor) -> Tensor:
    """``KL(teacher || student)`` at temperature 1, averaged over the batch."""
    student, target = F.log_softmax(logits.float(), 1), F.log_softmax(teacher.float(), 1)
    return F.kl_div(student, target, reduction="batchmean", log_target=True)


def feature_loss(features: Sequence[Tensor], teacher: Sequence[Tensor], scale: float = 1 / 50) -> Tensor:
    """``scale`` times the mean squared error of the features, summed over the stem and the stages."""
    errors = [F.mse_loss(mine.float(), theirs.float()) for mine, theirs in zip(features, teacher, strict=True)]
    total = errors[0]
    for error in errors[1:]:
        total = total + error
    return scale * total
