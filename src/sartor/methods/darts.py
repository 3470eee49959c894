"""DARTS, first order: the mixture's weights by gradient descent through a softmax (arXiv:1806.09055), a baseline.

The eighth operation of DARTS, zero, computes nothing and takes a share of the softmax: here it is exactly that, a
share that goes nowhere, so that any space can have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from sartor.core.config import check
from sartor.methods.base import DARTS_TRAINING, Effort, Found, Job, epochs_for
from sartor.methods.mixture import Learner, Search, groups
from sartor.methods.sharing import Sharing


@final
@dataclass(frozen=True, kw_only=True)
class DARTS(Sharing):
    """Softmax weights of a mixture of all options, learnt by Adam with weight decay (DARTS, first order)."""

    mixture_lr: float = 3e-4
    mixture_decay: float = 1e-3
    zero: bool = True  # a share of the softmax for no operation at all

    def __post_init__(self) -> None:
        check(self, "method.", mixture_lr="> 0", mixture_decay=">= 0")
        super().__post_init__()

    @classmethod
    def preset(cls, effort: Effort, images: int, device: str = "cpu") -> dict[str, Any]:
        """The paper's numbers for ``thorough``; shorter and faster below that."""
        if effort == "thorough":
            return {}
        quick = effort == "quick"
        epochs = epochs_for(images, 8_000 if quick else 150_000, 3, 7 if quick else 50)
        return {"epochs": epochs, "lr": 0.05, "mixture_lr": 0.01, "augment": "light" if quick else "standard"}

    @classmethod
    def paper(cls) -> dict[str, Any]:
        """As DARTS trains its cells."""
        return DARTS_TRAINING

    def search(self, job: Job) -> Found:
        """Alternate between the network's weights and the mixture's."""
        search = Search(job, _Softmax(self, job), self.recipe(), "darts")
        history = search.run()
        return Found(search.score(), "log-weight", facts=search.facts(history))


class _Softmax(Learner):
    """A logit for every option, and one for nothing at all."""

    def __init__(self, method: DARTS, job: Job) -> None:
        self.found = groups(job)
        made = []
        for g, (members, options, _) in enumerate(self.found):
            noise = job.seeds.rng("logits", g).standard_normal((len(members), options + method.zero))
            made.append(torch.from_numpy(1e-3 * noise).float().to(job.engine.device).requires_grad_())
        self.logits = made
        self.adam = torch.optim.Adam(self.logits, method.mixture_lr, (0.5, 0.999), weight_decay=method.mixture_decay)

    def leaves(self) -> list[Tensor]:
        return self.logits

    def weights(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        return [torch.softmax(a, 1)[:, :n] for a, (_, n, _) in zip(leaves, self.found, strict=True)]

    def step(self, gradients: Sequence[Tensor], samples: int, left: int) -> None:
        for logits, gradient in zip(self.logits, gradients, strict=True):
            logits.grad = gradient
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)

    @torch.no_grad()
    def scores(self) -> list[Tensor]:
        return [
            torch.log_softmax(a.double(), 1)[:, :n] + math.log(n)
            for a, (_, n, _) in zip(self.logits, self.found, strict=True)
        ]

    def alive(self) -> list[Tensor]:
        return [torch.ones(len(m), n, dtype=torch.bool) for m, n, _ in self.found]

    @torch.no_grad()
    def summary(self) -> list[dict[str, float]]:
        found = []
        for a in self.logits:
            logs = torch.log_softmax(a.double(), 1)
            entropy = -(logs.exp() * logs).sum(1) / math.log(a.shape[1])
            found.append({"entropy": float(entropy.mean()), "remaining": float(a.shape[1])})
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"logits": [a.detach() for a in self.logits], "adam": self.adam.state_dict()}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        for mine, saved in zip(self.logits, state["logits"], strict=True):
            mine.copy_(saved)
        self.adam.load_state_dict(state["adam"])


PLUGIN = DARTS
