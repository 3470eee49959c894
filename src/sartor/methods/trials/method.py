"""A score from short trainings, without shared weights.

Networks inside the limits are trained for a short while, the best of them for three times as long, and so on: rungs of
a ladder, whose top is the training of the network that comes out. What a rung measured is fitted (`likeness`); the
next one trains the best so far on from their weights, the score's exact optimum inside the limits, and optima of scores
drawn from what is still uncertain. The space's landmarks, networks that a person would train instead, are in the first
rung by right, so that what comes out is measured to be no worse than the best of them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, final

from sartor.core.errors import BadInput
from sartor.engine.recipe import MUON, Recipe
from sartor.insight.ranking import quality
from sartor.methods.base import Effort, Found, Job, Method
from sartor.methods.trials.crew import Crew
from sartor.methods.trials.ladder import Ladder
from sartor.runs.codec import encode

_SHARE_ON_GPU = 0.45


@final
@dataclass(frozen=True, kw_only=True)
class Trials(Method):
    """Short trainings of networks inside the budgets, longer ones of the best: every space, no shared weights."""

    home: ClassVar[str] = "edge"
    share: ClassVar[float] = 0.35

    networks: int = 0  # of the first rung; 0: as many as suit the time
    rungs: int = 3
    epochs: int = 3  # of the first rung's trainings; 0: as many as the time allows
    processes: int = 0  # that train networks side by side; 0: as many as suit the device and its host
    batch: int = 64
    lr: float = 0.1
    muon: float = 0.0  # rate of orthogonal steps, as in the final training
    whiten: bool = False  # the first convolution, likewise
    weight_decay: float = 5e-4
    smoothing: float = 0.1

    def __post_init__(self) -> None:
        if min(self.networks, self.epochs, self.processes) < 0 or self.rungs < 1:
            raise BadInput(f"method.networks, epochs and processes >= 0 and rungs >= 1 must hold, but got {self}.")
        self.recipe(0)  # refuses what cannot be trained

    @classmethod
    def preset(cls, effort: Effort, images: int, device: str = "cpu") -> dict[str, Any]:
        """As many epochs as the time allows, where there is one."""
        sizes = (256, 128, 128) if device == "cuda" else (64, 64, 32)
        batch = next(size for size, least in zip(sizes, (20_000, 1000, 0), strict=True) if images >= least)
        length = {"epochs": 10, "networks": 40} if effort == "thorough" else {"epochs": 0}
        # At four times the rate of a small batch, deep networks had learnt next to nothing after a hundred steps.
        if device == "cuda":
            return {**length, "batch": batch, "lr": 0.1 * max(1.0, batch / 128)}
        lr = 0.1 * batch / 64
        return {**length, "batch": batch, "lr": lr, "muon": MUON * lr, "whiten": True}

    def recipe(self, epochs: int) -> Recipe:
        """A constant rate: a training can go on at any time, and its moving average stands for the decay."""
        return Recipe(
            epochs=epochs, batch=self.batch, lr=self.lr, last_lr=self.lr, muon=self.muon, warmup=0.0,
            weight_decay=self.weight_decay, smoothing=self.smoothing, augment="light", mixed=True, whiten=self.whiten,
        )  # fmt: skip

    def share_on(self, device: str) -> float:
        """A GPU trains the network that comes out for hundreds of epochs: it can spare some."""
        return self.share if device == "cpu" else _SHARE_ON_GPU

    def prepare(self, job: Job) -> Crew | None:
        """The processes that train networks side by side."""
        return Crew.of(job, self.recipe(0), self.processes)

    def search(self, job: Job) -> Found:
        """All rungs; what was trained before an interruption is kept."""
        if self.epochs == 0:
            job.needs_time("method.epochs")
        share = self.share_on(job.engine.device.type)
        ladder = Ladder(job, self.recipe(0), self.epochs, self.networks, self.rungs, self.processes, share)
        with closing(ladder):
            for rung in range(ladder.schedule.rungs):
                ladder.climb(rung)
        score, trials, held_out = ladder.outcome()
        found = None
        if held_out is not None:
            found = quality(held_out["predicted"], held_out["measured"], job.seeds.rng("bootstrap"))
        facts = {"trials": encode(trials), "held_out": held_out, "most": ladder.field.most}
        facts["gauged"] = encode(tuple(ladder.field.gauged.values()))
        return Found(score, f"% {job.task.outcome}", found, facts, ladder.starts())
