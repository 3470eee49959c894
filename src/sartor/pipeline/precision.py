"""In how many bits the network is deployed: 8 where that is asked for, or (`auto`) where it is faster and as good.

Parts are priced in both, the problem is solved in both, and each candidate is built and timed in its own: `auto` takes
the network that scores most. After training it is quantised on training images in several ways, of which the first
stays that gets as many validation images right, or nearly; else the best. Where that loses too much, the network is
trained a little longer, computing as in 8 bits. `auto` deploys it only where it is faster and as good, and else looks
for a network in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from sartor.core.errors import BadInput, Infeasible
from sartor.core.registry import COSTS
from sartor.costs.base import Cost
from sartor.data.base import Index
from sartor.deploy.export import INT8, TUNED, OnnxModel, deployed_file, export_onnx, metadata_in
from sartor.deploy.quantise import WAYS, Way, quantised
from sartor.engine.network import Masks, train_network
from sartor.engine.rounding import rounding
from sartor.pipeline.context import Context
from sartor.pipeline.cut import Cut, chosen
from sartor.runs.directory import atomic
from sartor.runs.schema import QuantisedFile, TrainingFile
from sartor.solvers.base import Problem

if TYPE_CHECKING:
    from sartor.costs.latency.cost import Latency

LOSS = 0.5  # points of accuracy on validation images that 8 bits may cost where nobody asked for them
_LITTLE = LOSS / 2  # of them, with which no slower way is looked for
_TUNING, _SLOWLY = 0.15, 0.1  # of the training's epochs and of its rate: to get used to 8 bits
_CALIBRATED = 256  # training images that set the ranges
_CHOOSING = 2000  # validation images that decide between the ways
_BATCH = 256


def considered(cut: Cut) -> tuple[str, ...]:
    """The precisions in which a network is looked for; float32 alone after one turned out not to be worth 8 bits."""
    asked: str = cut.context.options.precision
    if asked != "auto":
        return (asked,)
    refused = (cut.run.path / QuantisedFile.NAME).is_file() and not cut.run.load(QuantisedFile).used
    tables = cut.tables("int8")
    priced = any(tables[n].precision == "int8" for n in cut.measured)
    return ("float32", "int8") if priced and not refused else ("float32",)


def roomier(cut: Cut) -> str:
    """The precision whose budgets have room for the network that computes most: the search learns about such."""

    def most(precision: str) -> float:
        tables = cut.tables(precision)
        try:
            return cut.context.best(Problem(tables[Cost.guide].form, cut.limits(tables))).score
        except Infeasible:
            return 0.0

    each = considered(cut)
    return each[0] if len(each) == 1 else max(each, key=most)


def export(cut: Cut) -> list[str]:
    """Quantise what was exported; which files that leaves. The 8-bit file is there only if it is what is deployed."""
    c, run = cut.context, cut.run
    for name in (INT8, TUNED) if run.writer else ():
        (run.path / name).unlink(missing_ok=True)
    if c.options.precision == "float32":
        return []
    if run.writer:
        _decide(cut)
    c.engine.barrier()
    return [name for name in (QuantisedFile.NAME, INT8, TUNED) if (run.path / name).is_file()]


@dataclass(frozen=True)
class Small:
    """The network in 8 bits, the way that made it, and what every way that was tried gets right."""

    graph: bytes
    way: Way
    shares: Mapping[Way, float]  # of the validation images, in percent
    wanted: float  # that of 32 bits
    calibrated: int  # images
    chosen_on: int

    @property
    def best(self) -> float:
        """What the way that made it gets right."""
        return self.shares[self.way]


def weight_bits(cut: Cut) -> int:
    """Of int8 weights, so that no product overflows at any target."""
    told = (table.device.get("weight_bits") for table in cut.tables("int8").values())
    known = [int(bits) for bits in told if bits is not None]
    return min(known) if known else cut.context.runtime().weight_bits


def as_int8(c: Context, source: Path, bits: int) -> Small:
    """Quantise an exported network in the first way that loses little, since they are slower and slower; else the best.

    Its weights have so many bits; what gets right is counted on validation images.
    """
    rng = c.seeds.rng("quantise")
    drawn = rng.permutation(c.splits.train)[:_CALIBRATED]
    images, choosing = _pixels(c, drawn), rng.permutation(c.splits.val)[:_CHOOSING]
    wanted, found, best = shares(c, source, choosing), dict[Way, float](), b""
    for way in WAYS:
        graph = quantised(source, images, way, bits)
        value = shares(c, graph, choosing)
        if not found or value > max(found.values()):
            best = graph
        found[way] = value
        if value >= wanted - _LITTLE:
            break
    return Small(best, max(found, key=lambda w: found[w]), found, wanted, len(drawn), len(choosing))


def _tuned(cut: Cut) -> Small:
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
    export_onnx(c.deployed(net), c.task, run.path / TUNED, metadata_in(deployed_file(run.path)))
    return as_int8(c, run.path / TUNED, weight_bits(cut))


def _decide(cut: Cut) -> None:
    c, run, source = cut.context, cut.run, deployed_file(cut.run.path)
    try:
        made = as_int8(c, source, weight_bits(cut))
    except BadInput as error:
        if c.options.precision == "int8":
            raise BadInput(f"{error} Use --precision float32: what was trained is not lost.") from error
        c.run.log(f"{error} It is deployed in float32.")
        (run.path / QuantisedFile.NAME).unlink(missing_ok=True)
        return
    wanted, way = made.wanted, str(made.way)
    if wanted - made.best > LOSS and c.engine.world == 1:
        tuned = _tuned(cut)
        if tuned.best > made.best:
            made, way = tuned, f"{tuned.way}, fine-tuned"
        else:
            (run.path / TUNED).unlink()
    got = made.best
    with atomic(run.path / INT8) as tmp:
        tmp.write_bytes(made.graph)
    files = {"float32": source, "int8": run.path / INT8}
    timed, right = _clock(c).times(files, c.shape), {"float32": wanted, "int8": got}
    forms = {n: {**_form(c, f), "val_accuracy": right[n], "timing": timed[n].to_json()} for n, f in files.items()}
    slower = timed["int8"].p50 >= timed["float32"].p50
    lost = wanted - got
    why = "slower" if slower else f"{lost:.2f} points less accurate" if lost > LOSS else "as accurate and faster"
    used = c.options.precision == "int8" or why == "as accurate and faster"
    for name in () if used else (INT8, TUNED):
        (run.path / name).unlink(missing_ok=True)
    run.record(QuantisedFile, {
        "asked": c.options.precision, "used": used, "why": why, "way": way, "reduce_range": weight_bits(cut) < 8,
        "calibration_images": made.calibrated, "validation_images": made.chosen_on, "metric": c.task.metric,
        "tried": {str(w): v for w, v in made.shares.items()}, **forms,
    })  # fmt: skip
    small, large = (f"{timed[name].p50:.3f} ms" for name in ("int8", "float32"))
    c.run.log(
        f"int8 ({way}): {c.task.metric} {got:.2f} % against {wanted:.2f} % on {made.chosen_on} images; "
        f"{small} against {large}: {why}; deployed in {'int8' if used else 'float32'}"
    )


def _form(c: Context, path: Path) -> dict[str, Any]:
    """One precision: accuracy on the test images, bytes."""
    logits, labels = _logits(c, path, c.splits.test)
    by_class = c.task.by_class(logits, labels)
    known = [value for value in by_class if value is not None]
    return {
        "test_accuracy": c.task.measure(logits, labels), "per_class": by_class,
        "balanced_accuracy": float(np.mean(known)), "bytes": path.stat().st_size,
    }  # fmt: skip


def _clock(c: Context) -> Latency:
    """The run's latency cost, the first where there are several; else one like it, on this machine."""
    kind = COSTS["latency"]
    known = (cost for cost in c.costs.values() if isinstance(cost, kind) and cost.live)
    made: Latency = next(known, None) or kind(runtime=c.options.runtime, threads=c.options.threads)
    return made


def _pixels(c: Context, index: Index) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.asarray(c.images.pixels(np.sort(index)).numpy(), np.float32)


def _logits(c: Context, model: Path | bytes, index: Index) -> tuple[torch.Tensor, torch.Tensor]:
    net = OnnxModel(model)
    parts = np.split(index, range(_BATCH, len(index), _BATCH))
    found = np.concatenate([net.logits(c.images.pixels(part).numpy()) for part in parts])
    return torch.from_numpy(found), torch.from_numpy(np.asarray(c.images.labels)[index])


def shares(c: Context, model: Path | bytes, index: Index) -> float:
    """What the model gets right of the images, in percent."""
    return c.task.measure(*_logits(c, model, index))
