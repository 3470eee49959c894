"""What a network is for: what its outputs mean, how they are trained and judged, and images of which shape.

Nothing else in Sartor knows what a label is. torch is imported where it computes, so that `import sartor` stays light.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput, RunError

if TYPE_CHECKING:
    from torch import Tensor

Labels = NDArray[np.int64] | NDArray[np.float32]  # of all images, as the task says
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Task:
    """One of `classes` for every image of ``channels x image x image`` pixels; labels are its number, int64 (B,)."""

    classes: int
    image: int
    channels: int = 3

    kind: ClassVar[str] = "single-label"
    metric: ClassVar[str] = "accuracy"  # of a whole split, in percent: `measure`
    outcome: ClassVar[str] = "accuracy"  # the mean of `right`; a metric need not be a mean over images
    output: ClassVar[str] = "logits; softmax over the last axis gives probabilities"

    def __post_init__(self) -> None:
        for name, most in (("classes", 1_000_000), ("image", 16_384), ("channels", 4_096)):
            if not 1 <= getattr(self, name) <= most:
                raise BadInput(f"{name} must be 1 to {most}, but got {getattr(self, name)}.")

    def to_json(self) -> dict[str, Any]:
        """For the files of a run."""
        return {**asdict(self), "kind": self.kind}

    @staticmethod
    def variant(data: Mapping[str, Any]) -> type[Task]:
        """The kind of task that `to_json` wrote; runs older than the second kind say nothing of it."""
        kind = data.get("kind", Task.kind)
        if not isinstance(kind, str) or kind not in KINDS:
            raise RunError(f"a task must be {' or '.join(KINDS)}, but is {kind!r}. Install a newer Sartor.")
        return KINDS[kind]

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0, weights: Tensor | None = None) -> Tensor:
        """Cross-entropy with label smoothing, the mean over the images; `weights` are those of `balance`."""
        from torch.nn.functional import cross_entropy

        if weights is None:
            return cross_entropy(_full(logits), labels, label_smoothing=smoothing)
        total = cross_entropy(_full(logits), labels, weights, label_smoothing=smoothing, reduction="sum")
        return total / len(logits)

    def balance(self, labels: Labels) -> Floats:
        """A weight for every class with which all weigh alike in the loss, however many images each has."""
        counts = np.bincount(np.asarray(labels, np.int64), minlength=self.classes)
        return np.asarray(len(labels) / (self.classes * np.maximum(counts, 1)), np.float32)

    def imitation(self, logits: Tensor, teacher: Tensor, heat: float = 1.0) -> Tensor:
        """``KL(teacher || student)``, the mean over the images; both softened by the temperature `heat`.

        Its square keeps the gradients as large as at temperature 1 (Hinton et al., arXiv:1503.02531, section 2).
        """
        from torch.nn.functional import kl_div, log_softmax

        student, target = log_softmax(logits.float() / heat, 1), log_softmax(teacher.float() / heat, 1)
        return heat**2 * kl_div(student, target, reduction="batchmean", log_target=True)

    def right(self, logits: Tensor, labels: Tensor) -> Tensor:
        """For every image whether it is classified correctly, bool (B,)."""
        return logits.argmax(1) == labels

    def likelihood(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The logarithm of the right class's probability for every image, float64 (B,)."""
        return logits.double().log_softmax(1).gather(1, labels[:, None])[:, 0]

    def measure(self, logits: Tensor, labels: Tensor) -> float:
        """`metric` over all images of a split."""
        return 100.0 * float(self.right(logits, labels).cpu().numpy().mean())

    def guess(self, labels: Labels) -> float:
        """`metric` of the best answer that does not look at the images."""
        return 100.0 * float(np.bincount(np.asarray(labels, np.int64)).max()) / len(labels)

    def by_class(self, logits: Tensor, labels: Tensor) -> list[float | None]:
        """`metric` of the images of every class in percent; None of a class without any."""
        right, truth = self.right(logits, labels).cpu().numpy(), labels.cpu().numpy()
        shown = [self.members(truth, k) for k in range(self.classes)]
        return [100.0 * float(right[mask].mean()) if mask.any() else None for mask in shown]

    def probabilities(self, logits: Floats) -> Floats:
        """What exported logits (B, classes) say of every class."""
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)

    def believed(self, chances: Floats, labels: Labels) -> tuple[Floats, NDArray[np.bool_]]:
        """The probability of what would be answered, image by image, and whether it is true."""
        return chances.max(1), chances.argmax(1) == labels

    def members(self, labels: Labels, number: int) -> NDArray[np.bool_]:
        """Which images show class `number`."""
        return np.asarray(labels == number)

    def random_labels(self, rng: np.random.Generator, count: int) -> Labels:
        """Labels that mean nothing, for searches without data."""
        return rng.integers(self.classes, size=count)


@dataclass(frozen=True, slots=True)
class MultiLabel(Task):
    """Any number of `classes` for every image: a decision each, apart; labels are 0 or 1, float32 (B, classes)."""

    kind: ClassVar[str] = "multi-label"
    metric: ClassVar[str] = "mean average precision"
    outcome: ClassVar[str] = "right decisions"
    output: ClassVar[str] = "logits; the sigmoid of each gives the probability of its label"

    def loss(self, logits: Tensor, labels: Tensor, smoothing: float = 0.0, weights: Tensor | None = None) -> Tensor:
        """Binary cross-entropy: the sum over the labels, which is the likelihood's, the mean over the images."""
        from torch.nn.functional import binary_cross_entropy_with_logits as entropy

        target = labels * (1 - smoothing) + smoothing / 2
        return entropy(_full(logits), target, reduction="sum", pos_weight=weights) / len(labels)

    def balance(self, labels: Labels) -> Floats:
        """For every label a weight of the images that have it with which they weigh as much as those without."""
        having = np.clip((labels > 0.5).sum(0), 1, None)
        return np.asarray(np.maximum(len(labels) - having, 1) / having, np.float32)

    def imitation(self, logits: Tensor, teacher: Tensor, heat: float = 1.0) -> Tensor:
        """``KL(teacher || student)`` of every label's yes or no, summed over the labels, the mean over the images."""
        from torch.nn.functional import logsigmoid

        total = logits.float().new_zeros(())
        for sign in (1, -1):
            theirs, mine = logsigmoid(sign * teacher.float() / heat), logsigmoid(sign * logits.float() / heat)
            total = total + (theirs.exp() * (theirs - mine)).sum()
        return heat**2 * total / len(logits)

    def right(self, logits: Tensor, labels: Tensor) -> Tensor:
        """For every image the share of its decisions that are right, float64 (B,)."""
        return ((logits > 0) == (labels > 0.5)).double().mean(1)

    def likelihood(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The mean over the labels of the logarithm of the right decision's probability, float64 (B,)."""
        from torch.nn.functional import logsigmoid

        return logsigmoid(logits.double() * (2 * labels.double() - 1)).mean(1)

    def measure(self, logits: Tensor, labels: Tensor) -> float:
        """The mean over the labels of the area under precision and recall; labels that no image has are left out."""
        shown = [value for value in self.by_class(logits, labels) if value is not None]
        return float(np.mean(shown)) if shown else 0.0

    def guess(self, labels: Labels) -> float:
        """The mean share of the images that have a label: the area under a constant answer's precision and recall."""
        shares = (labels > 0.5).mean(0)
        return 100.0 * float(shares[shares > 0].mean()) if (shares > 0).any() else 0.0

    def by_class(self, logits: Tensor, labels: Tensor) -> list[float | None]:
        """The area under precision and recall of every label in percent."""
        found, truth = logits.float().cpu().numpy(), labels.cpu().numpy() > 0.5
        return [100.0 * average_precision(found[:, k], has) if has.any() else None for k, has in enumerate(truth.T)]

    def probabilities(self, logits: Floats) -> Floats:
        """What exported logits (B, classes) say of every label, each for itself."""
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)), np.float32)

    def believed(self, chances: Floats, labels: Labels) -> tuple[Floats, NDArray[np.bool_]]:
        """The probability of every label of every image, and whether the image has it."""
        return chances.ravel(), labels.ravel() > 0.5

    def members(self, labels: Labels, number: int) -> NDArray[np.bool_]:
        """Which images have label `number`."""
        return np.asarray(labels[:, number] > 0.5)

    def random_labels(self, rng: np.random.Generator, count: int) -> Labels:
        """Labels that mean nothing, for searches without data."""
        return rng.integers(2, size=(count, self.classes)).astype(np.float32)


KINDS: dict[str, type[Task]] = {kind.kind: kind for kind in (Task, MultiLabel)}


def _full(logits: Tensor) -> Tensor:
    """A loss is summed in float32 at least, whatever the network computed in."""
    return logits if logits.dtype.itemsize > 4 else logits.float()


def average_precision(scores: Floats, truth: NDArray[np.bool_]) -> float:
    """The mean over the images that have a label of the precision among all that score at least as high."""
    order = np.argsort(-scores, kind="stable")
    falling, hits = -scores[order], truth[order]
    last = np.searchsorted(falling, falling, side="right")  # images that score alike are taken together
    precision = np.cumsum(hits)[last - 1] / last
    return float(precision[hits].mean())
