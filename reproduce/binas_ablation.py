"""What each kind of term adds to a score: the ablation of BINAS's table 2."""

from __future__ import annotations

from collections.abc import Sequence

from sartor.core.arch import Choice, hubs
from sartor.core.quadratic import Quadratic


def ablate(score: Quadratic, choices: Sequence[Choice]) -> dict[str, Quadratic]:
    """The score as it is, with ``q_beta = 0`` (no depth terms) and with ``Q = 0`` (no block terms).

    Depths are the choices that others need. Their own terms, and those of pairs of depths, are the
    macroscopic decisions; all that involves another choice is microscopic.
    """
    depths = set(hubs(choices))
    own = {i: v for i, v in score.linear.items() if i in depths}
    among = {k: t for k, t in score.pairs.items() if set(k) <= depths}
    rest = {i: v for i, v in score.linear.items() if i not in depths}
    mixed = {k: t for k, t in score.pairs.items() if k not in among}
    return {
        "full": score,
        "no depth terms": Quadratic(score.sizes, score.constant, rest, mixed),
        "no block terms": Quadratic(score.sizes, score.constant, own, among),
    }
