"""Milliseconds on this device under the deployment runtime, measured.

A table is made in one sitting: every distinct part, a do-nothing graph of every input shape, a fixed
reference and a number of whole networks are timed together in interleaved rounds (`_timing`). A
part's price is its time less that of doing nothing at its input shape, since a network pays the
runtime's overhead once and not once a part. The whole networks, built and exported as they would
be deployed, then fix ``intercept + scale * sum of parts`` (`_calibration`), and that is what the
table's quadratic form predicts.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.core.task import Task
from sartor.costs.base import Cost, CostTable, Price, Tick, counted, distinct, priced, silent
from sartor.costs.latency.cache import PriceBook
from sartor.costs.latency.calibration import Fit, fit, networks
from sartor.costs.macs import Macs
from sartor.deploy.timing import Array, Timing, Workload, interleaved, interval, polished, visit
from sartor.spaces.base import Part, Shape, Space

if TYPE_CHECKING:
    from torch import nn

_REFERENCE = "reference"


@final
@dataclass(frozen=True, kw_only=True)
class Latency(Cost):
    """Milliseconds a call of `batch` images on this device under the deployment runtime, measured."""

    kind: ClassVar[str] = "time"

    runtime: str = "onnxruntime"  # or "torch"
    device: str = "cpu"  # or "cuda", under torch
    threads: int = 1
    batch: int = 1
    rounds: int = 15  # visits of every part; more rounds, narrower intervals
    visit_ms: float = 4.0  # how long one visit calls the part again and again
    networks: int = 14  # random whole networks that calibrate, besides the least and the heaviest
    verify_s: float = 1.5  # how long `measure` takes
    seed: int = 0  # of the calibration networks and the order of the visits

    def __post_init__(self) -> None:
        from sartor.deploy.runtimes.all import check

        check(self.runtime, self.device)
        for name, least in (("threads", 1), ("batch", 1), ("rounds", 3), ("networks", 1)):
            if getattr(self, name) < least:
                raise BadInput(f"costs.latency.{name} must be at least {least}, but got {getattr(self, name)}.")
        if self.visit_ms < 0 or self.verify_s <= 0:
            raise BadInput(f"visit_ms >= 0 and verify_s > 0 must hold, but got {self.visit_ms} and {self.verify_s}.")

    def identity(self) -> dict[str, Any]:
        """The device, the runtime and their versions: what measured times depend on."""
        from sartor.deploy.runtimes.all import device_identity

        return device_identity(self.runtime, self.device, self.threads, self.batch)

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The measured median of a whole module."""
        return self.measure(module, in_shape).p50

    def measure(self, model: nn.Module | str | Path, in_shape: Shape, table: CostTable | None = None) -> Timing:
        """Time a module, or an exported ONNX file, as deployed.

        Twenty rounds share `verify_s` seconds; each calls the model again and again for its part of
        that time, after one unrecorded call, and then the reference workload. `Timing.p50` is the
        median of all calls. Give the `table` that predicted the time to learn in `Timing.drift` how much
        slower the machine is now than it was then.
        """
        from sartor.deploy.runtimes.all import Reference, threads_of_torch

        if isinstance(model, (str, Path)):
            model = Path(model)
            if not model.is_file():
                raise BadInput(f"{model} must be an ONNX file, but there is no such file.")
        rounds = 20
        with threads_of_torch(self.threads):
            call = self._prepare(model, in_shape)
            reference = self._prepare(Reference(), Reference.shape)
            calls, references = [], []
            for _ in range(rounds):
                calls.append(visit(call, self.verify_s / rounds))
                references.append(float(np.median(visit(reference, self.visit_ms / 1e3))))
        then = None if table is None else table.calibration.get("reference_ms")
        return Timing.of(calls, references, None if then is None else float(then))

    def table(self, space: Space, task: Task, tick: Tick = silent, cache: Path | None = None) -> CostTable:
        """Price every part and calibrate on whole networks; see the head of this file.

        `cache` is a folder: prices of the same device, and the whole table of the same space, are taken
        from there where it has them, measured with as many rounds at least, and added where it has not.
        """
        identity = self.identity()
        book = PriceBook.open(cache, identity)
        parts = list(space.parts(task))
        each = distinct(parts)
        subject = json.dumps([repr(space), dataclasses.astuple(task), self.networks, self.seed, self.rounds])
        missing = {k: p for k, p in each.items() if book.known(k, self.rounds) is None}
        known = Fit.from_json(book.fits.get(subject))
        if not missing and known is not None:
            prices = {k: book.prices[k][0] for k in each}
            return _table(space, parts, prices, known, identity, book.fits[subject])
        rng = np.random.default_rng([self.seed, 0x1A7])
        chosen = networks(space, counted("macs", Macs(), space, task).form, self.networks, rng)
        times = self._times(space, task, missing, chosen, rng, tick)
        _enter(book, missing, times, self.rounds)
        prices = {k: book.prices[k][0] for k in each}
        sums = priced(space, parts, prices).batch([a.picks for a in chosen])
        measured = [float(np.median(times[f"network {i}"])) for i in range(len(chosen))]
        line = fit(sums.tolist(), measured)
        notes = line.to_json() | {
            "networks": [list(a.picks) for a in chosen],
            "measured_ms": measured,
            "reference_ms": float(np.median(times[_REFERENCE])),
            "rounds": self.rounds,
            "corrections": [],
        }
        book.fits[subject] = notes
        book.save()
        return _table(space, parts, prices, line, identity, notes)

    def _prepare(self, model: nn.Module | Path, in_shape: Shape) -> Workload:
        from sartor.deploy.runtimes.all import prepare

        return prepare(model, in_shape, self.runtime, self.device, self.threads, self.batch)

    def _times(
        self,
        space: Space,
        task: Task,
        parts: Mapping[str, Part],
        chosen: list[Arch],
        rng: np.random.Generator,
        tick: Tick,
    ) -> dict[str, Array]:
        """Milliseconds in every round of all that belongs into one sitting, the rounds' common speed taken out."""
        from torch import nn

        from sartor.deploy.runtimes.all import Reference, threads_of_torch

        image: Shape = (task.channels, task.image, task.image)
        shapes = {p.in_shape for p in parts.values()}
        builds: dict[str, Any] = {_REFERENCE: (Reference, Reference.shape)}
        builds |= {f"part {key}": (p.build, p.in_shape) for key, p in parts.items()}
        builds |= {f"idle {shape}": (nn.Identity, shape) for shape in sorted(shapes)}
        for i, arch in enumerate(chosen):
            builds[f"network {i}"] = (partial(as_deployed, space, arch, task), image)
        workloads: dict[str, Workload] = {}
        with threads_of_torch(self.threads):
            for name, (build, shape) in builds.items():
                workloads[name] = self._prepare(build(), shape)
                tick("latency: build", len(workloads), len(builds))
            progress = partial(_progress, tick, self.rounds)
            return polished(interleaved(workloads, self.rounds, self.visit_ms / 1e3, rng, progress))


def as_deployed(space: Space, arch: Arch, task: Task) -> nn.Module:
    """A network of the space with fresh weights and its normalisation inside, as it would be exported."""
    from sartor.deploy.module import Deployed

    return Deployed(space.network(arch, task), (127.5,) * task.channels, (63.75,) * task.channels)


def _progress(tick: Tick, total: int, done: int) -> None:
    tick("latency: measure", done, total)


def _enter(book: PriceBook, parts: Mapping[str, Part], times: Mapping[str, Array], rounds: int) -> None:
    """Put newly measured parts into the book, at the machine speed that the book's prices refer to."""
    now = float(np.median(times[_REFERENCE]))
    if book.reference_ms is None:
        book.reference_ms = now
    pace = book.reference_ms / now
    for key, part in parts.items():
        idle = float(np.median(times[f"idle {part.in_shape}"]))
        net = np.maximum(times[f"part {key}"] - idle, 0.0) * pace
        low, high = interval(net)
        book.prices[key] = (Price(float(np.median(net)), low, high), rounds)


def _table(
    space: Space, parts: list[Part], prices: Mapping[str, Price], line: Fit, identity: Mapping[str, Any], notes: Any
) -> CostTable:
    """Prices as they count inside a network: ``form = intercept + sum of prices``."""
    s = line.scale
    scaled = {k: Price(p.value * s, p.low * s, p.high * s) for k, p in prices.items()}
    form = priced(space, parts, scaled) + Quadratic(space.sizes, line.intercept)
    return CostTable("latency", Latency.kind, scaled, form, dict(identity), dict(notes))


def corrected(table: CostTable, arch: Arch, measured_ms: float, both_ways: bool = False) -> CostTable:
    """The table after a built network took longer than predicted: all it predicts, times measured / predicted.

    A network that was not slower than predicted changes nothing, so that a correction only ever makes a
    budget safer; with `both_ways` it scales the table down, which makes room for a larger network.
    Every correction is listed in ``calibration["corrections"]``.
    """
    predicted = table.form(arch)
    if not (np.isfinite(measured_ms) and measured_ms > 0):
        raise BadInput(f"the measured time must be a positive number of milliseconds, but got {measured_ms}.")
    if measured_ms == predicted or (measured_ms < predicted and not both_ways):
        return table
    # Parts too small for the clock add up to nothing that could be scaled: then every network gets the difference.
    factor = measured_ms / predicted if predicted > 0 else 1.0
    missing = Quadratic(table.form.sizes, measured_ms - predicted * factor if predicted <= 0 else 0.0)
    entry = {"arch": list(arch.picks), "predicted_ms": predicted, "measured_ms": float(measured_ms), "factor": factor}
    calibration = dict(table.calibration)
    calibration["corrections"] = [*calibration.get("corrections", []), entry]
    prices = {k: Price(p.value * factor, p.low * factor, p.high * factor) for k, p in table.prices.items()}
    return dataclasses.replace(table, prices=prices, form=table.form * factor + missing, calibration=calibration)
