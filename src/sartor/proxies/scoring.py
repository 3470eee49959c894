"""Proxies of many networks: counted ones from tables, the others network by network, on a device, in several processes.

The weights of a network follow from its number, so the values do not depend on who measures it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sartor.core.arch import Arch
from sartor.core.config import build, check
from sartor.core.errors import BadInput
from sartor.core.registry import COSTS, PROXIES
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.core.threads import bounded
from sartor.engine.device import check_device
from sartor.engine.seeding import seeded
from sartor.spaces.base import Space

Values = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scoring:
    """What is measured, on what and where; `batch` is images and labels on the CPU."""

    space: Space
    task: Task
    names: Sequence[str]
    options: Mapping[str, Any]
    batch: tuple[Tensor, Tensor]
    seeds: Seeds
    device: str = "cpu"
    workers: int = 1  # processes; with several, each has one thread

    def __post_init__(self) -> None:
        check(self, workers=">= 1")
        bounded(self.workers, "workers")
        check_device(self.device)
        self.proxies()  # refuses names and options before anything is measured

    def proxies(self) -> dict[str, Any]:
        """The proxies by their names, each with those of the options that it has."""
        own = {name: {f.name for f in fields(PROXIES[name])} for name in self.names}
        known = set().union(*own.values())
        nobodys = sorted(set(self.options) - known)
        if nobodys:
            has = ", ".join(sorted(known)) or "none"
            raise BadInput(f"the proxies {', '.join(self.names)} have no option {', '.join(nobodys)}; they have {has}.")
        return {
            name: build(PROXIES[name], {k: v for k, v in self.options.items() if k in own[name]}, "proxy")
            for name in self.names
        }

    def __call__(self, archs: Sequence[Arch]) -> tuple[Values, dict[str, float]]:
        """Every proxy of every network, and networks per second of each proxy, of all workers together."""
        values: Values = {}
        speed: dict[str, float] = {}
        for name, proxy in self.proxies().items():
            if proxy.cost is not None:  # additive: a table prices all networks at once
                start = time.perf_counter()
                form = COSTS[proxy.cost]().table(self.space, self.task).form
                values[name] = np.asarray(form.batch(np.array([a.picks for a in archs])), np.float64)
                speed[name] = len(archs) / max(time.perf_counter() - start, 1e-9)
        rest = [name for name in self.names if name not in values]
        if rest:
            found, seconds = self._measure(rest, archs)
            values |= found
            speed |= {name: len(archs) / max(seconds[name], 1e-9) for name in rest}
        return {name: values[name] for name in self.names}, {name: speed[name] for name in self.names}

    def _measure(self, names: Sequence[str], archs: Sequence[Arch]) -> tuple[Values, dict[str, float]]:
        """Values, and seconds of every proxy; in several processes, of the one that took longest."""
        workers = min(self.workers, len(archs))
        numbered = list(enumerate(archs))
        if workers == 1:
            parts = [_share(self, names, numbered)]
        else:
            shares = [numbered[w::workers] for w in range(workers)]
            with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
                parts = list(pool.map(_share, [self] * workers, [names] * workers, shares))
        values = {name: np.zeros(len(archs)) for name in names}
        for numbers, found, _ in parts:
            for name in names:
                values[name][numbers] = found[name]
        return values, {name: max(seconds[name] for _, _, seconds in parts) for name in names}


def _share(
    scoring: Scoring, names: Sequence[str], numbered: Sequence[tuple[int, Arch]]
) -> tuple[list[int], Values, dict[str, float]]:
    """One worker's networks."""
    proxies, (x, y) = scoring.proxies(), (t.to(scoring.device) for t in scoring.batch)
    values: Values = {name: np.zeros(len(numbered)) for name in names}
    seconds = dict.fromkeys(names, 0.0)
    for place, (number, arch) in enumerate(numbered):
        with seeded(scoring.seeds.number("proxy network", number)):
            net = scoring.space.network(arch, scoring.task)
        net = net.to(scoring.device)
        for name in names:
            start = time.perf_counter()
            values[name][place] = proxies[name](net, x, y)  # a number: the device has finished
            seconds[name] += time.perf_counter() - start
    return [number for number, _ in numbered], values, seconds
