"""BayesNAS: sparse Bayesian learning of switches, with the dependencies between them (arXiv:1905.04919).

Every operation of the search network is multiplied by a weight w whose prior variance is a switch. A round trains the
network and w together under a reweighted l1 (16) or group-lasso penalty (21), takes the Hessian by w, and updates the
switches (17) to (20); what has no positive entropy leaves, and with it what depends on it. The entropy, a logarithm of
the relevance gamma, is the score: without a budget the solver's answer is what is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.data.augment import Strength
from sartor.methods.base import DARTS_TRAINING, Effort, Found, Job, Method, epochs_for
from sartor.methods.bayesnas.relevance import Dependency
from sartor.methods.bayesnas.search import Search


@final
@dataclass(frozen=True, kw_only=True)
class BayesNAS(Method):
    """Switches with hierarchical relevance priors; what the data do not support leaves, round by round (BayesNAS)."""

    switches: ClassVar[bool] = True

    rounds: int = 4  # T_max; 0: until nothing leaves any more, at most 20
    epochs: int = 1  # of a round
    batch: int = 64
    lr: float = 0.1
    last_lr: float = 0.0  # at the end of a round; the paper's rate is fixed
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip: float = 5.0
    augment: Strength = "standard"
    strength: float = 0.01  # lambda_w: the paper's sparsity intensity of an operation's switch
    zero_strength: float = 0.01  # and of an edge's
    # Instead of both, lambda times the number of training images: what data say then counts the more the more they are.
    # 10 is 0.01 on 1,000 images.
    strength_per_image: float | None = None
    rate: float = 1.0  # the learning rate of w in units of the network's
    dependency: Dependency = "full"  # equation 8; "zero" leaves predecessors out, "none" everything
    hessian: Literal["sampled", "ggn", "exact"] = "sampled"
    hessian_images: int = 512  # for "ggn" and "exact"; "sampled" sees every image of a round's last epoch

    def __post_init__(self) -> None:
        check(self, "method.", rounds=">= 0", epochs=">= 1", hessian_images=">= 1")
        check(self, "method.", strength="> 0", zero_strength="> 0", rate="> 0", strength_per_image="> 0")
        given = [name for name in ("strength", "zero_strength") if getattr(self, name) != getattr(type(self), name)]
        if self.strength_per_image is not None and given:
            raise BadInput(
                f"method.strength_per_image = {self.strength_per_image:g} says how strong the prior is, so that "
                f"method.{given[0]} would be ignored: give one of them."
            )

    def strengths(self, images: int) -> tuple[float, float]:
        """Lambda of an operation's switch and of an edge's, with so many training images."""
        if self.strength_per_image is None:
            return self.strength, self.zero_strength
        return (self.strength_per_image / max(1, images),) * 2

    @classmethod
    def preset(cls, effort: Effort, images: int, device: str = "cpu") -> dict[str, Any]:
        """The paper's numbers for ``thorough``; below that small data sets get more epochs a round."""
        if effort == "thorough":  # section 6.1; the fields' defaults are the rest of it
            return {"rounds": 0, "batch": 18, "last_lr": cls.lr, "augment": "light"}
        quick = effort == "quick"
        return {
            "rounds": 3 if quick else 4,
            "epochs": epochs_for(images, 2_400 if quick else 50_000, 1, 2 if quick else 25),
            "batch": 32 if quick else 64,
            "rate": 10.0 if quick else 3.0,
            "augment": "light" if quick else "standard",
        }

    @classmethod
    def paper(cls) -> dict[str, Any]:
        """Appendices D.2 and D.3; 600 epochs and drop-path are those of the works that they follow and of the code."""
        return {**DARTS_TRAINING, "batch": 128, "lr": 0.1, "auxiliary": 0.0}

    def search(self, job: Job) -> Found:
        """Algorithm 2, or Algorithm 1 where the space gives every cell switches of its own."""
        search = Search(job, self)
        history = search.run()
        if warning := search.warning:
            job.run.log(f"warning: {warning}")
        return Found(search.score(), "entropy", facts=search.facts(history))
