"""The learned bilinear predictor (BINAS, equations 7 and 8; in full with `inactive`).

``ACC = r + alpha' q_alpha + beta' q_beta + alpha' Q beta``: beta are the choices that others need
(the depths), alpha all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from sartor.core.arch import Choice, hubs, needed_hubs
from sartor.core.errors import BadInput
from sartor.predictors.closed_form import ClosedForm


@final
@dataclass(frozen=True, kw_only=True)
class Bilinear(ClosedForm):
    """Learned bilinear score of hubs and the rest, in closed form (BINAS, equations 7 and 8).

    `hubs` names beta where it is not the choices that others need.
    """

    hubs: tuple[str, ...] | None = None

    def suits(self, choices: Sequence[Choice]) -> bool:
        """Where some choices switch others on."""
        return self.hubs is not None or bool(hubs(choices))

    def pairs(self, choices: Sequence[Choice]) -> list[tuple[int, int]]:
        """Every hub with everything that is none."""
        names = [c.name for c in choices]
        unknown = [name for name in self.hubs or () if name not in names]
        if unknown:
            raise BadInput(f"hubs must be names of choices ({', '.join(names)}), but got {', '.join(unknown)}.")
        beta = needed_hubs(choices, "a bilinear score") if self.hubs is None else sorted(map(names.index, self.hubs))
        return [(i, j) for i in beta for j in range(len(choices)) if j not in beta]


PLUGIN = Bilinear
