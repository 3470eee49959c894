"""Images on their way into a network: batched, augmented, normalised, on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.data.augment import Augment
from sartor.data.base import Images, Index
from sartor.data.batches import Batches
from sartor.engine.device import Engine


@dataclass(frozen=True, eq=False)
class Feed:
    """A data source with its normalisation (in units of 0..255, from the training split)."""

    images: Images
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seeds: Seeds
    engine: Engine

    @property
    def task(self) -> Task:
        """What the images are for."""
        return self.images.task

    def train(
        self, index: Index, batch: int, augment: Augment, name: str, epoch: int, start: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The training batches of one epoch, from `start` on: a function of the seed, the name and the epoch alone."""
        batches = self.batches(index, batch, name)
        for k, (pixels, labels) in enumerate(batches.epoch(epoch, start), start):
            moment = (epoch, k, self.engine.rank)
            generator = self.seeds.torch(f"augment/{name}", *moment, device=pixels.device)
            yield self._ready(augment(pixels, generator)), labels

    def batches(self, index: Index, batch: int, name: str) -> Batches:
        """The share of shuffled training batches that this process takes."""
        e = self.engine
        return Batches(self.images, index, batch, self.seeds, name, device=e.device, rank=e.rank, world=e.world)

    def plain(self, index: Index, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every image once, in order, as it is; the same in every process."""
        ordered = Batches(
            self.images, index, batch, self.seeds, "plain", shuffle=False, drop_last=False, device=self.engine.device
        )
        for pixels, labels in ordered.epoch(0):
            yield self._ready(pixels.float()), labels

    def _ready(self, pixels: Tensor) -> Tensor:
        mean, std = self._statistics
        return ((pixels - mean) / std).contiguous(memory_format=torch.channels_last)

    @cached_property
    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation on the device, sent there once."""
        device = self.engine.device
        mean, std = torch.tensor(self.mean, device=device), torch.tensor(self.std, device=device)
        return mean[:, None, None], std[:, None, None]
