"""BINAS's accuracy contributions: what every single decision adds to the expected accuracy (equation 3).

``Delta_a = E[Acc | decision a] - E[Acc]`` over uniformly random networks. A block's configuration
is measured with the stage ending at that block (``d = b``); the first block of a stage, for which
no such depth exists, with the depth left free. In the terms of a space: a choice is measured with
everything it `needs` at the first option that activates it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sartor.core.arch import Choice
from sartor.core.quadratic import Array, Quadratic, while_active

Condition = tuple[tuple[int, int], ...]  # (choice, option) pairs that are forced


@dataclass(frozen=True, slots=True)
class Entry:
    """One conditional expectation to measure: option `option` of choice `choice` under `condition`."""

    choice: int
    option: int
    condition: Condition


def entries(choices: Sequence[Choice]) -> list[Entry]:
    """Every expectation of equation 3 but E[Acc] itself: 15 depths and 240 configurations in the mobile space."""
    found = []
    for i, choice in enumerate(choices):
        context = tuple((other, allowed[0]) for other, allowed in choice.needs)
        found += [Entry(i, a, (*context, (i, a))) for a in range(len(choice.options))]
    return found


def force(picks: NDArray[np.int64], condition: Condition) -> NDArray[np.int64]:
    """The same random paths with the condition's options put in: what differs is the decision alone."""
    changed = picks.copy()
    for choice, option in condition:
        changed[:, choice] = option
    return changed


def estimate(choices: Sequence[Choice], base: Array, conditional: Array) -> Quadratic:
    """The bilinear score of equation 4, with standard errors, from per-image accuracies in percent.

    `base` is (images,), each image's accuracy over random paths; `conditional` is (entries, images),
    the same under every entry's condition. The errors are those of the mean of the paired
    differences over images.
    """
    count = len(base)
    sizes = tuple(len(c.options) for c in choices)
    paired = conditional - base[None]
    delta = paired.mean(1)  # Delta of equation 3
    error = paired.std(1, ddof=1) / np.sqrt(count)
    level = float(base.std(ddof=1) / np.sqrt(count))
    values = assemble(choices, sizes, float(base.mean()), delta)
    spread = assemble(choices, sizes, level, error)
    return Quadratic(sizes, values.constant, values.linear, values.pairs, errors=spread)


def assemble(choices: Sequence[Choice], sizes: tuple[int, ...], constant: float, delta: Array) -> Quadratic:
    """``ACC = E[Acc] + sum of the Deltas of all active decisions``: `delta` holds the options' choice by choice."""
    return while_active(choices, dict(enumerate(np.split(delta, np.cumsum(sizes)[:-1]))), constant)
