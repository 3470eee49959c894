"""The honest baseline: a random network that fits the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from sartor.core.quadratic import Quadratic
from sartor.methods.base import Found, Job, Method


@final
@dataclass(frozen=True, kw_only=True)
class Random(Method):
    """A random score, so the solver returns a random network inside the budget: what any method must beat."""

    def search(self, job: Job) -> Found:
        """Independent normal scores for every option of every choice."""
        rng = job.seeds.rng("random scores")
        linear = {i: rng.standard_normal(n) for i, n in enumerate(job.space.sizes)}
        return Found(Quadratic(job.space.sizes, 0.0, linear), unit="random number")


PLUGIN = Random
