"""Random search with weight sharing (arXiv:1902.07638): the baseline that a search in a supernet must beat."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import torch

from sartor.core.config import check
from sartor.engine.evaluate import correct
from sartor.engine.fit import Training, fit
from sartor.engine.seeding import seeded
from sartor.insight.ranking import quality
from sartor.methods.base import DARTS_TRAINING, Effort, Found, Job, epochs_for
from sartor.methods.sharing import Sharing, recalibrate_paths
from sartor.predictors.linear import LeastSquares
from sartor.spaces.supernet import new_supernet


@final
@dataclass(frozen=True, kw_only=True)
class RandomSharing(Sharing):
    """A random network per step trains shared weights; random networks are then measured with them.

    The authors take the best of the measured networks. So that a budget can be kept exactly, the score here is
    what those measurements say of every option (least squares), and held-out networks check it.
    """

    networks: int = 1000
    held_out: int = 100

    def __post_init__(self) -> None:
        check(self, "method.", networks=">= 3", held_out=">= 3")
        super().__post_init__()

    @classmethod
    def preset(cls, effort: Effort, images: int, device: str = "cpu") -> dict[str, Any]:
        """The paper's numbers for ``thorough``; shorter below that."""
        if effort == "thorough":
            return {}
        quick = effort == "quick"
        epochs = epochs_for(images, 30_000 if quick else 200_000, 4, 25 if quick else 100)
        return {
            "epochs": epochs,
            "lr": 0.05,
            "augment": "light" if quick else "standard",
            "networks": 120 if quick else 500,
            "held_out": 30 if quick else 100,
        }

    @classmethod
    def paper(cls) -> dict[str, Any]:
        """As DARTS trains its cells."""
        return DARTS_TRAINING

    def search(self, job: Job) -> Found:
        """Train on random paths, measure random networks on the validation split, fit the options' worth."""
        with seeded(job.seeds.number("supernet")):
            net: Any = job.engine.place(new_supernet(job.space, job.task))

        def loss(x: torch.Tensor, y: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
            return {"loss": job.task.loss(net(x, job.space.sample(rng)), y)}

        training = Training("sharing", net, loss, self.recipe(), job.feed, job.splits.train, job.run,
                            title="training all networks at once")  # fmt: skip
        history = fit(job.timed(training, 0.8))
        recalibrate_paths(job, net)
        rng = job.seeds.rng("measured networks")
        archs = [job.space.sample(rng) for _ in range(self.networks + self.held_out)]
        measured = np.zeros(len(archs))
        with job.run.reporter.bar("measuring networks", len(archs)) as bar:
            for n, arch in enumerate(archs):
                if n % job.engine.world == job.engine.rank:
                    measured[n] = 100.0 * correct(partial(net, who=arch), job.feed, job.splits.val).mean()
                bar.to(n + 1)
        measured = job.engine.sum(measured)
        picks = np.array([a.picks for a in archs])
        n = self.networks
        score = LeastSquares().fit(picks[:n], measured[:n], job.space.choices, job.seeds.rng("fit"))
        check = quality(score.batch(picks[n:]), measured[n:], job.seeds.rng("bootstrap"))
        facts = {"history": {"sharing": history}, "best_measured": float(measured.max())}
        return Found(score, f"% {job.task.outcome}", check, facts)


PLUGIN = RandomSharing
