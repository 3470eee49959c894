"""Mini-batches as a pure function of the epoch: a resumed run sees what an uninterrupted one would have seen."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from sartor.core.errors import BadInput
from sartor.core.seeds import Seeds
from sartor.data.base import Images, Index

Batch = tuple[Tensor, Tensor]
_AHEAD = 4  # batches decoded ahead of the consumer


@final
class Batches:
    """Batches of `images` at `index`, uint8 pixels (B, C, S, S) and int64 labels (B,) on `device`.

    `batch` counts the images of all processes together. The order of these global batches does not depend on
    `world`; each rank takes its slice of every one. Training: the defaults. Evaluation: shuffle and drop_last False;
    a rank's slice of a last batch smaller than `world` may then be empty, so that all ranks do equally many steps.
    """

    def __init__(
        self,
        images: Images,
        index: Index,
        batch: int,
        seeds: Seeds,
        name: str,
        *,
        shuffle: bool = True,
        drop_last: bool = True,
        device: str | torch.device = "cpu",
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if len(index) == 0 or batch < 1 or not 0 <= rank < world:
            raise BadInput(
                f"batches need images, batch >= 1 and 0 <= rank < world, but got {len(index)} images, batch={batch}, "
                f"rank={rank}, world={world}."
            )
        self.images, self.index = images, np.ascontiguousarray(index, np.int64)
        self.batch = min(batch, len(index))  # a split smaller than the batch is one batch
        if drop_last and self.batch < world:
            raise BadInput(
                f"a training batch must hold at least one image a process, but holds {self.batch} for {world} "
                "processes. Use fewer processes or a larger batch."
            )
        self.seeds, self.name, self.shuffle, self.drop_last = seeds, name, shuffle, drop_last
        self.device, self.rank, self.world = torch.device(device), rank, world

    def __len__(self) -> int:
        whole, rest = divmod(len(self.index), self.batch)
        return whole + (rest > 0 and not self.drop_last)

    def order(self, epoch: int) -> Index:
        """The images' indices in the global order of this epoch."""
        if not self.shuffle:
            return self.index
        return self.seeds.rng(f"batches/{self.name}", epoch).permutation(self.index)

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of epoch `number`, from batch `start` on."""
        shares = [self._share(k) for k in range(start, len(self))]
        order = self.order(number)
        pixels = self.images.resident(self.device)
        if pixels is not None:
            return self._from_memory(pixels, order, shares)
        return self._decoded(order, shares)

    def _share(self, k: int) -> slice:
        """Where this rank's part of global batch `k` lies in the order."""
        low, high = k * self.batch, min((k + 1) * self.batch, len(self.index))
        size = high - low
        return slice(low + size * self.rank // self.world, low + size * (self.rank + 1) // self.world)

    def _from_memory(self, pixels: Tensor, order: Index, shares: list[slice]) -> Iterator[Batch]:
        # The whole order goes to the device once: no host synchronisation inside the epoch.
        where = torch.from_numpy(order).to(self.device)
        labels = torch.from_numpy(self.images.labels[order]).to(self.device)
        for share in shares:
            yield pixels.index_select(0, where[share]), labels[share]

    def _decoded(self, order: Index, shares: list[slice]) -> Iterator[Batch]:
        """Batches read by a background thread, a few ahead; it ends when the consumer stops asking."""
        ready: queue.Queue[Batch | BaseException | None] = queue.Queue(_AHEAD)
        stop = threading.Event()
        thread = threading.Thread(target=self._produce, args=(order, shares, ready, stop), daemon=True)
        thread.start()
        try:
            while (item := ready.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item[0].to(self.device, non_blocking=True), item[1].to(self.device, non_blocking=True)
        finally:
            stop.set()
            while thread.is_alive():  # the producer may be waiting for room in the queue
                with contextlib.suppress(queue.Empty):
                    ready.get(timeout=0.05)
            thread.join()

    def _produce(self, order: Index, shares: list[slice], ready: queue.Queue[Any], stop: threading.Event) -> None:
        try:
            for share in shares:
                if stop.is_set():
                    return
                index = order[share]
                pixels, labels = self.images.pixels(index), torch.from_numpy(self.images.labels[index])
                if self.device.type == "cuda":  # page-locked memory: the copy overlaps with computing
                    pixels, labels = pixels.pin_memory(), labels.pin_memory()
                ready.put((pixels, labels))
            ready.put(None)
        except BaseException as error:  # whatever happens here must reach the consumer, not die with the thread
            ready.put(error)
