"""Timing on a machine that does other things at the same time.

What is compared is measured together: every round visits every workload once, in a new random order,
so that a slow spell of the machine falls on all of them. A visit calls the workload once unrecorded
and then repeatedly; its statistic is the median of those calls, which an interruption by another
process does not move. Over the rounds, `polished` takes out what the rounds as a whole did.
"""

from __future__ import annotations

import gc
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binom

from sartor.deploy import probe
from sartor.deploy.probe import visit

Array = NDArray[np.float64]
Workload = Callable[[], object]  # one inference, finished when it returns


@contextmanager
def threads_of_torch(threads: int) -> Iterator[None]:
    """`threads` for PyTorch's operators; the caller's number comes back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection inside a timed call."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Stopwatch(ABC):
    """Times networks by their names, wherever they are; `states` are what the machine told of itself meanwhile."""

    def __init__(self) -> None:
        self.states: list[dict[str, float]] = []

    @abstractmethod
    def visits(self, names: Sequence[str], seconds: float) -> Iterator[tuple[str, list[float]]]:
        """One visit of each, in this order: the milliseconds of every call during `seconds`."""

    def conditions(self) -> dict[str, Any]:
        """The ranges of clock and temperature, and whether the processor was slowed down, where the machine tells."""
        known = {name: [s[name] for s in self.states if name in s] for name in probe.STATES}
        return {name: [min(values), max(values)] for name, values in known.items() if values}


class InProcess(Stopwatch):
    """Times workloads in this process."""

    def __init__(
        self, workloads: Mapping[str, Workload], time: Callable[[Workload, float], list[float]] = visit
    ) -> None:
        super().__init__()
        self.workloads, self.time, self.rounds = workloads, time, 0
        self.cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def visits(self, names: Sequence[str], seconds: float) -> Iterator[tuple[str, list[float]]]:
        """Workloads may be made when they are first asked for, which leaves a lot to collect."""
        self.rounds += 1
        if self.rounds < 3:
            gc.collect()
        self.states.append(probe.state(self.cores))
        for name in names:
            call = self.workloads[name]
            with _no_collection():
                calls = self.time(call, seconds)
            yield name, calls
        self.states.append(probe.state(self.cores))


def interleaved(
    watch: Stopwatch,
    names: Sequence[str],
    rounds: int,
    seconds: float,
    rng: np.random.Generator,
    tick: Callable[[int], None] = lambda done: None,
    medians: dict[str, list[float]] | None = None,
    keep: Callable[[], None] = lambda: None,
) -> dict[str, Array]:
    """The median call of every visit, in milliseconds: one number a round for every workload.

    `medians` are those of a sitting that was stopped; they are added to, and `keep` is called after every visit.
    """
    medians = {} if medians is None else medians
    for done in range(1, rounds + 1):
        order = [names[k] for k in rng.permutation(len(names))]
        for name, calls in watch.visits([n for n in order if len(medians.get(n, ())) < done], seconds):
            medians.setdefault(name, []).append(float(np.median(calls)))
            keep()
        tick(done)
    return {name: np.asarray(medians[name]) for name in names}


def polished(times: Mapping[str, Array]) -> dict[str, Array]:
    """The same times with the rounds' common speed taken out (Tukey's median polish of the logarithms).

    ``log t[k, r] = workload[k] + round[r] + rest[k, r]``: what comes back is ``workload[k] + rest[k, r]``
    plus the median round, so that levels stay those of a typical round.
    """
    names = list(times)
    log_KR = np.log(np.maximum(np.stack([times[name] for name in names]), 1e-6))  # a coarse clock may say zero
    rounds_R = np.zeros(log_KR.shape[1])
    for _ in range(10):
        level_K = np.median(log_KR - rounds_R, axis=1)
        rounds_R = np.median(log_KR - level_K[:, None], axis=0)
    clean = np.exp(log_KR - rounds_R + np.median(rounds_R))
    return dict(zip(names, clean, strict=True))


def interval(values: Sequence[float] | Array, confidence: float = 0.95) -> tuple[float, float]:
    """A distribution-free interval for the median: the order statistics with at least `confidence` between them.

    Fewer than six values cannot reach 95 %; then the interval is their whole range.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    skip = max(0, int(binom.ppf((1 - confidence) / 2, len(ordered), 0.5)) - 1)
    return float(ordered[skip]), float(ordered[-1 - skip])


@dataclass(frozen=True)
class Timing:
    """How long one network takes, in milliseconds a call.

    `p50` and `p95` are quantiles over all recorded calls. `low` and `high` are a 95 % interval of the
    median over the rounds' medians, since calls of one round resemble each other. `drift` says how
    much slower (above 1) the machine runs a fixed reference now than when the cost table was made;
    it is None where no table was given.
    """

    p50: float
    p95: float
    low: float
    high: float
    n: int
    reference_ms: float
    drift: float | None = None
    samples: tuple[float, ...] = field(default=(), repr=False)
    rounds: tuple[float, ...] = field(default=(), repr=False)
    conditions: Mapping[str, Any] = field(default_factory=dict, repr=False)  # what the machine was like meanwhile

    @classmethod
    def of(cls, rounds: Sequence[Sequence[float]], reference: Sequence[float], reference_then: float | None) -> Timing:
        """From the calls of every round and the reference's median in every round."""
        medians = [float(np.median(r)) for r in rounds]
        samples = tuple(s for r in rounds for s in r)
        p50, p95 = (float(q) for q in np.quantile(samples, (0.5, 0.95)))
        low, high = interval(medians)
        now = float(np.median(reference))
        known = reference_then is not None and math.isfinite(reference_then) and reference_then > 0
        drift = now / reference_then if known and reference_then else None
        return cls(p50, p95, min(low, p50), max(high, p50), len(samples), now, drift, samples, tuple(medians))

    def to_json(self) -> dict[str, Any]:
        """The summary and the rounds' medians; the single calls stay out, there are thousands."""
        return {
            "unit": "ms", "p50": self.p50, "p95": self.p95, "low": self.low, "high": self.high, "n": self.n,
            "reference_ms": self.reference_ms, "drift": self.drift, "rounds": list(self.rounds),
        }  # fmt: skip
