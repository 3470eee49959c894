"""One trial: a network trained for a while, then judged on validation images."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

from torch import Tensor, nn

from sartor.core.arch import Arch, tag
from sartor.core.errors import Diverged
from sartor.core.seeds import Seeds
from sartor.data.base import Images, Index, Splits
from sartor.engine import checkpoint, whitening
from sartor.engine.device import Engine, Way
from sartor.engine.evaluate import accuracy
from sartor.engine.feed import Feed
from sartor.engine.fit import Training, fit, nothing
from sartor.engine.hands import Hands
from sartor.engine.length import Length
from sartor.engine.origin import Origin
from sartor.engine.plan import fastest, seconds_per_step
from sartor.engine.recipe import ELSEWHERE, Recipe
from sartor.engine.seeding import seeded
from sartor.methods.base import Job
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.runs.schema import Pace, Trial
from sartor.spaces.base import Space
from sartor.spaces.supernet import StepDraw

GROWTH: int = 3  # so much longer a network of the next rung is trained, all in all
_JUDGES = 1000  # validation images that judge a trial, at most, below the last rung
_PATIENCE = 0.5  # seconds for which a network's steps are timed


@dataclass(frozen=True)
class Work:
    """A network to be trained for its rung's epochs in all, on from its trial `before` where there is one."""

    arch: Arch
    rung: int
    why: str
    name: str  # of a landmark
    before: Trial | None
    epochs: float  # of the first rung
    pace: Pace | None
    last: bool  # whether the rung is the last one


@final
@dataclass(frozen=True, eq=False)
class Bench:
    """What it takes to train and judge any network of the space; another process gets one of its own (`crew`)."""

    space: Space
    feed: Feed
    splits: Splits
    path: Path  # of the run
    recipe: Recipe
    seconds: float | None  # of the whole search: no trial takes longer
    origin: Origin | None = None  # where networks take weights from

    @classmethod
    def of(cls, job: Job, recipe: Recipe) -> Bench:
        """A job's; where weights come from elsewhere, the first layers learn least."""
        if job.origin is not None:
            recipe = replace(recipe, first_rate=ELSEWHERE["first_rate"])
        return cls(job.space, job.feed, job.splits, job.run.path, recipe, job.seconds, job.origin)

    def __reduce__(self) -> tuple[Any, ...]:
        """An engine stays where it is: what is sent opens one on the same kind of device."""
        f, rest = self.feed, (self.splits, self.path, self.recipe, self.seconds, self.origin)
        return _opened, (f.engine.device.type, self.space, f.images, f.mean, f.std, f.seeds, *rest)

    def training(self, arch: Arch, rung: int) -> tuple[Training, nn.Module]:
        """The training of a network with fresh weights, or those from elsewhere that it can take; and the network."""
        task, engine = self.feed.task, self.feed.engine
        with seeded(self.feed.seeds.number(f"trial/{tag(arch.picks)}")):
            net = engine.place(self.space.network(arch, task))
        if self.origin is not None:
            self.origin.into(net, task.classes)
        elif self.recipe.whiten:
            whitening.begin(net, self.feed, self.splits.train, fresh=True)
        shared = Hands(net, engine)

        def loss(x: Tensor, y: Tensor, drawn: StepDraw) -> dict[str, Tensor]:
            return {"loss": task.loss(shared(x), y, self.recipe.smoothing)}

        run = Run(self.path, Reporter(silent=True), engine.rank == 0, engine.agree)
        name = f"{tag(arch.picks)}-{rung}"
        return Training(name, net, loss, self.recipe, self.feed, self.splits.train, run, draw=nothing), net

    def fastest(self, arch: Arch, cores: int, patience: float = _PATIENCE) -> Way:
        """The way in which so many cores train a network fastest; the engine goes on in it."""
        engine = self.feed.engine
        way: Way = engine.agree(fastest(self.training(arch, 0)[0], min(patience, _PATIENCE), cores)[1])
        engine.use(way)
        return way

    def pace(self, arch: Arch, patience: float = _PATIENCE) -> tuple[float, float]:
        """Seconds of a network's step, and those before the first one that is as fast as all later ones."""
        begin, patience = time.monotonic(), min(patience, _PATIENCE)
        step = seconds_per_step(self.training(arch, 0)[0], patience)
        step, taken = self.feed.engine.agree((step, time.monotonic() - begin))
        return step, max(0.0, taken - patience)

    def measure(self, work: Work) -> Trial:
        """Train and judge; a network that diverges is worth nothing."""
        engine, splits, before = self.feed.engine, self.splits, work.before
        if work.pace is not None and work.pace.threads:
            engine.use(Way(work.pace.hands, work.pace.threads))
        training, net = self.training(work.arch, work.rung)
        if before is not None:
            net.load_state_dict(checkpoint.load(trial_file(self.path, before.picks, before.rung))["net"])
        done = before.epochs if before else 0.0
        first = done / GROWTH**before.rung if before else self._epochs(work, training)
        start = time.monotonic()
        length = Length(first * GROWTH**work.rung - done, None if self.seconds is None else start + self.seconds)
        seconds = before.seconds if before else 0.0
        try:
            fit(replace(training, length=length))
            seconds += float(engine.agree(time.monotonic() - start))
            judges = self.feed.seeds.rng("judges").permutation(splits.val)
            right = accuracy(net, self.feed, judges[: judged(splits.val, work.last)])
        except Diverged:
            right = 0.0
        name = work.name or (before.name if before else "")
        return Trial(work.arch.picks, work.rung, right, seconds, done + length.end, work.why, name)

    def _epochs(self, work: Work, training: Training) -> float:
        """Epochs of a network in the first rung: all the same, or the more the faster its steps are.

        A network whose step takes n seconds errs by about ``A n^-a + B e^-a`` after e epochs. At the end all have had
        the same time, ``e = T / n``, which is best where ``A n^-a = B e^-a``. Trials of the same time would be best for
        a smaller network: it learns faster, and loses in the end. Trials of ``e = c n^-p`` epochs are best where
        ``A n^-a = p B e^-a``: at the same network if ``p = f^a``, f being the share of its epochs that a trial sees.
        """
        if work.pace is None or work.pace.power == 0:
            return work.epochs
        own = float(self.feed.engine.agree(seconds_per_step(training, _PATIENCE)))
        return float(work.epochs * (work.pace.step / own) ** work.pace.power)


def judged(val: Index, last: bool) -> int:
    """How many of the validation images judge a trial: on the last rung all of them."""
    return len(val) if last else min(_JUDGES, len(val))


def trial_file(path: Path, picks: tuple[int, ...], rung: int) -> Path:
    """Where a trial leaves its weights."""
    return path / f"search/{tag(picks)}-{rung}.checkpoint.safetensors"


def _opened(
    device: str, space: Space, images: Images, mean: tuple[float, ...], std: tuple[float, ...], seeds: Seeds, *rest: Any
) -> Bench:
    return Bench(space, Feed(images, mean, std, seeds, Engine(device)), *rest)
