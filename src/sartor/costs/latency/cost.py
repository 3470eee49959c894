"""Milliseconds on the target under the deployment runtime, measured.

A table is made in one sitting: every distinct part, a do-nothing graph of every input shape, a fixed
reference and a number of whole networks are timed together in interleaved rounds (`deploy.timing`). A
part's price is its time less that of doing nothing at its input shape, since a network pays the
runtime's overhead once and not once a part. The whole networks, built and exported as they would
be deployed, then fix ``intercept + scale * sum of parts`` (`calibration`), each part less what timing
it alone adds, and that is what the table's quadratic form predicts. Of parts that belong to a kind
(`Part.kind`) a designed sample is timed and the others' prices follow from it (`survey`, `model`): a space may
have thousands. In 8 bits everything is the same, with parts and networks that are quantised (`Int8Latency`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.registry import RUNTIMES, SPACES
from sartor.core.task import Task
from sartor.core.units import TIME, Kind
from sartor.costs.base import ANY, Cost, CostTable, Measured, Occasion, Price, Tick, silent
from sartor.costs.latency.cache import PriceBook, Sitting
from sartor.costs.latency.calibration import Fit, fit, networks
from sartor.costs.latency.survey import Settings, Survey
from sartor.deploy.targets.base import Build, target_of
from sartor.deploy.targets.profile import BOOKS
from sartor.deploy.timing import Array, Timing, interleaved, interval, polished
from sartor.spaces.base import Part, Shape, Space

if TYPE_CHECKING:
    from torch import nn

    from sartor.deploy.runtimes.base import Runtime

_REFERENCE, _NETWORK = "reference", "network"
_BUSY, _SLOWER = 1.25, 1.02  # a machine this much slower than for the table is busy; or only slower
_PAUSE = 3.0  # seconds until the next look


@dataclass(frozen=True, kw_only=True)
class Latency(Cost):
    """Milliseconds a call of `batch` images on this device under the deployment runtime, measured."""

    kind: ClassVar[Kind] = TIME
    measured: ClassVar[bool] = True
    precision: ClassVar[Literal["float32", "int8"]] = "float32"

    runtime: str = "onnxruntime"
    device: str = "cpu"
    threads: int = 1
    batch: int = 1
    target: str = "local"
    rounds: int = 15  # visits of every part; more rounds, narrower intervals
    visit_ms: float = 4.0  # how long one visit calls the part again and again
    sample: int = 240  # parts of kinds that are timed, about; the other prices follow from theirs
    networks: int = 14  # random whole networks that calibrate, besides the least and the heaviest
    verify_s: float = 1.5  # how long `measure` takes
    moments: int = 4  # how often `measure` looks, at most, at a machine that is busier than it was for the table
    seed: int = 0  # of the calibration networks and the order of the visits

    def __post_init__(self) -> None:
        self.deployed_under()  # refuses what cannot be measured
        for name, least in (("rounds", 3), ("sample", 1), ("networks", 1), ("moments", 1)):
            if getattr(self, name) < least:
                raise BadInput(f"costs.latency.{name} must be at least {least}, but got {getattr(self, name)}.")
        if self.visit_ms < 0 or self.verify_s <= 0:
            raise BadInput(f"visit_ms >= 0 and verify_s > 0 must hold, but got {self.visit_ms} and {self.verify_s}.")

    def deployed_under(self) -> Runtime:
        """What calls the networks that are timed."""
        given = {name: getattr(self, name) for name in ("device", "threads", "batch", "target")}
        made: Runtime = RUNTIMES.make(self.runtime, given)
        return made

    def identity(self) -> dict[str, Any]:
        """The device, the runtime and their versions: what measured times depend on."""
        return self.deployed_under().identity()

    @property
    def live(self) -> bool:
        """Whether the target is there."""
        return target_of(self.target).live

    def int8(self) -> Latency | None:
        """In 8 bits, where the runtime computes in these and the target has prices of them, or can be given some."""
        options = {f.name: getattr(self, f.name) for f in fields(self)}
        known = RUNTIMES[self.runtime].int8 and target_of(self.target).priced("int8")
        return Int8Latency(**options) if known else None

    def profile(self, folder: Path) -> dict[str, Any]:
        """All prices of the target."""
        return {BOOKS[self.precision]: PriceBook.open(folder, self.identity()).to_json()}

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """The measured median of a whole module."""
        return self.time(module, in_shape).p50

    def measure(self, net: nn.Module, in_shape: Shape, at: Occasion = ANY) -> Measured:
        """The median of a network's calls; on a machine much slower than for the table, wait for a better moment first.

        The reference workload tells a busy machine from a slow network. Where the network is over its `limit`, a
        machine that is a little slower is waited for too: that may be all there is to it. After a few moments, or where
        there is no time for more, the calmest one counts.
        """
        model = at.file if at.file is not None and self.deployed_under().exported else net
        timings: list[Timing] = []
        while True:
            timings.append(self.time(model, in_shape, at.table))
            drift = timings[-1].drift
            over = at.limit is not None and timings[-1].p50 > at.limit
            if drift is None or drift < (_SLOWER if over else _BUSY) or len(timings) >= self.moments:
                break
            if not at.wait(_PAUSE + self.verify_s):
                break
            where = "this machine" if self.target == "local" else self.target
            at.say(f"{where} runs {drift:.2f} times slower than when the table was made: waiting for a better moment")
            time.sleep(_PAUSE)
        return _told(min(timings, key=lambda t: t.drift or 1.0))

    def compare(self, net: nn.Module, files: Mapping[str, Path], in_shape: Shape) -> dict[str, Measured]:
        """In the same rounds."""
        return {name: _told(timing) for name, timing in self.times(files, in_shape).items()}

    def time(self, model: nn.Module | str | Path, in_shape: Shape, table: CostTable | None = None) -> Timing:
        """Time a module, or an exported file, as deployed.

        Twenty rounds share `verify_s` seconds; each calls the model again and again for its part of
        that time, after one unrecorded call, and then the reference workload. `Timing.p50` is the
        median of all calls. Give the `table` that predicted the time to learn in `Timing.drift` how much
        slower the machine is now than it was then.
        """
        source = Path(model) if isinstance(model, str) else model
        return self.times({_NETWORK: source}, in_shape, table)[_NETWORK]

    def times(
        self, models: Mapping[str, nn.Module | Path], in_shape: Shape, table: CostTable | None = None
    ) -> dict[str, Timing]:
        """Several models as `time` does one, in the same rounds: only so can they be compared on a busy machine."""
        from sartor.deploy.runtimes.base import Reference

        rounds, calls, references = 20, {name: list[list[float]]() for name in models}, list[float]()
        builds: dict[str, Build] = {_REFERENCE: (Reference, Reference.shape)}
        builds |= {name: (partial(_given, model), in_shape) for name, model in models.items()}
        with self.deployed_under().stopwatch(builds) as watch:
            for _ in range(rounds):
                for name, found in watch.visits(list(models), self.verify_s / rounds):
                    calls[name].append(found)
                references += [float(np.median(c)) for _, c in watch.visits([_REFERENCE], self.visit_ms / 1e3)]
            conditions = watch.conditions()
        then = None if table is None else table.calibration.get("reference_ms")
        known = None if then is None else float(then)
        return {n: replace(Timing.of(c, references, known), conditions=conditions) for n, c in calls.items()}

    def table(self, space: Space, task: Task, tick: Tick = silent, cache: Path | None = None) -> CostTable:
        """Price every part and calibrate on whole networks; see the head of this file.

        `cache` is a folder: prices of the same device, and the whole table of the same space, are taken
        from there where it has them, measured with as many rounds at least, and added where it has not. What was
        measured when it is killed serves the next attempt. A device that is not there has its profile alone, in which
        the table stands as thoroughly as it was measured then.
        """
        survey, identity = Survey.of(space, task), self.identity()
        profile = target_of(self.target).prices(self.precision)
        if profile is None:
            book = PriceBook.open(cache, identity)
            return self._known(survey, book, self._settings) or self._measured(survey, book, tick, cache)
        book = PriceBook.of(profile, identity)
        for settings in (self._settings, *survey.settings(book)):
            found = self._known(survey, book, settings)
            if found is not None:
                return found
        timed, missing = survey.timed(self.sample), survey.missing(book, 1, self.sample)
        precision = "" if self.precision == "float32" else f" --precision {self.precision}"
        raise BadInput(
            f"{self.target} has {len(timed) - len(missing)} of the {len(timed)} prices that this space needs for "
            f"{task.classes} classes and images of {task.image} pixels. While the device is there: sartor measure "
            f"--target ssh://user@host --space {SPACES.reference(space)} --classes {task.classes} --image "
            f"{task.image} --channels {task.channels}{precision} --out {self.target}"
        )

    @property
    def _settings(self) -> Settings:
        return (self.networks, self.seed, self.rounds, self.sample)

    def _known(self, survey: Survey, book: PriceBook, settings: Settings) -> CostTable | None:
        """The whole table, where the book has it."""
        *_, rounds, sample = settings
        notes = book.fits.get(survey.subject(settings))
        line = Fit.from_json(notes)
        if line is None or survey.missing(book, rounds, sample):
            return None
        return survey.table(survey.prices(book, sample)[0], line, book.identity, notes)

    def _measured(self, survey: Survey, book: PriceBook, tick: Tick, cache: Path | None) -> CostTable:
        """Time what the book does not have, and whole networks with it, in one sitting."""
        rng, subject = np.random.default_rng([self.seed, 0x1A7]), survey.subject(self._settings)
        missing = survey.missing(book, self.rounds, self.sample)
        macs = survey.form({k: Price.exact(c.macs) for k, c in survey.counts.items()})
        chosen = networks(survey.space, macs, self.networks, rng)
        builds = self._builds(survey.space, survey.task, missing, chosen)
        sitting = Sitting.open(cache, book.identity, subject, builds)
        times, conditions = self._times(builds, sitting, rng, tick)
        _enter(book, missing, survey.names, times, self.rounds)
        prices, error = survey.prices(book, self.sample)
        picks, alike = [a.picks for a in chosen], dict.fromkeys(survey.each, Price.exact(1.0))
        sums, sizes = (survey.form(p).batch(picks).tolist() for p in (prices, alike))
        measured = [float(np.median(times[f"network {i}"])) for i in range(len(chosen))]
        line = fit(sums, measured, sizes, float(np.quantile([p.value for p in prices.values()], 0.05)))
        timed = len(survey.timed(self.sample))
        notes = line.to_json() | {
            "networks": [list(a.picks) for a in chosen],
            "measured_ms": measured,
            "reference_ms": float(np.median(times[_REFERENCE])),
            "rounds": self.rounds,
            "timed_parts": timed,
            "inferred_parts": len(survey.each) - timed,
            "inferred_median_error": error,
            "corrections": [],
            **({"conditions": conditions} if conditions else {}),
        }
        book.fits[subject] = notes
        book.save()
        sitting.end()
        return survey.table(prices, line, book.identity, notes)

    def _builds(self, space: Space, task: Task, parts: Mapping[str, Part], chosen: list[Arch]) -> dict[str, Build]:
        """All that belongs into one sitting: how it is built, and the shape of its input."""
        from torch import nn

        from sartor.deploy.runtimes.base import Reference

        image: Shape = (task.channels, task.image, task.image)
        builds: dict[str, Build] = {_REFERENCE: (Reference, Reference.shape)}
        builds |= {f"part {key}": (p.build, p.in_shape) for key, p in parts.items()}
        builds |= {f"idle {shape}": (nn.Identity, shape) for shape in sorted({p.in_shape for p in parts.values()})}
        for i, arch in enumerate(chosen):
            builds[f"network {i}"] = (partial(as_deployed, space, arch, task), image)
        return builds

    def _times(
        self, builds: Mapping[str, Build], sitting: Sitting, rng: np.random.Generator, tick: Tick
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Milliseconds in every round of all that belongs into one sitting, the rounds' common speed taken out.

        And what the machine was like meanwhile.
        """
        measure = partial(tick, f"{self.name}: measure")
        with self.deployed_under().stopwatch(builds, partial(tick, f"{self.name}: build")) as watch:
            times = interleaved(
                watch, list(builds), self.rounds, self.visit_ms / 1e3, rng, lambda n: measure(n, self.rounds),
                sitting.medians, sitting.keep,
            )  # fmt: skip
            return polished(times), watch.conditions()


@final
@dataclass(frozen=True, kw_only=True)
class Int8Latency(Latency):
    """The latency of networks in 8 bits."""

    name: ClassVar[str] = Latency.name
    precision: ClassVar[Literal["float32", "int8"]] = "int8"

    def deployed_under(self) -> Runtime:
        """The same runtime, which quantises modules."""
        return replace(super().deployed_under(), precision=self.precision)


def _told(timing: Timing) -> Measured:
    told = {"conditions": dict(timing.conditions)} if timing.conditions else {}
    return Measured(timing.p50, timing.high, {"timing": timing.to_json(), **told}, timing.low)


def _given(model: nn.Module | Path) -> nn.Module | Path:
    """A model that need not be built."""
    return model


def as_deployed(space: Space, arch: Arch, task: Task) -> nn.Module:
    """A network of the space with fresh weights and its normalisation inside, as it would be exported."""
    from sartor.deploy.module import Deployed

    return Deployed(space.network(arch, task), (127.5,) * task.channels, (63.75,) * task.channels)


def _enter(
    book: PriceBook, parts: Mapping[str, Part], names: Mapping[str, str], times: Mapping[str, Array], rounds: int
) -> None:
    """Put newly measured parts into the book, at the machine speed that the book's prices refer to."""
    now = float(np.median(times[_REFERENCE]))
    if book.reference_ms is None:
        book.reference_ms = now
    pace = book.reference_ms / now
    for key, part in parts.items():
        idle = float(np.median(times[f"idle {part.in_shape}"]))
        net = np.maximum(times[f"part {key}"] - idle, 0.0) * pace
        low, high = interval(net)
        book.prices[names[key]] = (Price(float(np.median(net)), low, high), rounds)
