"""How methods that train one set of weights for all of a space's options train it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from sartor.data.augment import Strength
from sartor.engine.evaluate import recalibrate
from sartor.engine.network import calibration
from sartor.engine.recipe import Recipe
from sartor.methods.base import Job, Method


@dataclass(frozen=True, kw_only=True)
class Sharing(Method):
    """A method that trains shared weights by SGD without averaging; the numbers are those of DARTS."""

    epochs: int = 50
    batch: int = 64
    lr: float = 0.025
    momentum: float = 0.9
    weight_decay: float = 3e-4
    clip: float = 5.0
    augment: Strength = "standard"

    def __post_init__(self) -> None:
        self.recipe()  # refuses what cannot be trained

    def recipe(self) -> Recipe:
        """The training of the shared weights: cosine decay from 0.025 to 0.001, or likewise."""
        return Recipe(
            epochs=self.epochs, batch=self.batch, lr=self.lr, last_lr=min(0.001, self.lr / 25),
            weight_decay=self.weight_decay, momentum=self.momentum, warmup=0.0, smoothing=0.0, ema=0.0,
            clip=self.clip, augment=self.augment,
        )  # fmt: skip


def recalibrate_paths(job: Job, net: nn.Module, batch: int = 240) -> None:
    """Batch-norm statistics of a supernet over random paths, and evaluation mode: how its networks are measured."""

    def forward(x: Tensor, k: int) -> Tensor:
        out: Tensor = net(x, job.space.sample_picks(job.seeds.rng("calibrate", k), len(x)))
        return out

    recalibrate(net, calibration(job.feed, job.splits, batch), job.engine.cast(forward))
    net.eval()
