"""How validation images fare on chosen paths: counted row by row, saved as it grows, so that it can resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sartor.drawn import Drawn
from sartor.engine import checkpoint
from sartor.engine.device import Engine
from sartor.engine.graphs import Repeated
from sartor.errors import RunError
from sartor.methods.base import Job
from sartor.spaces.base import Picks

_SAVE_EVERY = 5.0  # seconds between saves

# (row, pass, first image, number of images) -> the path of each of these images
Paths = Callable[[int, int, int, int], Picks]


def per_forward(engine: Engine) -> int:
    """Images in one evaluation pass (several rows share a pass on small data); a GPU waits for its host on fewer."""
    return 4608 if engine.device.type == "cuda" else 1152


def _logits(engine: Engine, net: Any, tensors: Sequence[Tensor], same: Any) -> Tensor:
    images, *paths = tensors
    with engine.autocast():
        logits: Tensor = net(images, Drawn(tuple(paths), same))
    return logits


class Tally:
    """For every row and validation image: how often it was right, and the sum of its right class's probability.

    A row is whatever the caller compares (a decision, a pass); each is measured `passes` times.
    """

    def __init__(self, job: Job, name: str, rows: int, passes: int = 1) -> None:
        self.job, self.name, self.passes = job, name, passes
        self.file = job.run.path / "search" / f"{name}.tally.safetensors"
        self.right = np.zeros((rows, len(job.splits.val)), np.int64)
        self.chance = np.zeros(self.right.shape)
        self.position, self.per_forward = 0, per_forward(job.engine)
        if job.engine.agree(self.file.exists()):
            self._load()

    def run(self, net: Any, paths: Paths) -> None:
        """Evaluate what is missing; chunks of rows are dealt out over the processes."""
        engine, (rows, images) = self.job.engine, self.right.shape
        together = max(1, self.per_forward // images)
        chunks = [range(r, min(r + together, rows)) for r in range(0, rows, together)]
        work = [(number, chunk) for number in range(self.passes) for chunk in chunks]
        self.logits = Repeated(partial(_logits, engine, net), engine.device, keep=2)  # the last batch is smaller
        saved = time.monotonic()
        with self.job.run.reporter.bar(self.name, len(work)) as bar:
            for first in range(self.position, len(work), engine.world):
                right, chance = np.zeros_like(self.right), np.zeros_like(self.chance)
                if first + engine.rank < len(work):
                    self._evaluate(right, chance, *work[first + engine.rank], net, paths)
                self.right += engine.sum(right)
                self.chance += engine.sum(chance)
                self.position = min(len(work), first + engine.world)
                bar.to(self.position)
                if time.monotonic() - saved > _SAVE_EVERY or self.position == len(work):
                    saved = time.monotonic()
                    self._save()

    @torch.no_grad()
    def _evaluate(
        self, right: np.ndarray, chance: np.ndarray, number: int, chunk: range, net: Any, paths: Paths
    ) -> None:
        job, start = self.job, 0
        for x, y in job.feed.plain(job.splits.val, self.per_forward):
            part = (slice(chunk.start, chunk.stop), slice(start, start + len(y)))
            who = np.concatenate([paths(row, number, start, len(y)) for row in chunk])
            many = x.repeat(len(chunk), 1, 1, 1).contiguous(memory_format=torch.channels_last)
            drawn = net.prepared(who, many.device)
            if isinstance(drawn, Drawn):
                logits = self.logits((many, *drawn.tensors), drawn.same)
            else:
                with job.engine.autocast():
                    logits = net(many, who)
            truth = y.repeat(len(chunk))
            right[part] += (logits.argmax(1) == truth).view(len(chunk), -1).cpu().numpy()
            likely = logits.double().softmax(1).gather(1, truth[:, None])
            chance[part] += likely.view(len(chunk), -1).cpu().numpy()
            start += len(y)

    def _save(self) -> None:
        if self.job.run.writer:
            counts = {"right": torch.from_numpy(self.right), "chance": torch.from_numpy(self.chance)}
            checkpoint.save(self.file, {**counts, "position": self.position})

    def _load(self) -> None:
        saved = checkpoint.load(self.file)
        right, chance, position = (saved.get(k) for k in ("right", "chance", "position"))
        shapes = {getattr(t, "shape", None) for t in (right, chance)}
        if shapes != {self.right.shape} or not isinstance(position, int):
            raise RunError(f"{self.file} is not of this search. Delete it to measure again.")
        assert right is not None and chance is not None
        self.right, self.chance, self.position = right.numpy(), chance.numpy(), position
