"""Networks inside the limits: what is tried before anything is known."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from sartor.core.arch import Arch, Choice, active, canonical
from sartor.core.quadratic import Array, Limit, Quadratic

_SWEEPS = 4  # over all choices, from one network to the next
_FAMILY = re.compile(r"(.*?v\d+|[A-Za-z]+).*?(-s\d+)?$")  # mobilenetv2-w24-s1, resnet14-w16-s2
_ABOUT = 0.8  # of the largest one's multiply-accumulates
_PULL = 20.0  # how much likelier a network is that uses its budget: e^2 between nine tenths and all of it


def usage(limits: Sequence[Limit], picks: NDArray[np.int64]) -> Array:
    """The largest share of a budget that each network takes; above 1, or infinite, where a limit does not hold."""
    share = np.zeros(len(picks))
    for limit in limits:
        value = limit.form.batch(picks)
        room = 1e-9 * np.maximum(1.0, np.abs(value))
        share[(value > limit.high + room) | (value < limit.low - room)] = math.inf
        if 0 < limit.high < math.inf:
            share = np.maximum(share, value / limit.high)
    return share


def draw(
    choices: Sequence[Choice], limits: Sequence[Limit], start: Arch, count: int, rng: np.random.Generator
) -> list[Arch]:
    """`count` different networks inside the limits, or all that are met, likelier the more of a budget they use.

    Gibbs sampling from `start`, which must be inside: one choice after the other is drawn anew among the options that
    leave the network inside, as it is or with another choice changed at random, since where the budget is used up
    nothing can grow unless something else shrinks. Uniform draws would not do: of a wide space hardly any lies inside a
    tight budget.
    """
    picks, found = np.array(start.picks, np.int64), dict[Arch, None]()
    for _ in range(4 * count):
        for i in (int(c) for _ in range(_SWEEPS) for c in rng.permutation(len(choices))):
            if active(choices[i], picks.tolist()):
                other = int(rng.integers(len(choices)))
                options = np.repeat(picks[None], 2 * len(choices[i].options), 0)
                options[len(choices[i].options) :, other] = rng.integers(len(choices[other].options))
                options[:, i] = np.tile(np.arange(len(choices[i].options)), 2)
                share = usage(limits, options)
                weight = np.where(share <= 1 + 1e-9, np.exp(_PULL * np.minimum(share, 1.0)), 0.0)
                picks = options[rng.choice(len(options), p=weight / weight.sum())]
        found[canonical(choices, Arch(tuple(picks.tolist())))] = None
        if len(found) == count:
            break
    return list(found)


def largest(
    landmarks: Mapping[str, Arch], limits: Sequence[Limit], macs: Quadratic | None,
    fits: Callable[[Arch], bool] | None = None, work: Quadratic | None = None,
) -> dict[str, Arch]:  # fmt: skip
    """Of every family of well-known networks the one of the most computation inside the limits (or `fits`).

    One for each stride of the stem; one of every family comes before another of any. A family is how names begin, a
    stride how they may end. Computation is `macs` where those are counted: inside a latency that is a wide network,
    where the dearest would be a deep one. Where the `work` of a training step counts too, of those that compute about
    as much it is the one that computes most for its work: wide and shallow, it learns faster.
    """
    families: dict[str, dict[str, list[tuple[float, float, str]]]] = {}
    for name, arch in landmarks.items():
        share = float(usage(limits, np.array([arch.picks]))[0])
        if share <= 1 if fits is None else fits(arch):
            found = _FAMILY.match(name)
            word, stem = (found[1], found[2] or "") if found else (name, "")
            one = share if macs is None else macs(arch), 0.0 if work is None else -work(arch), name
            families.setdefault(word, {}).setdefault(stem, []).append(one)
    ranks = [sorted((_chosen(alike) for alike in family.values()), reverse=True) for family in families.values()]
    return {name: landmarks[name] for rank in zip_longest(*ranks) for _, name in filter(None, rank)}


def _chosen(alike: Sequence[tuple[float, float, str]]) -> tuple[float, str]:
    """Of networks, each with its size and how little work it is: of those about as large as the largest the quickest.

    That is the one that computes most for the work of its step. The least work alone would be that of a deep and narrow
    ResNet-20, a twentieth less than that of a ResNet-8 which computes a fifth more and learns much faster.
    """
    most = max(size for size, _, _ in alike)
    _, size, name = max(
        (size / -ease if ease else 0.0, size, name) for size, ease, name in alike if size >= _ABOUT * most
    )
    return size, name
