"""Search methods and proxies judged on a tabular benchmark: nothing is trained, results are looked up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sartor.bench.tables import Table
from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.core.registry import METHODS
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.data.augment import statistics
from sartor.data.base import Images
from sartor.engine.device import check_device
from sartor.insight.ranking import quality
from sartor.methods.base import Effort
from sartor.predictors.linear import LeastSquares
from sartor.proxies.aggregate import aggregate
from sartor.spaces.base import Space

Mask = NDArray[np.bool_]
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Bench:
    """A space, a table, the column to maximise, and the rows that the budgets allow."""

    space: Space
    task: Task
    table: Table
    target: str
    limits: Mapping[str, float]
    images: Images | None = None  # None: Gaussian images with random labels
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_device(self.device)

    @property
    def trained(self) -> int:
        """Training images: those that are given, or as many as CIFAR-10 has."""
        return 50_000 if self.images is None else len(self.images)

    @property
    def values(self) -> NDArray[np.float64]:
        """The target column; rows without a value cannot be chosen."""
        return self.table.column(self.target)

    def allowed(self) -> Mask:
        """The rows inside the budgets whose target is known."""
        keep = self.table.inside(self.limits) & np.isfinite(self.values)
        if not keep.any():
            raise BadInput(f"no row inside the limits has a value of {self.target}.")
        return keep

    def best(self, score: Quadratic) -> int:
        """The allowed row with the largest score that obeys the space's rules: exact, since all rows are listed."""
        keep, picks = self.allowed(), self.table.picks
        for rule in self.space.rules:
            values = rule.form.batch(picks)
            keep &= (values >= rule.low - 1e-9) & (values <= rule.high + 1e-9)
        if not keep.any():
            raise BadInput(f"no row inside the limits obeys the rules of the space: {self.space.rules[0].name}, ...")
        return int(np.argmax(np.where(keep, score.batch(picks), -np.inf)))

    def source(self, batch: int, seeds: Seeds) -> Callable[[int], Batch] | None:
        """Batches of the images, normalised; None where there are none."""
        if self.images is None:
            return None
        images, every = self.images, np.arange(len(self.images))
        mean, std = (torch.tensor(v)[:, None, None] for v in statistics(images, every))

        def draw(step: int) -> Batch:
            rng = seeds.rng("bench images", int(step < 0), abs(step))
            index = rng.choice(every, min(batch, len(every)), replace=False)
            x = (images.pixels(index).float() - mean) / std
            return x.to(self.device), torch.from_numpy(images.labels[index]).to(self.device)

        return draw


def run(
    bench: Bench, method: str, seeds: int, queries: int, options: Mapping[str, Any], effort: str = "standard"
) -> dict[str, Any]:
    """Search once a seed; accuracy reached, its rank among the rows the budgets allow, seconds.

    `options` are the method's, beside those of its preset for the `effort`.
    """
    from sartor.core.config import build

    if seeds < 1 or queries < 1:
        raise BadInput(f"seeds >= 1 and queries >= 1 must hold, but got {seeds} and {queries}.")
    if method != "nasi" and method not in _QUERYING:
        raise BadInput(f"the method must be one of nasi, {', '.join(_QUERYING)} here, but is {method!r}.")
    if effort not in get_args(Effort):
        raise BadInput(f"the effort must be one of {', '.join(get_args(Effort))}, but is {effort!r}.")
    if (options or effort != "standard") and method != "nasi":
        raise BadInput(f"{method} has no options and no effort here; use --queries.")
    nasi, chosen = None, dict(options)
    if method == "nasi":
        chosen = {
            **METHODS["nasi"].preset_on(type(bench.space), cast(Effort, effort), bench.trained, bench.device),
            **options,
        }
        nasi = build(METHODS["nasi"], chosen, "method")
    order = np.sort(bench.values[bench.allowed()])
    runs = []
    for seed in range(seeds):
        start = time.perf_counter()
        if nasi is not None:
            streams = Seeds(seed)
            source = bench.source(nasi.batch, streams) if nasi.images == "true" else None
            score, facts = nasi.at_initialisation(bench.space, bench.task, streams, source, bench.device)
            row = bench.best(score)
        else:
            row, facts = _QUERYING[method](bench, queries, Seeds(seed).rng(f"bench {method}")), {}
        seconds, value = time.perf_counter() - start, float(bench.values[row])
        rank = int(len(order) - np.searchsorted(order, value, "right") + 1)
        arch = Arch(tuple(bench.table.picks[row].tolist()))
        about = {"arch": bench.space.describe(arch), "warning": bench.space.draw(arch).warning}
        runs.append({"seed": seed, **about, "value": value, "rank": rank, "seconds": round(seconds, 3), **facts})
    found = np.array([r["value"] for r in runs])
    return {
        "method": method, "effort": effort, "options": chosen, "target": bench.target,
        "limits": dict(bench.limits), "networks": len(order),
        "mean": float(found.mean()), "std": float(found.std(ddof=1)) if seeds > 1 else 0.0, "best": float(found.max()),
        "rank": float(np.median([r["rank"] for r in runs])), "seconds": float(np.mean([r["seconds"] for r in runs])),
        "queries": 0 if nasi is not None else queries,
        "table": {"mean": float(order.mean()), "best": float(order[-1])}, "runs": runs,
    }  # fmt: skip


def _random(bench: Bench, queries: int, rng: np.random.Generator) -> int:
    """The best of `queries` allowed rows drawn at random; with one query, a random network."""
    rows = np.flatnonzero(bench.allowed())
    drawn = rng.choice(rows, min(queries, len(rows)), replace=False)
    return int(drawn[np.argmax(bench.values[drawn])])


def _evolution(bench: Bench, queries: int, rng: np.random.Generator) -> int:
    """Regularised evolution (arXiv:1802.01548): the best of ten mutates in one choice, the oldest dies.

    A quarter of the queries, at most fifty, is the population.
    """
    size = max(2, min(50, queries // 4))
    rows, values = np.flatnonzero(bench.allowed()), bench.values
    allowed = set(rows.tolist())
    asked = rng.choice(rows, min(size, queries, len(rows)), replace=False).tolist()
    alive = list(asked)
    tries = 0
    while len(asked) < queries and tries < 100 * queries:
        tries += 1
        parent = max(rng.choice(alive, min(10, len(alive)), replace=False), key=lambda r: values[r])
        picks = bench.table.picks[parent].copy()
        choice = rng.integers(len(picks))
        picks[choice] = rng.integers(bench.space.sizes[choice])
        child = bench.table.row(Arch(tuple(picks.tolist())))
        if child is not None and child in allowed and child != parent:
            asked.append(child)
            alive = [*alive, child][-size:]
    return int(max(asked, key=lambda r: values[r]))


def _binas(bench: Bench, queries: int, rng: np.random.Generator) -> int:
    """BINAS's additive score, fitted to `queries` rows drawn at random; the solver's choice inside the budgets."""
    rows = np.flatnonzero(np.isfinite(bench.values))
    drawn = rng.choice(rows, min(queries, len(rows)), replace=False)
    score = LeastSquares().fit(bench.table.picks[drawn], bench.values[drawn], bench.space.choices, rng)
    return bench.best(score)


_Query = Callable[[Bench, int, np.random.Generator], int]
_QUERYING: dict[str, _Query] = {"random": _random, "evolution": _evolution, "binas": _binas}


def correlate(
    values: Mapping[str, NDArray[np.float64]], target: NDArray[np.float64], rng: np.random.Generator
) -> dict[str, Any]:
    """Kendall and Spearman of every proxy and of their rank aggregate; conditioned too where there is a trace.

    Conditioned (NASI, table 3): over the networks whose trace is below nu, its mean over the networks (equation 40).
    """
    columns = {name: np.where(np.isfinite(v), v, _least(v)) for name, v in values.items()}
    if len(columns) > 1:
        columns["aggregate"] = aggregate(columns)
    found = {name: {"all": quality(v, target, rng, resamples=200)} for name, v in columns.items()}
    if "ntk_trace" in values:
        below = values["ntk_trace"] < values["ntk_trace"].mean()
        if below.sum() >= 3:
            for name, v in columns.items():
                found[name]["conditioned"] = quality(v[below], target[below], rng, resamples=200)
    return found


def _least(values: NDArray[np.float64]) -> float:
    """What replaces minus infinity: it still ranks last."""
    finite = values[np.isfinite(values)]
    return float(finite.min() - 1.0) if len(finite) else 0.0
