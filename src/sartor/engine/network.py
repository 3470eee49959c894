"""Training of one stand-alone network: fine-tuned from inherited weights, or from scratch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor, nn

from sartor.data.base import Splits
from sartor.engine import branches
from sartor.engine.evaluate import recalibrate
from sartor.engine.feed import Feed
from sartor.engine.fit import History, Training, fit, nothing
from sartor.engine.hands import Hands
from sartor.engine.hands import suited as hands_suited
from sartor.engine.plan import planned
from sartor.engine.recipe import Recipe
from sartor.runs.directory import Run
from sartor.spaces.supernet import StepDraw

# (the epochs that come to be) -> the recipe that suits them
Suit = Callable[[float], Recipe]


@final
@dataclass(frozen=True, eq=False)
class Teacher:
    """A trained network that another one imitates, and how: BINAS's fine-tuning is cross-entropy + 2 KL."""

    net: nn.Module
    weight: float = 2.0  # of the imitation
    labels: float = 1.0  # of the loss on the labels
    heat: float = 1.0  # the temperature
    told: str | None = None  # which network it is, and what it gets right


class Masks:
    """Which weights of a network are alive; the others are zero after every step."""

    def __init__(self, net: nn.Module, masks: Mapping[str, Tensor]) -> None:
        own = dict(net.named_parameters())
        # A layer whose weights are all alive needs no mask.
        self.pairs = [(own[n], m.to(own[n])) for n, m in masks.items() if n in own and not bool(m.all())]

    @torch.no_grad()
    def apply(self, *moment: Any) -> None:
        """Zeros where nothing is alive; after a step, whose moment does not matter."""
        for weight, mask in self.pairs:
            weight.mul_(mask)


def train_network(
    net: nn.Module, teacher: Teacher | None, recipe: Recipe, feed: Feed, splits: Splits, run: Run, name: str,
    masks: Masks | None = None, seconds: float | None = None, suit: Suit | None = None, title: str = "",
) -> History:  # fmt: skip
    """Train on the training split, imitate the teacher where there is one, then recompute batch-norm statistics.

    A network that can have an auxiliary head gets one for the time of its training, if the recipe asks for it. Where
    `masks` hold some weights at zero, they stay there. With `seconds` it is trained for a time instead of the recipe's
    epochs; `suit` makes of the epochs that come to be the recipe that is used.
    """
    head = recipe.auxiliary > 0 and hasattr(net, "attach_auxiliary")
    if head:
        net.attach_auxiliary()  # type: ignore[operator]
        feed.engine.place(net)

    weights = None
    if recipe.balance:
        weights = torch.from_numpy(feed.task.balance(feed.images.labels[splits.train])).to(feed.engine.device)

    hold = masks.apply if masks is not None and masks.pairs else None
    branched = recipe.branches and hold is None  # merged, they would fill what is held at zero
    if branched:
        branches.attach(net)
    shared = Hands(net, feed.engine) if hands_suited(recipe) else net

    def loss(x: Tensor, y: Tensor, drawn: StepDraw) -> dict[str, Tensor]:
        logits = shared(x)
        labels = feed.task.loss(logits, y, recipe.smoothing, weights)
        if head:
            inner: Any = net.auxiliary_logits
            labels = labels + recipe.auxiliary * feed.task.loss(inner, y, recipe.smoothing, weights)
            net.auxiliary_logits = None  # type: ignore[assignment] # kept, it would keep the step's whole graph
        if teacher is None:
            return {"loss": labels}
        with torch.no_grad():
            target = teacher.net(x)
        imitation = feed.task.imitation(logits, target, teacher.heat)
        loss = teacher.labels * labels + teacher.weight * imitation
        return {"loss": loss, "labels": labels, "imitation": imitation}

    training = Training(name, net, loss, recipe, feed, splits.train, run, draw=nothing, after=hold, title=title)
    if seconds is not None:
        training = planned(training, seconds)
    else:  # as in a process of its own: what another training found fastest decides the last bit of a sum
        feed.engine.set_threads(feed.task.image)
    if suit is not None:
        epochs = recipe.epochs if training.length is None else training.length.end
        training = replace(training, recipe=suit(epochs))
    history = fit(training)
    if hold is not None:
        hold()  # moving averages forget zeros only in the limit
    if head:
        net.detach_auxiliary()  # type: ignore[operator]
    settle_norms(net, feed, splits)
    if branched:
        branches.detach(net, calibration(feed, splits))
    return history


def settle_norms(net: nn.Module, feed: Feed, splits: Splits) -> None:
    """Batch-norm statistics for the weights as they are now."""
    if any(hasattr(m, "running_mean") for m in net.modules()):
        recalibrate(net, calibration(feed, splits), feed.engine.cast(lambda x, _: net(x)))


def calibration(feed: Feed, splits: Splits, batch: int = 240, most: int = 40) -> Any:
    """Plain training images for batch-norm statistics, whole batches, the same in every process."""
    index = feed.seeds.rng("calibration images").permutation(splits.train)[: batch * most]
    starts = list(range(0, len(index) - batch + 1, batch)) or [0]
    for start in starts:
        yield from feed.plain(index[start : start + batch], batch)
