"""A compression as the stages of every run see it: its space is what narrowing the given network can give."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from sartor.compression.given import Given, reopen
from sartor.compression.rounds import Sparse, table
from sartor.compression.space import Widths
from sartor.compression.structures import layers, view
from sartor.compression.surgery import Plan, apply
from sartor.core.arch import Arch, tag
from sartor.core.quadratic import Quadratic
from sartor.costs.base import Cost, CostTable, Tick
from sartor.engine import checkpoint
from sartor.engine.network import Teacher
from sartor.pipeline.cut import Cut, Start
from sartor.pipeline.options import share_of
from sartor.runs.codec import encode
from sartor.runs.schema import BaselineFile, Rule, ScoreFile

_TIMED = 600  # parts, at most, whose cost is measured


@dataclass(frozen=True, eq=False)
class Narrowing(Cut):
    """The given network, its state after the rounds, and the networks that it can become."""

    advice: ClassVar[str] = "start from a smaller network"
    subject: ClassVar[str] = "any narrower form of this network"
    traded: ClassVar[bool] = False  # widths are coupled: there is no frontier to be had

    context: Given

    def given(self) -> nn.Module:
        """The given network as it went into the rounds: trained."""
        net = copy.deepcopy(self.context.net)
        net.load_state_dict(checkpoint.load(self.run.path / "search/given.safetensors"))
        return net.eval()

    @cached_property
    def before(self) -> dict[str, float]:
        """What the given network costs."""
        return {n: e.measured for n, e in self.run.load(BaselineFile).costs.items()}

    @cached_property
    def budgets(self) -> Mapping[str, float]:
        """Shares as amounts."""
        asked = self.context.options.budgets.items()
        return {n: share_of(n, b) * self.before[n] if isinstance(b, str) else b for n, b in asked}

    @cached_property
    def sparse(self) -> Sparse:
        """The network and its prior after the rounds, on the CPU."""
        made = Sparse(self.context, self.given()).place()
        made.load(checkpoint.load(self.run.path / "search/sparse.safetensors"))
        made.net.cpu()
        return made

    @cached_property
    def space(self) -> Widths:
        """All networks that narrowing can give; in coarse steps where their parts must be measured."""
        return self.sparse.space(_TIMED if self.measured else None)

    def goal(self) -> Quadratic:
        """What the kept channels are worth."""
        return self.space.score

    def rebuilt(self) -> nn.Module:
        """The given network, cut by the plan that was written."""
        return reopen(self.run.path, copy.deepcopy(self.context.net))

    def price(self, cost: Cost, tick: Tick) -> CostTable:
        """The cost's table over the space."""
        return table(self.context, cost, self.space, super().price(cost, tick))

    def decided(self, arch: Arch) -> list[str]:
        """What is cut, and the score, which the rounds left."""
        options = self.context.options
        self.run.write("model/plan.json", self.space.plan(arch).to_json())
        self.run.record(
            ScoreFile,
            {
                "method": "bayesnas compression",
                "unit": "loss, to be expected",
                "quality": None,
                "facts": {"structures": list(options.structures), "strength": options.strength},
                "choices": [{"name": x.name, "options": x.options, "needs": x.needs} for x in self.space.choices],
                "score": self.space.score.to_json(),
                "rules": [encode(Rule.of(rule)) for rule in self.space.rules],
            },
        )
        return ["model/plan.json", "score.json"]

    def phase(self, arch: Arch) -> str:
        """A name for the network's training, as compressions have always written it."""
        return tag(list(arch.picks))

    def start(self, arch: Arch) -> Start:
        """The cut network with what is left of its weights, the given one as its teacher; pruned weights stay zero."""
        engine, plan = self.context.engine, self.space.plan(arch)
        teacher = Teacher(engine.place(self.given()).eval().requires_grad_(False))
        facts = {"given_val_accuracy": self.run.load(BaselineFile).val_accuracy}
        return Start(engine.place(self.network(arch)), teacher, True, masks=self._masks(plan), facts=facts)

    @torch.no_grad()
    def _masks(self, plan: Plan) -> dict[str, Tensor]:
        """Which weights of the cut network are alive: those inside kernels that were pruned stay zero from here on."""
        alive = copy.deepcopy(self.sparse.net)
        known = layers(alive)
        for name, prior in self.sparse.prior.layers.items():
            view(known[name], known[name].weight).copy_(prior.alive.cpu())
        return {f"{name}.weight": layer.weight != 0 for name, layer in layers(apply(alive, plan)).items()}

    def described(self) -> dict[str, Any]:
        """The given network; the plan says the rest."""
        return {"given": self.context.options.model}
