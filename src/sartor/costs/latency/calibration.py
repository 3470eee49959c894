"""From parts to whole networks: which networks calibrate a table, and the fit that does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from sartor.core.arch import Arch, canonical
from sartor.core.errors import SartorError
from sartor.core.quadratic import Quadratic
from sartor.spaces.base import Space

Array = NDArray[np.float64]
_ENOUGH = 10  # networks by which an overhead can be told from an intercept


def networks(space: Space, size: Quadratic, count: int, rng: np.random.Generator) -> list[Arch]:
    """The least and the heaviest network by `size`, and `count` random ones spread between them.

    Uniformly random networks crowd in the middle of a space; a budget may lie anywhere. So every
    choice of network t is, with the probability of t's size (t from -0.8 to 0.8), what that end has.
    """
    least, most = lightest(space, size), space.heaviest
    chosen = [least, most]
    for lean in np.linspace(-0.8, 0.8, count):
        for _ in range(100):
            toward = least if lean < 0 else most
            drawn = space.sample(rng).picks
            pull = rng.random(len(drawn)) < abs(lean)
            mixed = tuple(e if p else d for d, e, p in zip(drawn, toward.picks, pull, strict=True))
            arch = canonical(space.choices, Arch(mixed))
            if arch not in chosen and _allowed(space, arch):
                chosen.append(arch)
                break
    return chosen


def lightest(space: Space, size: Quadratic) -> Arch:
    """A network that no single change makes smaller, by coordinate descent from the heaviest one."""
    arch, value = space.heaviest, size(space.heaviest)
    improved = True
    while improved:
        improved = False
        for i, options in enumerate(space.sizes):
            for option in range(options):
                other = Arch((*arch.picks[:i], option, *arch.picks[i + 1 :]))
                if size(other) < value and _allowed(space, other):
                    arch, value, improved = other, size(other), True
    return canonical(space.choices, arch)


def _allowed(space: Space, arch: Arch) -> bool:
    return all(rule.holds(arch) for rule in space.rules)


@dataclass(frozen=True)
class Fit:
    """``whole network = intercept + scale * sum of its parts``, with the relative errors of the fit.

    A part that is timed alone pays `overhead` that it does not pay inside a network; the prices summed are without it.
    """

    intercept: float
    scale: float
    errors: tuple[float, ...]
    left_out: tuple[float, ...]  # each network's error when the fit has not seen it
    ranks: float  # Spearman's correlation of the sums with the measurements
    overhead: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """For CostTable.calibration."""
        return {
            "intercept_ms": self.intercept,
            "scale": self.scale,
            "errors": list(self.errors),
            "held_out_errors": list(self.left_out),
            "held_out_median_error": float(np.median(np.abs(self.left_out))),
            "held_out_worst_error": float(np.max(np.abs(self.left_out))),
            "spearman": self.ranks,
            "overhead_ms": self.overhead,
        }

    @classmethod
    def from_json(cls, data: Any) -> Fit | None:
        """Read what `to_json` wrote; None where that is something else, since a fit can be made again."""
        try:
            errors, left_out = (tuple(map(float, data[k])) for k in ("errors", "held_out_errors"))
            names = ("intercept_ms", "scale", "spearman", "overhead_ms")
            intercept, scale, ranks, overhead = (float(data[k]) for k in names)
        except (KeyError, TypeError, ValueError):
            return None
        usable = np.isfinite([intercept, scale, overhead]).all() and scale > 0 <= overhead
        return cls(intercept, scale, errors, left_out, ranks, overhead) if usable else None


def fit(
    sums: Sequence[float], measured: Sequence[float], counts: Sequence[float] | None = None, most: float = 0.0
) -> Fit:
    """Least squares of the relative errors; held-out errors by leaving one network out at a time.

    With the number of parts of every network, the overhead of timing a part is found too, of at most `most`.
    """
    x, y = np.asarray(sums, np.float64), np.asarray(measured, np.float64)
    n = np.zeros(len(x)) if counts is None else np.asarray(counts, np.float64)
    tried = np.linspace(0.0, most, 16) if len(x) >= _ENOUGH and np.ptp(n) > 0 < most else np.zeros(1)
    everything = np.ones(len(x), bool)
    intercept, scale, overhead = _best(x, y, n, tried, everything)
    left_out = []
    for i in range(len(x)):
        a, b, o = _best(x, y, n, tried, np.arange(len(x)) != i)
        left_out.append(float((a + b * (x[i] - o * n[i])) / y[i] - 1))
    bare = x - overhead * n
    errors = (intercept + scale * bare) / y - 1
    ranks = np.corrcoef(rankdata(bare), rankdata(y))[0, 1] if np.ptp(bare) > 0 < np.ptp(y) else 0.0
    return Fit(intercept, scale, tuple(errors.tolist()), tuple(left_out), float(ranks), overhead)


def _best(x: Array, y: Array, n: Array, tried: Array, of: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Intercept, scale and the overhead with the least errors, by the networks `of` alone."""
    found = []
    for overhead in tried.tolist():
        bare = x - overhead * n
        if bare.min() <= 0 < overhead:
            break
        a, b = _line(bare[of], y[of], float(bare.min()))
        found.append((float(np.square((a + b * bare[of]) / y[of] - 1).sum()), a, b, overhead))
    return min(found)[1:]


def _line(x: Array, y: Array, least: float) -> tuple[float, float]:
    """Intercept and slope; a line through zero where the free one falls, or turns negative inside the space."""
    if len(x) >= 3:
        weighted = np.stack([1 / y, x / y], axis=1)
        intercept, scale = (float(v) for v in np.linalg.lstsq(weighted, np.ones(len(y)))[0])
        if scale > 0 and intercept + scale * least > 0.5 * float(y.min()) * min(1.0, least / float(x.min())):
            return intercept, scale
    ratio = x / y
    total = float(ratio @ ratio)
    if total <= 0:
        raise SartorError("the parts of the calibration networks took no measurable time; measure more rounds.")
    return 0.0, float(ratio.sum()) / total
