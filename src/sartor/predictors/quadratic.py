"""The learned full quadratic predictor (BINAS, equation 9; in full with `inactive`).

``ACC = r + alpha' q_alpha + beta' q_beta + alpha' Q beta + alpha' Q_alpha alpha + beta' Q_beta beta``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from sartor.core.arch import Choice
from sartor.predictors.closed_form import ClosedForm


@final
@dataclass(frozen=True, kw_only=True)
class FullQuadratic(ClosedForm):
    """Learned quadratic score with every pair of choices, in closed form (BINAS, equation 9)."""

    def pairs(self, choices: Sequence[Choice]) -> list[tuple[int, int]]:
        """All of them."""
        return [(i, j) for i in range(len(choices)) for j in range(i + 1, len(choices))]


PLUGIN = FullQuadratic
