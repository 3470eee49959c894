"""A network's outputs on images that it was not trained on, judged: classes, confusions, mistakes, calibration."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.optimize import minimize_scalar
from torch import Tensor

from sartor.core.task import Labels, Task
from sartor.data.base import Images, Index
from sartor.data.labels import counts
from sartor.runs.schema import EvaluationFile, Mistake, Reliability

_GROUPS, _EACH = 10, 10  # groups of images that are about equally sure, and the least images of each
_MISTAKES, _SIDE = 16, 64  # pictures, and their pixels
_PRIOR = math.log(2.0)  # deviation of the logarithm of a temperature; where all is right, the images alone have no end
Floats = NDArray[np.float32]


def temperature(task: Task, logits: Tensor, labels: Tensor) -> float:
    """The divisor of the logits with which probabilities fit these images best: one number, the order stays.

    Guo et al. 2017 (arXiv:1706.04599), with a weak prior around 1.
    """
    logits, labels = logits.detach().double().cpu(), labels.cpu()

    def surprise(t: float) -> float:
        likelihood = float(task.likelihood(logits / math.exp(t), labels).mean())
        return (t / _PRIOR) ** 2 / (2 * len(logits)) - likelihood

    return math.exp(minimize_scalar(surprise, bounds=(-3.0, 3.0), method="bounded").x)


def by_halves(task: Task, logits: Tensor, labels: Tensor) -> tuple[float, Tensor]:
    """A temperature for all, and every image's logits divided by that of the half that it does not belong to.

    So images that must serve for both are never judged with a temperature that they were part of.
    """
    scaled, halves = logits.detach().double().cpu().clone(), (slice(0, None, 2), slice(1, None, 2))
    if len(logits) < 2:
        return 1.0, scaled
    fitted = [temperature(task, logits[half], labels[half]) for half in halves]
    for half, other in zip(halves, reversed(fitted), strict=True):
        scaled[half] /= other
    return temperature(task, logits, labels), scaled


def reliability(
    task: Task, logits: Tensor, scaled: Tensor, labels: Tensor, divisor: float, fitted_on: str
) -> Reliability:
    """How often what was said with a probability came true; `scaled` are the logits with a temperature."""
    sides = []
    for found in (logits, scaled):
        chances = task.probabilities(found.detach().double().cpu().numpy())
        chance, true = task.believed(chances, labels.cpu().numpy())
        order = np.argsort(chance, kind="stable")
        groups = np.array_split(order, max(1, min(_GROUPS, len(order) // _EACH)))
        promised, kept = ([float(values[g].mean()) for g in groups] for values in (chance, true))
        size = [len(g) for g in groups]
        error = 100.0 * float(np.average(np.abs(np.subtract(promised, kept)), weights=size))
        sides.append((tuple(promised), tuple(kept), error))
    return Reliability(divisor, fitted_on, tuple(size), *sides[0], *sides[1])


def judged(
    logits: Tensor, labels: Tensor, images: Images, index: Index, task: Task, names: Sequence[str], trust: Reliability
) -> EvaluationFile:
    """All that evaluation.json tells of the images at `index`, which gave these logits; `names` are the classes'."""
    truth, found = labels.cpu().numpy(), logits.detach().float().cpu()
    chances = task.probabilities((found / trust.temperature).numpy())
    return EvaluationFile(
        metric=task.metric, value=task.measure(found, labels.cpu()), images=len(index), classes=tuple(names),
        counts=tuple(counts(truth, task.classes).tolist()), per_class=tuple(task.by_class(found, labels.cpu())),
        confusion=_confusion(task, chances, truth), reliability=trust,
        mistakes=tuple(_mistakes(task, chances, truth, images, index)),
        right=None if truth.ndim > 1 else np.packbits(chances.argmax(1) == truth).tobytes().hex(),
    )  # fmt: skip


def _confusion(task: Task, chances: Floats, truth: Labels) -> tuple[tuple[int, int, int], ...] | None:
    """What is not zero of the table of classes against answers."""
    if truth.ndim != 1:
        return None
    pairs, times = np.unique(truth * task.classes + chances.argmax(1), return_counts=True)
    return tuple((int(p) // task.classes, int(p) % task.classes, int(n)) for p, n in zip(pairs, times, strict=True))


def _mistakes(task: Task, chances: Floats, truth: Labels, images: Images, index: Index) -> list[Mistake]:
    """The images that were wrong with the greatest probability; of several labels, those with the worst one."""
    if truth.ndim == 1:
        said, shown = chances.argmax(1)[:, None] == np.arange(task.classes), truth[:, None] == np.arange(task.classes)
    else:
        said, shown = chances > 0.5, truth > 0.5
    sure = np.where(said, chances, 1 - chances) * (said != shown)  # of every wrong decision
    if truth.ndim == 1:
        sure = sure * said
    worst = sure.max(1)
    found = []
    for k in np.argsort(-worst, kind="stable")[:_MISTAKES]:
        if worst[k] > 0:
            picture = _picture(images.pixels(index[k : k + 1])[0])
            name = images.files[index[k]] if len(images.files) else f"image {index[k]}"
            right, answer = (tuple(np.flatnonzero(row[k]).tolist()) for row in (shown, said))
            found.append(Mistake(name, right, answer, float(worst[k]), picture))
    return found


def _picture(pixels: Tensor) -> str:
    """A small JPEG in base64; nothing of images that are neither grey nor of three colours."""
    if len(pixels) not in (1, 3):
        return ""
    array = pixels.to(torch.uint8).numpy()
    image, file = Image.fromarray(array.transpose(1, 2, 0) if len(array) == 3 else array[0]), io.BytesIO()
    image.thumbnail((_SIDE, _SIDE))
    image.save(file, "JPEG", quality=80)
    return base64.b64encode(file.getvalue()).decode("ascii")
