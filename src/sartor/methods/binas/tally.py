"""How validation images fare on chosen paths: counted row by row, saved as it grows, so that it can resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sartor.core.errors import RunError
from sartor.data.base import Index
from sartor.engine import checkpoint
from sartor.engine.device import Engine
from sartor.engine.replay import Repeated
from sartor.methods.base import Job
from sartor.spaces.base import Picks
from sartor.spaces.capabilities import prepared
from sartor.spaces.supernet import StepDraw

_SAVE_EVERY = 5.0  # seconds between saves

# (row, pass, first image, number of images) -> the path of each of these images
Paths = Callable[[int, int, int, int], Picks]


def per_forward(device: str) -> int:
    """Images in one evaluation pass (several rows share a pass on small data); a GPU waits for its host on fewer."""
    return 4608 if device == "cuda" else 1152


def _logits(engine: Engine, net: Any, tensors: Sequence[Tensor], same: Any) -> Tensor:
    images, *paths = tensors
    with engine.autocast():
        logits: Tensor = net(images, StepDraw(tuple(paths), same))
    return logits


def _mirror(images: Tensor, which: np.ndarray) -> Tensor:
    """The images, those of `which` left to right."""
    if not which.any():
        return images
    other = images.flip(3)
    if not which.all():  # rows share a pass on small data only: the mask is waited for
        other = torch.where(torch.from_numpy(which).to(images.device)[:, None, None, None], other, images)
    return other.contiguous(memory_format=torch.channels_last)


class Tally:
    """For every row and validation image: how often it was right, and the sum of its log-likelihoods.

    A row is whatever the caller compares (a decision, a pass); each is measured `passes` times. With `places`, (rows,
    images) of them in the list of validation images, every row has images of its own. With `mirror` every second row
    sees mirror images.
    """

    def __init__(
        self, job: Job, name: str, rows: int, passes: int = 1, places: Index | None = None, mirror: bool = False
    ) -> None:
        self.job, self.name, self.passes, self.places, self.mirror = job, name, passes, places, mirror
        self.file = job.run.path / "search" / f"{name}.tally.safetensors"
        self.right = np.zeros((rows, len(job.splits.val) if places is None else places.shape[1]))
        self.likelihood = np.zeros(self.right.shape)  # of the right class
        self.position, self.per_forward = 0, per_forward(job.engine.device.type)
        if job.engine.agree(self.file.exists()):
            self._load()

    def run(self, net: Any, paths: Paths) -> None:
        """Evaluate what is missing; chunks of rows are dealt out over the processes."""
        engine, (rows, images) = self.job.engine, self.right.shape
        together = max(1, self.per_forward // images)
        chunks = [slice(r, min(r + together, rows)) for r in range(0, rows, together)]
        work = [(number, chunk) for number in range(self.passes) for chunk in chunks]
        self.logits = Repeated(partial(_logits, engine, net), engine.device, keep=2)  # the last batch is smaller
        saved = time.monotonic()
        with self.job.run.reporter.bar(self.name, len(work)) as bar:
            for first in range(self.position, len(work), engine.world):
                dealt = work[first : first + engine.world]
                seen = np.zeros((engine.world, 2, together, images))
                if engine.rank < len(dealt):
                    seen[engine.rank] = self._evaluate(*dealt[engine.rank], together, net, paths)
                for (_, chunk), (right, likelihood) in zip(dealt, engine.sum(seen), strict=False):
                    count = chunk.stop - chunk.start
                    self.right[chunk] += right[:count]
                    self.likelihood[chunk] += likelihood[:count]
                self.position = first + len(dealt)
                bar.to(self.position)
                if time.monotonic() - saved > _SAVE_EVERY or self.position == len(work):
                    saved = time.monotonic()
                    self._save()

    @torch.no_grad()
    def _evaluate(self, number: int, chunk: slice, together: int, net: Any, paths: Paths) -> np.ndarray:
        """(2, together, images): right or wrong, and the log-likelihood; zeros below the chunk's last row."""
        job, start = self.job, 0
        rows = range(chunk.start, chunk.stop)
        seen = np.zeros((2, together, self.right.shape[1]))
        for many, truth in self._images(chunk):
            count = len(truth) // len(rows)
            if self.mirror:
                many = _mirror(many, np.repeat([row % 2 == 1 for row in rows], count))
            who = np.concatenate([paths(row, number, start, count) for row in rows])
            drawn = prepared(net, who, many.device)
            if isinstance(drawn, StepDraw):
                logits = self.logits((many, *drawn.tensors), drawn.same)
            else:
                with job.engine.autocast():
                    logits = net(many, who)
            both = torch.stack([job.task.right(logits, truth).double(), job.task.likelihood(logits, truth)])
            seen[:, : len(rows), start : start + count] = both.view(2, len(rows), -1).cpu().numpy()
            start += count
        return seen

    def _images(self, chunk: slice) -> Iterator[tuple[Tensor, Tensor]]:
        """The images of these rows and what they show, row after row, a part of every row at a time."""
        feed, val, rows = self.job.feed, self.job.splits.val, chunk.stop - chunk.start
        if self.places is None:
            for x, y in feed.plain(val, self.per_forward):
                many = x.repeat(rows, 1, 1, 1).contiguous(memory_format=torch.channels_last)
                yield many, y.repeat(rows, *(1,) * (y.ndim - 1))
            return
        for start in range(0, self.right.shape[1], self.per_forward):
            some = self.places[chunk, start : start + self.per_forward]
            yield from feed.plain(val[some.reshape(-1)], some.size)

    def _save(self) -> None:
        if self.job.run.writer:
            counts = {"right": torch.from_numpy(self.right), "likelihood": torch.from_numpy(self.likelihood)}
            checkpoint.save(self.file, {**counts, "position": self.position, "per_forward": self.per_forward})

    def _load(self) -> None:
        saved = checkpoint.load(self.file)
        names = ("right", "likelihood", "position", "per_forward")
        right, likelihood, position, forward = (saved.get(name) for name in names)
        shapes = {getattr(t, "shape", None) for t in (right, likelihood)}
        if shapes != {self.right.shape} or not isinstance(position, int) or not isinstance(forward, int):
            raise RunError(f"{self.file} is not of this search. Delete it to measure again.")
        assert right is not None and likelihood is not None
        self.right, self.likelihood, self.position = right.double().numpy(), likelihood.numpy(), position
        self.per_forward = forward  # paths are drawn a forward at a time: another device must go on with the same ones
