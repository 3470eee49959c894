"""Networks trained alike: the same split of the data, the same short recipe, each on its own and resumable."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sartor.core.seeds import Seeds
from sartor.data.augment import statistics
from sartor.data.open import open_data
from sartor.data.split import split
from sartor.engine.device import Engine
from sartor.engine.evaluate import accuracy
from sartor.engine.feed import Feed
from sartor.engine.network import Teacher, train_network
from sartor.engine.recipe import Recipe
from sartor.engine.whitening import held
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter


class Alike:
    """`recipe` trains every network given to `train`; results stand in ``out/<name>/result.json``.

    `most` limits the training images, for short runs.
    """

    def __init__(
        self,
        data: str | Path,
        out: Path,
        device: str,
        recipe: Recipe,
        image: int | None = None,
        most: int | None = None,
    ) -> None:
        self.engine, self.out, self.recipe = Engine(device), out, recipe
        images = open_data(str(data), image)
        self.engine.set_threads(images.task.image)
        self.task, self.seeds = images.task, Seeds(0)
        self.splits = split(images, self.seeds.rng("split"), 0.2, 0.15)
        if most is not None:
            some = np.sort(self.seeds.rng("some images").permutation(self.splits.train)[:most])
            self.splits = replace(self.splits, train=some)
        mean, std = statistics(images, self.splits.train)
        self.feed = Feed(images, tuple(mean), tuple(std), self.seeds, self.engine)

    def train(
        self, name: str, build: Any, teacher: Teacher | None = None, seconds: float | None = None
    ) -> dict[str, Any]:
        """Train the network that `build()` makes, from scratch: its errors, its size, seconds; it stays in `net`.

        For so many `seconds`, or for the recipe's epochs.
        """
        done = self.out / name / "result.json"
        if done.exists():
            return json.loads(done.read_text())
        torch.manual_seed(self.seeds.number("network"))
        self.net = net = self.engine.place(build())
        parameters = sum(p.numel() for p in net.parameters())
        run, start = Run(self.out / name, Reporter(quiet=True)), time.monotonic()
        with held(net, self.feed, self.splits.train, fresh=True) if self.recipe.whiten else nullcontext():
            history = train_network(net, teacher, self.recipe, self.feed, self.splits, run, "alike", seconds=seconds)
        seconds = time.monotonic() - start
        val, test = (accuracy(net, self.feed, part) for part in (self.splits.val, self.splits.test))
        result = {
            "parameters": parameters, "val_accuracy": val, "test_accuracy": test, "test_error": 100 - test,
            "seconds": seconds, "epochs": len(history), "loss": [h["loss"] for h in history],
            "speeds": [h["images_per_second"] for h in history],
            "images_per_second": max((h["images_per_second"] for h in history), default=None),
        }  # fmt: skip
        done.parent.mkdir(parents=True, exist_ok=True)
        done.write_text(json.dumps(result, indent=2) + "\n")
        print(f"{name}: {parameters:,} parameters, {test:.2f} % on test images, {seconds:.0f} s", flush=True)
        return result
