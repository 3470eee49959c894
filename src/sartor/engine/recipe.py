"""How a network is trained: the numbers, the learning-rate schedule, the optimiser and the moving average."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.data.augment import Strength
from sartor.engine import half
from sartor.engine.muon import Muon, inner

_PARTS = 4  # into which a network is divided by depth
# For weights learnt elsewhere (`benchmarks/transfer.py`).
ELSEWHERE: dict[str, Any] = {"first_rate": 0.3, "head_first": 0.1}
MUON = 0.5  # orthogonal steps' share of SGD's rate, where they are taken (`benchmarks/recipes.py`, the sets short_*)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """SGD with Nesterov momentum (or Muon), linear warm-up and cosine decay, label smoothing, EMA, augmentation."""

    epochs: int
    batch: int = 64
    lr: float = 0.1
    last_lr: float = 0.0  # where the decay ends
    momentum: float = 0.9
    muon: float = 0.0  # rate at which inner convolutions take orthogonal steps (`muon.py`); 0: none do
    weight_decay: float = 1e-4
    warmup: float = 0.1  # share of all steps
    smoothing: float = 0.1
    ema: float = 0.999
    dropout: float = 0.0
    clip: float = 5.0  # largest gradient norm; 0 switches clipping off
    augment: Strength = "standard"
    whiten: bool = False  # whether the first convolution of a fresh network whitens patches, and stays (`whitening.py`)
    branches: bool = False  # whether convolutions have branches beside them while they are trained (`branches.py`)
    small: float = 1.0  # share of their side that images have at first; they grow (`growth.py`)
    mix: float = 0.0  # share of the images that are mixed with others, half by cut-mix, half by mix-up
    mixed: bool = False  # bfloat16 on a CPU too, where it has instructions for it (`half.py`); a GPU always mixes
    cycles: int = 1  # of the decay; each starts at `cycle_decay` times the rate of the one before
    cycle_decay: float = 0.5
    power: float = 1.0  # of the cosine's annealing (sharpDARTS, arXiv:1903.09900); 1 is the plain cosine
    drop_path: float = 0.0  # probability at the end, rising linearly; for networks that have such paths
    balance: bool = False  # whether all classes weigh alike in the loss, however many images each has
    auxiliary: float = 0.0  # weight of the auxiliary head's loss; for networks that have such a head
    first_rate: float = 1.0  # the first layers' learning rate as a share of the head's; even ratios in between
    head_first: float = 0.0  # share of all steps, the first ones, in which the head learns alone, at the full rate

    def __post_init__(self) -> None:
        check(self, epochs=">= 0", batch=">= 1", lr="> 0", weight_decay=">= 0", clip=">= 0", auxiliary=">= 0")
        check(self, muon=">= 0")
        check(self, cycles=">= 1", cycle_decay="> 0 <= 1", power=">= 1", warmup=">= 0 <= 1")
        check(self, **dict.fromkeys(("ema", "momentum", "smoothing", "dropout", "drop_path", "head_first"), ">= 0 < 1"))
        check(self, first_rate="> 0 <= 1", small="> 0 <= 1")
        if not 0 <= self.last_lr <= self.lr * self.cycle_decay ** (self.cycles - 1):
            raise BadInput(f"0 <= last_lr <= lr must hold, but got {self.last_lr:g} and {self.lr:g}.")

    def rate(self, progress: float) -> float:
        """The learning rate of the head when the share `progress` (0..1) of all steps is behind us."""
        if progress < self.head_first:
            return self.lr
        progress = (progress - self.head_first) / (1 - self.head_first)
        if progress < self.warmup:
            return self.lr * (0.01 + 0.99 * progress / self.warmup)
        share = min(1.0, (progress - self.warmup) / max(1e-9, 1 - self.warmup)) * self.cycles
        cycle = min(int(share), self.cycles - 1)
        height = 0.5 * (1 + math.cos(math.pi * (share - cycle)))
        if self.power > 1:  # (p^(h + 1) - p) / (p^2 - p), which is h for p towards 1
            height = (self.power ** (height + 1) - self.power) / (self.power**2 - self.power)
        return self.last_lr + (self.lr * self.cycle_decay**cycle - self.last_lr) * height

    def optimiser(self, net: nn.Module) -> torch.optim.SGD:
        """Weight decay on convolution and linear weights only, not on batch-norms and biases."""
        turned = {id(p) for p in inner(net)} if self.muon else set[int]()
        norms = {id(p) for m in net.modules() if hasattr(m, "running_mean") for p in m.parameters(recurse=False)}
        groups: list[dict[str, Any]] = []
        for share, body, layers in self._by_depth(net):
            decayed = [p for p in layers if p.ndim > 1 and id(p) not in norms | turned]
            others = [p for p in layers if p.ndim <= 1 or id(p) in norms]
            told = {"share": share, "body": body}
            groups.append({"params": decayed, "weight_decay": self.weight_decay, **told})
            groups.append({"params": others, "weight_decay": 0.0, **told})
            if self.muon:
                # As much decay a step as SGD's, whose momentum gathers it.
                own = {"share": share * self.muon / self.lr, "decay": self.lr * self.weight_decay / self.muon}
                own["decay"] /= 1 - self.momentum
                moved = [p for p in layers if id(p) in turned]
                groups.append({"params": moved, "weight_decay": 0.0, **told, **own, "orthogonal": True})
        kind = Muon if self.muon else torch.optim.SGD
        made = kind(groups, self.lr, self.momentum, nesterov=self.momentum > 0, foreach=True)
        if isinstance(made, Muon):
            made.half = self.mixed and next(net.parameters()).device.type == "cpu" and half.computed()
        return made

    def _by_depth(self, net: nn.Module) -> list[tuple[float, bool, list[nn.Parameter]]]:
        """The trained parameters from the first to the last: their share of the rate, and whether a head goes first."""
        trained = [p for p in net.parameters() if p.requires_grad]
        if self.first_rate == 1 and not self.head_first:
            return [(1.0, False, trained)]
        linear = [m for m in net.modules() if isinstance(m, nn.Linear)]
        last = {id(p) for p in linear[-1].parameters()} if linear else set()
        body, head = [p for p in trained if id(p) not in last], [p for p in trained if id(p) in last]
        bounds = [len(body) * k // _PARTS for k in range(_PARTS + 1)]
        parts = [(self.first_rate ** (1 - k / _PARTS), True, body[a:b]) for k, (a, b) in enumerate(pairwise(bounds))]
        return [*parts, (1.0, False, head)]

    def set_rates(self, optimiser: torch.optim.SGD, progress: float) -> None:
        """Give every group its share of the rate; while the head learns alone the others get none."""
        rate, alone = self.rate(progress), progress < self.head_first
        for group in optimiser.param_groups:  # checkpoints of older runs know no shares
            group["lr"] = 0.0 if alone and group.get("body") else rate * group.get("share", 1.0)


class MovingAverage:
    """Exponential moving average of a network's parameters and statistics.

    Early on the decay is smaller, ``(1 + t) / (10 + t)``, so that short runs are not averaged with their start.
    A decay of 0 keeps no average: the network itself is the answer.
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self.decay, self.steps = decay, 0
        self.net = net
        self.shadow = [t.detach().clone() for t in self._live()]

    def _live(self) -> list[Tensor]:
        if self.decay == 0:
            return []
        return [t for t in self.net.state_dict().values() if t.is_floating_point()]

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the network."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        if self.shadow:
            torch._foreach_lerp_(self.shadow, self._live(), 1 - decay)

    @torch.no_grad()
    def put(self) -> None:
        """Give the network the averaged values."""
        for live, mean in zip(self._live(), self.shadow, strict=True):
            live.copy_(mean)

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"steps": self.steps, "shadow": list(self.shadow)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read what `state_dict` gave."""
        self.steps = int(state["steps"])
        for mine, saved in zip(self.shadow, state["shadow"], strict=True):
            mine.copy_(saved)
