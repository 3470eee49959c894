"""What NASI's scripts share: real CIFAR-10 images, NAS-Bench-201's accuracies, and results that outlive a killed run.

SARTOR_TEST_DATA names a folder with ``cifar10`` (official binary files, or .npz parts) and
``nasbench201/nasbench201.csv.gz``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sartor.bench.tables import Table, read_table
from sartor.data.open import open_data
from sartor.spaces.nasbench201.space import NasBench201

ROOT = Path(__file__).resolve().parents[1]
DATA = Path(os.environ.get("SARTOR_TEST_DATA", "../shared/data"))
PARTS = ROOT / "runs" / "parts"  # lines of unfinished measurements; not committed
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of CIFAR-10's training images


class Cifar:
    """CIFAR-10's training images; batches are normalised and on the device."""

    def __init__(self, device: str = "cpu") -> None:
        self.images, self.device = open_data(DATA / "cifar10"), device
        every = np.arange(len(self.images))
        self.train = every if self.images.test is None else np.setdiff1d(every, self.images.test)
        self.mean, self.std = (torch.tensor(v)[:, None, None] for v in (MEAN, STD))

    def batch(self, count: int, *seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        """`count` images and their labels, the same for the same seed on the same files."""
        index = np.random.default_rng(seed).choice(self.train, count, replace=False)
        x = (self.images.pixels(index).float() / 255 - self.mean) / self.std
        return x.to(self.device), torch.from_numpy(self.images.labels[index]).long().to(self.device)


def nasbench201() -> Table:
    return read_table([DATA / "nasbench201/nasbench201.csv.gz"], NasBench201())


class Lines:
    """Measurements as lines of JSON, one file a worker: a run that was killed goes on after its last line."""

    def __init__(self, name: str, shard: int = 0, shards: int = 1) -> None:
        self.name, self.shard, self.shards = name, shard, shards
        self.path = PARTS / f"{name}_{shard}_of_{shards}.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            self.path.write_text(self.path.read_text() + "\n")  # the last run was killed while writing

    def all(self) -> list[dict[str, Any]]:
        """The lines of all workers, of earlier runs with other numbers of them too."""
        found = []
        for path in sorted(PARTS.glob(f"{self.name}_*_of_*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    found.append(json.loads(line))
                except json.JSONDecodeError:  # cut off by the end of an earlier run
                    continue
        return found

    def mine(self, keys: Iterable[Any]) -> list[Any]:
        """The share of this worker in the keys that no line has yet."""
        done = {line["key"] for line in self.all()}
        return [k for n, k in enumerate(keys) if n % self.shards == self.shard and k not in done]

    def add(self, **values: Any) -> None:
        """One more line, on disk when this returns."""
        with self.path.open("a") as file:
            file.write(json.dumps(values) + "\n")


def spread(workers: int) -> int:
    """Run this very script once a worker, each with its shard, and wait for all; how many failed."""
    command = [sys.executable, *sys.argv]
    running = [subprocess.Popen([*command, "--shard", f"{n}/{workers}"]) for n in range(workers)]
    return sum(process.wait() != 0 for process in running)
