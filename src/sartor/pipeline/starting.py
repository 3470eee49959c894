"""What the chosen network starts from where weights come from elsewhere: those, or fresh ones, whichever is ahead."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from sartor.core.arch import Arch
from sartor.data.base import Index
from sartor.engine.evaluate import accuracy
from sartor.engine.network import train_network
from sartor.engine.origin import Origin
from sartor.engine.seeding import seeded
from sartor.engine.whitening import held
from sartor.pipeline.context import Context
from sartor.pipeline.cut import Cut, Start
from sartor.pipeline.final import Final, from_elsewhere
from sartor.runs.schema import OriginFile, Started

_SHARE = 0.06  # of the training, for each of two starts to show which is better
_COMPARING = {"elsewhere": "trying weights from elsewhere", "fresh": "trying fresh weights"}
_ENOUGH = 0.25  # of the validation images, from which on those judge alone that nobody was trained on


@dataclass(frozen=True, eq=False)
class Begun:
    """The start that was chosen, with its recipe, and what is told of it."""

    start: Start
    recipe: Final
    told: Started

    @property
    def best(self) -> float | None:
        """What it got right of the validation images after a short training."""
        t = self.told
        return t.elsewhere_accuracy if t.kept == "elsewhere" else t.fresh_accuracy


def begin(cut: Cut, origin: Origin, arch: Arch, search: Start, seconds: float | None) -> Begun:
    """Train the network for a short while with weights from elsewhere, and with fresh ones: what is ahead is kept.

    Both begin with as little training on these images, that is none. Where the `search` has trained the network on from
    the weights from elsewhere, and these are ahead, its weights are kept, which have learnt most.
    """
    c = cut.context
    with seeded(c.seeds.number("network")):
        fresh = c.engine.place(cut.network(arch))
    moved = copy.deepcopy(fresh)
    taken = origin.into(moved, c.task.classes)
    began = "the search began to train this network" if search.inherited else "the network starts"
    c.run.log(f"{began} with {taken}")
    told: dict[str, Any] = {
        "weights": taken.weights, "of": taken.of, "sliced": taken.sliced, "source": taken.source,
    }  # fmt: skip
    if not taken.weights:
        return Begun(search, c.train, Started(**told, kept="fresh"))
    recipes, found = {"elsewhere": from_elsewhere(c.train), "fresh": c.train}, {}
    judges = _judges(c)
    for name, net in (("elsewhere", moved), ("fresh", fresh)):
        found[name] = _after_a_while(cut, arch, name, copy.deepcopy(net), recipes[name], seconds, judges)
    c.run.log(
        f"after {100 * _SHARE:.0f} % of the training, {found['elsewhere']:.2f} % of {len(judges)} validation images "
        f"are right with weights from elsewhere, {found['fresh']:.2f} % with fresh ones"
    )
    kept = c.engine.agree(max(found, key=found.__getitem__))  # the first of equals
    start = Start(fresh) if kept == "fresh" else search if search.inherited else Start(moved, elsewhere=True)
    accuracies = {f"{name}_accuracy": value for name, value in found.items()}
    return Begun(start, recipes[kept], Started(**told, **accuracies, kept=kept))  # type: ignore[arg-type]


def _after_a_while(
    cut: Cut, arch: Arch, name: str, net: nn.Module, recipe: Final, seconds: float | None, judges: Index
) -> float:
    """What a network gets right after a short training."""
    c, short = cut.context, replace(recipe, epochs=math.ceil(_SHARE * recipe.epochs))
    share = None if seconds is None else _SHARE * seconds
    with held(net, c.feed, c.splits.train, name == "fresh") if short.whiten else nullcontext():
        train_network(net, None, short, c.feed, c.splits, cut.run, f"{name}-{cut.phase(arch)}", None, share,
                      title=_COMPARING[name])  # fmt: skip
    return accuracy(net, c.feed, judges)


def _judges(c: Context) -> Index:
    """The validation images that the weights from elsewhere were not trained on, where enough are left."""
    path = c.run.path / OriginFile.NAME
    known = c.run.load(OriginFile).val if path.is_file() else ()
    unseen = np.setdiff1d(c.splits.val, np.array(known, np.int64))
    return unseen if len(unseen) >= _ENOUGH * len(c.splits.val) else c.splits.val
