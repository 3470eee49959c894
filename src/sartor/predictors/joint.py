"""All decisions at once: what each adds to the accuracy, from one set of fully random paths.

Each validation image runs through several networks drawn uniformly; an outcome (right or wrong, or
the probability of the right class) then speaks about every decision on its path, where the paper's
protocol spends a validation epoch on each decision alone.

Two estimators. *Least squares*, the method's own, in the basis of equation 4: the contributions whose sum over a
network's active decisions comes nearest to its accuracy, from every path on which a block runs; where the accuracy is
such a sum, they are its terms. *Conditional means* are the paths that meet equation 3's condition. Against their
context (the same depth) they have the same limit for such an accuracy. Against E[Acc], as equation 3 is printed, a
block's contribution holds that of the depth it is measured at as well, and the sum counts the depth again for every
block that it switches on: on a planted sum in BINAS's space its predictions spread 1.3 times as far as the truth, and
rank it at a Kendall correlation of 0.84, however long one measures. ``estimator="paper"`` is that.

An image's difficulty is most of an outcome's variance and tells nothing about decisions. The mean
over the image's *other* paths is independent of the path at hand, so that any multiple of it may be
subtracted without bias; the multiple that removes most variance is the regression coefficient.

Errors are cluster-robust: outcomes of one image may be correlated in any way, images are independent. Where the
question is how well *these* images were measured, every path stands for itself instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from sartor.core.arch import Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Array, Quadratic
from sartor.core.threads import on_one_thread
from sartor.predictors.base import Index, check_samples
from sartor.predictors.contributions import Condition, assemble, entries
from sartor.predictors.linear import contribution_features
from sartor.predictors.regression import Regression

How = Literal["least squares", "means"]
Against = Literal["context", "everything"]
Redrawn = Literal["images", "paths"]


def estimate_jointly(
    choices: Sequence[Choice],
    picks: ArrayLike,
    images: ArrayLike,
    outcomes: ArrayLike,
    *,
    how: How = "least squares",
    against: Against = "context",
    control: bool = True,
    weights: ArrayLike | None = None,
) -> Quadratic:
    """The bilinear score of equation 4, with standard errors, in the outcomes' own unit.

    `picks` is (n, choices), `images` the n ids of the images, `outcomes` the n results; `weights`,
    for least squares only, how much every outcome counts. `against` says what the mean under a condition
    is compared with. ``everything`` is E[Acc], as printed in equation 3: a block that needs a depth
    then carries the depth's own contribution too, which the sum counts again. ``context`` is the
    mean under the same condition but for the decision itself, which counts everything once.
    """
    if how not in ("least squares", "means"):
        raise BadInput(f"how must be 'least squares' or 'means', but got {how!r}.")
    paths = Paths(choices, picks, images, weights)
    if how == "means":
        y, level = paths.prepare(outcomes, control)
        return _means(choices, paths.sizes, paths.picks, y, paths.clusters, against, level)
    return paths.estimate(outcomes, control=control)


class Paths:
    """Random paths of images, ready for several kinds of outcomes; see `estimate_jointly`."""

    def __init__(
        self, choices: Sequence[Choice], picks: ArrayLike, images: ArrayLike, weights: ArrayLike | None = None
    ) -> None:
        self.choices = choices
        self.picks, ones, self.sizes = check_samples(picks, np.ones(len(np.asarray(picks))), choices)
        self.clusters: Index = np.unique(np.asarray(images), return_inverse=True)[1].reshape(-1)
        if len(self.clusters) != len(ones):
            raise BadInput(f"every path needs the id of its image, but got {len(self.clusters)} ids of {len(ones)}.")
        if self.clusters.max() < 1:
            raise BadInput("standard errors need outcomes of at least 2 images.")
        self.weights = ones if weights is None else np.asarray(weights, np.float64)
        self.features = contribution_features(choices)

    @cached_property
    def regression(self) -> Regression:
        """Everything about least squares that is the same for all outcomes."""
        return Regression(self.features.design(self.picks), self.features.contrasts(), self.weights)

    @on_one_thread
    def estimate(self, outcomes: ArrayLike, *, control: bool = True, redrawn: Redrawn = "images") -> Quadratic:
        """Least squares. Its errors are those that drawing again would show: other images, or paths for the same."""
        y, level = self.prepare(outcomes, control)
        found = self.regression.fit(y, clusters=self.clusters if redrawn == "images" else None)
        return self.features.quadratic(found.constant, found.weights, (level, found.errors))

    def prepare(self, outcomes: ArrayLike, control: bool) -> tuple[Array, float]:
        """The outcomes, without their images' difficulty if wanted, and the error of their mean."""
        _, y, _ = check_samples(self.picks, outcomes, self.choices)
        # Of the constant alone the images' difficulty is part: other images would give another one.
        w = self.weights
        level = _length(np.bincount(self.clusters, w * (y - np.average(y, weights=w))) / w.sum())
        return (without_difficulty(y, self.clusters, w) if control else y), level


def rescale_to(score: Quadratic, picks: ArrayLike, outcomes: ArrayLike, weights: ArrayLike | None = None) -> Quadratic:
    """A score learnt from one kind of outcome in the unit of another: the line that fits `outcomes` best.

    Probabilities of the right class tell decisions apart with less noise than right or wrong does, but people ask for
    accuracy. A line changes no ranking; where the two kinds do not agree at all (a slope that is not positive) the
    contributions keep their size and only the level is the outcomes' own.
    """
    predicted, y = score.batch(picks), np.asarray(outcomes, np.float64)
    w = np.ones(len(y)) if weights is None else np.asarray(weights, np.float64)
    middle, level = (float(np.average(v, weights=w)) for v in (predicted, y))
    centred = predicted - middle
    spread = float((w * centred) @ centred)
    slope = float((w * centred) @ y) / spread if spread > 0 else 1.0
    slope = slope if slope > 0 else 1.0
    scaled = score * slope
    errors = None if score.errors is None else score.errors * slope
    constant = level + slope * (score.constant - middle)
    return replace(scaled, constant=constant, errors=errors)


def correlation(one: ArrayLike, two: ArrayLike, images: ArrayLike, weights: ArrayLike | None = None) -> float:
    """That of the errors of two scores, from two kinds of outcomes of the same paths; images stand for themselves."""
    clusters = np.unique(np.asarray(images), return_inverse=True)[1].reshape(-1)
    w = np.ones(len(clusters)) if weights is None else np.asarray(weights, np.float64)
    total = np.bincount(clusters, w)
    own = []
    for kind in (one, two):
        y = np.asarray(kind, np.float64)
        own.append(w * (y - (np.bincount(clusters, w * y) / total)[clusters]))
    length = float(np.sqrt((own[0] @ own[0]) * (own[1] @ own[1])))
    return float(own[0] @ own[1]) / length if length > 0 else 0.0


def without_difficulty(y: Array, clusters: Index, weights: Array | None = None) -> Array:
    """Outcomes less the best multiple of how the image did on its other paths; the mean stays what it was."""
    w = np.ones(len(y)) if weights is None else weights
    count = np.bincount(clusters)[clusters]
    total = np.bincount(clusters, y)[clusters]
    several, mean = count > 1, float(np.average(y, weights=w))
    others = np.full(len(y), mean)
    others[several] = (total[several] - y[several]) / (count[several] - 1)
    others -= np.average(others, weights=w)
    spread = float((w * others) @ others)
    return y - (float((w * others) @ (y - mean)) / spread if spread > 0 else 0.0) * others


def _means(
    choices: Sequence[Choice],
    sizes: tuple[int, ...],
    picks: Index,
    y: Array,
    clusters: Index,
    against: Against,
    level: float,
) -> Quadratic:
    delta, error = [], []
    for entry in entries(choices):
        inside = _meets(picks, entry.condition)
        context = tuple(c for c in entry.condition if c[0] != entry.choice) if against == "context" else ()
        around = _meets(picks, context)
        if not inside.any():
            option = choices[entry.choice].options[entry.option]
            raise BadInput(f"no path takes {choices[entry.choice].name} = {option} under its condition: add paths.")
        value, spread = _difference(y, inside, around, clusters)
        delta.append(value)
        error.append(spread)
    values = assemble(choices, sizes, float(y.mean()), np.array(delta))
    spread_of = assemble(choices, sizes, level, np.array(error))
    return Quadratic(sizes, values.constant, values.linear, values.pairs, errors=spread_of)


def _meets(picks: Index, condition: Condition) -> np.ndarray:
    good = np.ones(len(picks), bool)
    for choice, option in condition:
        good &= picks[:, choice] == option
    return good


def _difference(y: Array, inside: np.ndarray, around: np.ndarray, clusters: Index) -> tuple[float, float]:
    """The mean of `inside` less that of `around`, and its error: the images' influences are independent."""
    one, two = y[inside].mean(), y[around].mean()
    influence = np.where(inside, (y - one) / inside.sum(), 0.0) - np.where(around, (y - two) / around.sum(), 0.0)
    return float(one - two), _length(np.bincount(clusters, influence).astype(np.float64))


def _length(influence: Array) -> float:
    return float(np.sqrt(influence @ influence * len(influence) / (len(influence) - 1)))
