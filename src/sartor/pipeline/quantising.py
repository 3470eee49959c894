"""The trained network in 8 bits: quantised in several ways on training images, of which one that loses little stays.

Every way is slower than the one before, so the first stays that gets as many of the images right that decide, or
nearly; else the best. Where that loses too much, the network is trained a little longer, computing as in 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sartor.data.base import Index
from sartor.deploy.export import TUNED, OnnxModel, deployed_file, export_onnx, metadata_in
from sartor.deploy.quantise import WAYS, Way, quantised
from sartor.engine.network import Masks, train_network
from sartor.engine.rounding import rounding
from sartor.pipeline.context import Context
from sartor.pipeline.cut import Cut, chosen, views
from sartor.runs.schema import TrainingFile

LOSS = 0.5  # points of accuracy on validation images that 8 bits may cost where nobody asked for them
_LITTLE = LOSS / 2  # of them, with which no slower way is looked for
_TUNING, _SLOWLY = 0.15, 0.1  # of the training's epochs and of its rate: to get used to 8 bits
_CALIBRATED = 256  # training images that set the ranges
_CHOOSING = 2000  # validation images that decide between the ways
_HELD, _PART = 1000, 4  # of these so many are not trained on, or one in so many, where the others are


@dataclass(frozen=True)
class Quantised:
    """The network in 8 bits, the way that made it, and what every way that was tried gets right."""

    graph: bytes
    way: Way
    shares: Mapping[Way, float]  # of the images that decide, in percent
    in_float: float  # what the network in 32 bits gets right of them
    calibrated: int  # images
    chosen_on: int
    tuned: bool = False  # whether it was trained further, computing as in 8 bits

    @property
    def best(self) -> float:
        """What the way that made it gets right."""
        return self.shares[self.way]

    @property
    def lost(self) -> float:
        """Points of accuracy."""
        return self.in_float - self.best

    def __str__(self) -> str:
        return f"{self.way}{', fine-tuned' if self.tuned else ''}"


def weight_bits(cut: Cut) -> int:
    """Of int8 weights, so that no product overflows at any target."""
    told = (table.device.get("weight_bits") for table in cut.tables("int8").values())
    known = [int(bits) for bits in told if bits is not None]
    return min(known) if known else cut.context.runtime().weight_bits


def make(cut: Cut, tune: bool) -> Quantised:
    """The exported network in 8 bits; where that loses too much and `tune` says so, trained further for it."""
    c, run, bits = cut.context, cut.run, weight_bits(cut)
    choosing, _ = deciding(cut)
    made = as_int8(c, deployed_file(run.path), bits, choosing)
    if not tune or made.lost <= LOSS or c.engine.world > 1:
        return made
    again = replace(_tuned(cut, bits, choosing), in_float=made.in_float)
    if again.best > made.best:
        return again
    (run.path / TUNED).unlink()
    return made


def held_out(cut: Cut) -> Index:
    """Validation images that decide whether 8 bits are as good: not trained on where these are to be deployed."""
    c = cut.context
    order = c.seeds.rng("held out").permutation(c.splits.val)
    return np.sort(order[: min(_HELD, len(order) // _PART)]) if cut.precision == "int8" else order[:0]


def deciding(cut: Cut) -> tuple[Index, bool]:
    """The images that decide, and whether the network was not trained on them: it may be one of another budget."""
    c, kept = cut.context, held_out(cut)
    apart = cut.run.load(TrainingFile).held_out == len(kept) > 0
    if c.train.images == "all" and apart:
        return kept, True
    return c.seeds.rng("choose").permutation(c.splits.val)[:_CHOOSING], c.train.images != "all"


def as_int8(c: Context, source: Path, bits: int, choosing: Index) -> Quantised:
    """An exported network in 8 bits, its weights in so many, in the way that `choosing`, some images, decides on."""
    drawn = c.seeds.rng("quantise").permutation(c.splits.train)[:_CALIBRATED]
    images = _pixels(c, drawn)
    in_float, found, best = share(c, source, choosing), dict[Way, float](), b""
    for way in WAYS:
        graph = quantised(source, images, way, bits)
        value = share(c, graph, choosing)
        if not found or value > max(found.values()):
            best = graph
        found[way] = value
        if value >= in_float - _LITTLE:
            break
    return Quantised(best, max(found, key=lambda w: found[w]), found, in_float, len(drawn), len(choosing))


def _tuned(cut: Cut, bits: int, choosing: Index) -> Quantised:
    """The network in 8 bits after a short training in which it computes as in these; weights that are zero stay so."""
    c, run = cut.context, cut.run
    net = c.engine.place(cut.trained())
    masks = Masks(net, {name: value != 0 for name, value in net.named_parameters() if value.ndim > 1})
    epochs = max(1, round(_TUNING * len(run.load(TrainingFile).history)))
    c.run.log(f"8 bits lose more than {LOSS} points: the network is trained for {epochs} more epochs as in 8 bits")
    recipe = replace(
        c.train, epochs=epochs, lr=_SLOWLY * c.train.lr, last_lr=0.0, warmup=0.0, cycles=1, mix=0.0, auxiliary=0.0,
        augment="light", muon=0.0, small=1.0, mixed=False, branches=False,
    )  # fmt: skip  # small steps of plain descent, in which only what 8 bits round is rounded
    with rounding(net):
        train_network(net, None, recipe, c.feed, c.splits, run, f"int8-{cut.phase(chosen(run))}", masks)
    export_onnx(c.deployed(net, views(run)), c.task, run.path / TUNED, metadata_in(deployed_file(run.path)))
    return replace(as_int8(c, run.path / TUNED, bits, choosing), tuned=True)


def _pixels(c: Context, index: Index) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asarray(c.images.pixels(np.sort(index)).numpy(), np.float32)


def judged_on(c: Context, model: Path | bytes, index: Index) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's logits of these images, and their labels."""
    logits = torch.from_numpy(OnnxModel(model).logits_of(c.images, index))
    return logits, torch.from_numpy(np.asarray(c.images.labels)[index])


def share(c: Context, model: Path | bytes, index: Index) -> float:
    """What the model gets right of the images, in percent."""
    return c.task.measure(*judged_on(c, model, index))
