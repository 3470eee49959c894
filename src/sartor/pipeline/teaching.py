"""A wide network that is trained for a part of the time, so that the one that comes out can imitate it.

A GPU trains a wide plain network faster, image by image, than the small one that a budget leaves. What the small one
learns from its answers, softened, is worth more than the time (`benchmarks/recipes.py`, the sets that are taught).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from torch import nn

from sartor.costs.macs import Macs
from sartor.engine import checkpoint
from sartor.engine.evaluate import accuracy
from sartor.engine.network import Teacher, train_network
from sartor.engine.seeding import seeded
from sartor.pipeline.context import Context
from sartor.pipeline.final import suited
from sartor.runs.progress import span
from sartor.spaces.plain.space import build

_FILE = "search/wide.safetensors"
_LARGE = 48  # pixels a side from which its first convolution may halve the map
_JUDGES = 1000  # images that it does not learn from, at most
_WIDER = 2.0  # times the multiply-accumulates of the network that it teaches, at least
_HEEDED = {"weight": 0.5, "labels": 0.5, "heat": 4.0}  # as much as the labels: it is no better than a student may get


def wide_teacher(c: Context, net: nn.Module, seconds: float, least: float | None) -> Teacher | None:
    """A network much wider than `net`, trained for so long; none where it gets no more right than `least`.

    It is trained once for all budgets of a search, on all images but the test's and a few others, which judge it.
    """
    name = f"resnet14-w64-s{1 if c.task.image < _LARGE else 2}"
    with seeded(c.seeds.number("wide")):
        wide = build(name, c.task)
    if Macs().of(wide, c.shape) < _WIDER * Macs().of(net, c.shape):
        return None
    wide, file = c.engine.place(wide), c.run.path / _FILE
    judges = c.seeds.rng("judges").permutation(c.splits.val)[: min(_JUDGES, len(c.splits.val) // 2)]
    learnt = (
        np.union1d(c.splits.train, np.setdiff1d(c.splits.val, judges)) if c.train.images == "all" else c.splits.train
    )
    if c.engine.agree(file.is_file()):
        wide.load_state_dict(checkpoint.load(file))
    else:
        c.run.log(f"a wide network, {name}, is trained for {span(seconds)}: the one that comes out will imitate it")
        recipe = replace(c.train, smoothing=0.0, epochs=0)  # smoothed labels would hide what it knows of other classes
        suit = partial(suited, recipe, images=0)  # it holds more than a small network does
        train_network(wide, None, recipe, c.feed, replace(c.splits, train=learnt), c.run, "wide", None, seconds, suit,
                      "training a wide teacher")  # fmt: skip
        if c.run.writer:
            checkpoint.save(file, wide.state_dict())
        c.engine.barrier()
    found = accuracy(wide, c.feed, judges)
    better = least is None or found > least
    told = f"{found:.2f} % of {len(judges)} validation images"
    c.run.log(f"it gets {told} right{'' if better else ': it is not imitated'}")
    told = f"{name}, {told}"
    return Teacher(wide.eval().requires_grad_(False), **_HEEDED, told=told) if better else None
