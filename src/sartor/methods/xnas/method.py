"""XNAS: the options of every choice are experts that compete for a forecaster's attention (arXiv:1906.08031).

A supernet mixes all of them; the loss gradient by a normalised weight is that expert's reward; weights grow
exponentially with rewards, and experts that cannot take the lead any more are wiped out (`experts.py`).
The log-weights are the score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor

from sartor.core.config import check
from sartor.data.augment import Strength
from sartor.methods.base import DARTS_TRAINING, Effort, Found, Job, epochs_for
from sartor.methods.mixture import Learner, Search, groups
from sartor.methods.sharing import Sharing
from sartor.methods.xnas.experts import Experts, learning_rate


@final
@dataclass(frozen=True, kw_only=True)
class XNAS(Sharing):
    """Experts with exponentiated-gradient weights and wipe-out, in a mixture of all options (XNAS)."""

    batch: int = 96
    augment: Strength = "auto"
    bound: float = 1.0  # L: the largest reward of one feedback
    zeta: float = 1.0  # below 1 experts are wiped out sooner than theory allows
    rate: float = 1.0  # times equation 4's learning rate, which is an upper bound (remark 1)
    wipeout: bool = True

    def __post_init__(self) -> None:
        check(self, "method.", bound="> 0", rate="> 0", zeta="> 0 <= 1")
        super().__post_init__()

    @classmethod
    def preset(cls, effort: Effort, images: int, device: str = "cpu") -> dict[str, Any]:
        """The paper's numbers for ``thorough``; shorter below that, with sooner wipe-out, which saves time."""
        if effort == "thorough":
            return {}
        quick = effort == "quick"
        return {
            "epochs": epochs_for(images, 8_000 if quick else 150_000, 3, 7 if quick else 50),
            "batch": 64,
            "lr": 0.05,
            "augment": "light" if quick else "standard",
            "zeta": 0.03 if quick else 0.1,
        }

    @classmethod
    def paper(cls) -> dict[str, Any]:
        """Sections 4.2 and 9.3; the power of the cosine is that of the paper they refer to."""
        return {
            **DARTS_TRAINING, "epochs": 1500, "smoothing": 0.1, "augment": "auto_cutout",
            "cycles": 5, "cycle_decay": 0.5, "power": 10.0,
        }  # fmt: skip

    def search(self, job: Job) -> Found:
        """Algorithm 1 on every forecaster of the space at once."""
        search = Search(job, _Experts(self, job), self.recipe(), "xnas")
        history = search.run()
        return Found(search.score(), "log-weight", facts=search.facts(history))


class _Experts(Learner):
    """An `Experts` for every group of forecasters: each cell type has its own horizon and so its own rate.

    T counts what the paper's ``T_c = d E r_c`` counts, feedbacks of single images in single cells: of the images that
    are really shown, since Algorithm 1 ends with one expert only if the last feedback is the T-th.
    """

    def __init__(self, method: XNAS, job: Job) -> None:
        self.method, how = method, {"bound": method.bound, "zeta": method.zeta}
        self.parts = [
            (Experts(len(members), n, replicas, **how, wipeout=method.wipeout, device=job.engine.device), replicas)
            for members, n, replicas in groups(job)
        ]

    def expect(self, images: int) -> None:
        """Horizons and rates for so many images. Where time cuts the search short wipe-out goes by what is really left
        (`step`); the rate stays, since the algorithm has one, and is then smaller than equation 4's.
        """
        for experts, replicas in self.parts:
            experts.horizon = float(images * replicas)
            experts.rate = self.method.rate * learning_rate(experts.experts, experts.horizon, experts.bound)

    def leaves(self) -> list[Tensor]:
        return [experts.weights() for experts, _ in self.parts]

    def weights(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        return list(leaves)

    def step(self, gradients: Sequence[Tensor], samples: int, left: int) -> None:
        for (experts, replicas), gradient in zip(self.parts, gradients, strict=True):
            experts.step(-gradient, samples, replicas, left * replicas)

    def scores(self) -> list[Tensor]:
        return [experts.scores() for experts, _ in self.parts]

    def alive(self) -> list[Tensor]:
        return [experts.alive for experts, _ in self.parts]

    def summary(self) -> list[dict[str, float]]:
        return [experts.summary() for experts, _ in self.parts]

    def state_dict(self) -> dict[str, Any]:
        return {"experts": [experts.state_dict() for experts, _ in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for (experts, _), saved in zip(self.parts, state["experts"], strict=True):
            experts.load_state_dict(saved)
