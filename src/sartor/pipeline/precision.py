"""In how many bits the network is deployed: 8 where that is asked for, or (`auto`) where it is faster and as good.

Before training, a candidate is timed in both precisions: its weights do not matter for that. What 8 bits leave of a
latency budget corrects the table like any other measurement, so that the solver takes a larger network. After training
the network is quantised in several ways on training images, and the way that gets most validation images right stays.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from sartor.core.registry import COSTS
from sartor.costs.base import CostTable, Measured
from sartor.data.base import Index
from sartor.deploy.export import INT8, OnnxModel, deployed_file
from sartor.deploy.module import onnx_graph
from sartor.deploy.quantise import WAYS, Way, quantised, seven_bits
from sartor.pipeline.context import Context
from sartor.pipeline.cut import Cut
from sartor.runs.directory import atomic
from sartor.runs.schema import QuantisedFile

if TYPE_CHECKING:
    from sartor.costs.latency.cost import Latency

LOSS = 0.5  # points of accuracy on validation images that 8 bits may cost where nobody asked for them
_CALIBRATED, _QUICKLY = 256, 8  # training images that set the ranges: for deployment, and to time a candidate
_CHOOSING = 2000  # validation images that decide between the ways
_BATCH = 256


def candidate(cut: Cut, net: nn.Module, tables: Mapping[str, CostTable]) -> dict[str, Measured]:
    """What a network that is not trained yet comes to in the precision that it would be deployed in."""
    asked = _asked(cut)
    plain = {} if asked == "int8" else {n: cut.measure(n, net, tables[n]) for n in cut.measured}
    if asked == "float32" or not cut.measured:
        return plain
    with _sketched(cut, net) as file:
        small = {n: cut.measure(n, net, tables[n], file) for n in cut.measured}
    if asked == "auto" and not all(small[n].high < plain[n].value for n in cut.measured if small[n] != plain[n]):
        return plain
    return small


def _asked(cut: Cut) -> str:
    """What was asked; float32 after a network of this budget turned out not to be worth 8 bits."""
    asked: str = cut.context.options.precision
    if asked != "auto" or not (cut.run.path / QuantisedFile.NAME).is_file():
        return asked
    return asked if cut.run.load(QuantisedFile).used else "float32"


@contextmanager
def _sketched(cut: Cut, net: nn.Module) -> Iterator[Path | None]:
    """The network in 8 bits as a file for as long as it is timed; its weights need not be good ones."""
    c = cut.context
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "candidate.onnx"
        if c.run.writer:
            batch = _clock(c).batch
            graph = onnx_graph(c.deployed(net), c.shape, batch)
            images = _pixels(c, c.splits.train[: max(_QUICKLY, batch)])
            file.write_bytes(quantised(graph, images, Way(corrected=False)))
        yield file


def export(cut: Cut) -> list[str]:
    """Quantise what was exported; which files that leaves. The 8-bit file is there only if it is what is deployed."""
    c, run = cut.context, cut.run
    with suppress(FileNotFoundError):
        if run.writer:
            (run.path / INT8).unlink()
    if c.options.precision == "float32":
        return []
    if run.writer:
        _decide(cut)
    c.engine.barrier()
    return [QuantisedFile.NAME, *([INT8] if run.load(QuantisedFile).used else [])]


@dataclass(frozen=True)
class Small:
    """The network in 8 bits, the way that made it, and what every way that was tried gets right."""

    graph: bytes
    way: Way
    shares: Mapping[Way, float]  # of the validation images, in percent
    wanted: float  # that of 32 bits
    calibrated: int  # images
    chosen_on: int


def as_int8(c: Context, source: Path) -> Small:
    """Quantise an exported network in the way that gets most validation images right; the first that loses nothing."""
    rng = c.seeds.rng("quantise")
    drawn = rng.permutation(c.splits.train)[:_CALIBRATED]
    images, choosing = _pixels(c, drawn), rng.permutation(c.splits.val)[:_CHOOSING]
    wanted, found, best = shares(c, source, choosing), dict[Way, float](), b""
    for way in WAYS:
        graph = quantised(source, images, way)
        value = shares(c, graph, choosing)
        if not found or value > max(found.values()):
            best = graph
        found[way] = value
        if value >= wanted:
            break
    return Small(best, max(found, key=lambda w: found[w]), found, wanted, len(drawn), len(choosing))


def _decide(cut: Cut) -> None:
    c, run, source = cut.context, cut.run, deployed_file(cut.run.path)
    made = as_int8(c, source)
    wanted, got = made.wanted, made.shares[made.way]
    with atomic(run.path / INT8) as tmp:
        tmp.write_bytes(made.graph)
    forms = {name: _form(c, path) for name, path in (("float32", source), ("int8", run.path / INT8))}
    forms["float32"]["val_accuracy"], forms["int8"]["val_accuracy"] = wanted, got
    small, large = forms["int8"]["timing"], forms["float32"]["timing"]
    slower = small["p50"] / small["reference_ms"] >= large["p50"] / large["reference_ms"]
    lost = wanted - got
    why = "slower" if slower else f"{lost:.2f} points less accurate" if lost > LOSS else "as accurate and faster"
    used = c.options.precision == "int8" or why == "as accurate and faster"
    if not used:
        (run.path / INT8).unlink()
    run.record(QuantisedFile, {
        "asked": c.options.precision, "used": used, "why": why, "way": str(made.way), "reduce_range": seven_bits(),
        "calibration_images": made.calibrated, "validation_images": made.chosen_on, "metric": c.task.metric,
        "tried": {str(w): v for w, v in made.shares.items()}, **forms,
    })  # fmt: skip
    c.run.log(
        f"int8 ({made.way}): {c.task.metric} {got:.2f} % against {wanted:.2f} % on {made.chosen_on} images; "
        f"{small['p50']:.3f} ms against {large['p50']:.3f} ms: {why}; deployed in {'int8' if used else 'float32'}"
    )


def _form(c: Context, path: Path) -> dict[str, Any]:
    """One precision: accuracy on the test images, bytes, milliseconds."""
    logits, labels = _logits(c, path, c.splits.test)
    by_class = c.task.by_class(logits, labels)
    known = [value for value in by_class if value is not None]
    return {
        "test_accuracy": c.task.measure(logits, labels), "per_class": by_class,
        "balanced_accuracy": float(np.mean(known)), "bytes": path.stat().st_size,
        "timing": _clock(c).time(path, c.shape).to_json(),
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
