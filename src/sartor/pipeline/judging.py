"""What a network gets right of the test images: in all, of every class, and of those that are no copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from sartor.engine.judgement import by_halves, judged, reliability, temperature
from sartor.pipeline.context import Context
from sartor.runs.directory import Run
from sartor.runs.schema import AuditFile, EvaluationFile, OriginFile

Outputs = tuple[Tensor, Tensor]  # logits and labels


def evaluated(c: Context, test: Outputs, val: Outputs | None) -> tuple[EvaluationFile, dict[str, Any]]:
    """All that evaluation.json tells, and the accuracies of it that other files repeat.

    The temperature is fitted on the validation images; where these were trained on (None), on each half of the test's
    to judge the other.
    """
    logits, labels = test
    if val is None:
        heat, scaled = by_halves(c.task, logits, labels)
    else:
        heat = temperature(c.task, *val)
        scaled = logits / heat
    trust = reliability(c.task, logits, scaled, labels, heat, "test, by halves" if val is None else "validation")
    told = judged(logits, labels, c.images, c.splits.test, c.task, c.images.class_names, trust)
    found: dict[str, Any] = {
        "test_accuracy": told.value, "per_class": told.per_class,
        "balanced_accuracy": float(np.mean([value for value in told.per_class if value is not None])),
    }  # fmt: skip
    leaks = seen(c.run)
    unseen = torch.from_numpy(~np.isin(c.splits.test, leaks)).to(logits.device)
    if leaks and unseen.any():
        found["unseen_accuracy"] = c.task.measure(logits[unseen], labels[unseen])
    return told, found


def seen(run: Run) -> list[int]:
    """Test images that equal, or nearly, one that was trained on, here or where the network's weights come from."""
    found: set[int] = set()
    if (run.path / AuditFile.NAME).is_file():
        found |= {*run.load(AuditFile).leaks}
    if (run.path / OriginFile.NAME).is_file():
        found |= {*run.load(OriginFile).test}
    return sorted(found)
