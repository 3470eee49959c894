"""Prediction with expert advice as an optimiser of mixture weights: Algorithm 1 of XNAS (arXiv:1906.08031).

Any PyTorch model that mixes things with weights can use it::

    experts = Experts(forecasters=14, experts=7, horizon=steps)
    for x, y in validation:
        u = experts.weights()                    # (14, 7), a free leaf
        loss(model(x, u), y).backward()
        experts.step()                           # rewards are -u.grad; the step, then wipe-out

Weights are kept as logarithms ``a = ln v``, in double precision. A row is a forecaster, a column an expert.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from sartor.core.errors import BadInput

_TENSORS = ("logs", "alive", "log_gamma", "own_loss")  # what a checkpoint holds, beside two numbers


def learning_rate(experts: int, horizon: float, bound: float = 1.0) -> float:
    """The minimiser of the regret bound without wipe-out, ``sqrt(2 ln N / (T L^2))`` (equation 4)."""
    return math.sqrt(2 * math.log(experts) / (horizon * bound**2))


def softmax_rewards(u: Tensor, rewards: Tensor) -> Tensor:
    """What gradient descent through a softmax makes of rewards: ``u_i (R_i - sum_j u_j R_j)`` (equation 6)."""
    return u * (rewards - (u * rewards).sum(-1, keepdim=True))


class Experts:
    """Exponentiated gradient with wipe-out for many forecasters at once.

    `horizon` is T, the number of feedbacks that will come; a step of a batch brings several, and says so.
    `bound` is L: every single reward is clamped to it, which lemma 1 needs. `rate` is eta, equation 4's unless
    given. `zeta` in (0, 1] relaxes the threshold: below 1 experts leave sooner and lemma 1 no longer holds.
    """

    def __init__(
        self,
        forecasters: int,
        experts: int,
        horizon: float,
        *,
        bound: float = 1.0,
        rate: float | None = None,
        zeta: float = 1.0,
        wipeout: bool = True,
        device: torch.device | str = "cpu",
    ) -> None:
        if forecasters < 1 or experts < 2 or horizon <= 0 or bound <= 0 or not 0 < zeta <= 1:
            raise BadInput(
                "forecasters >= 1, experts >= 2, horizon > 0, bound > 0 and 0 < zeta <= 1 must hold, but got "
                f"{forecasters}, {experts}, {horizon:g}, {bound:g} and {zeta:g}."
            )
        self.experts, self.horizon, self.bound, self.zeta, self.wipeout = experts, float(horizon), bound, zeta, wipeout
        self.rate = learning_rate(experts, horizon, bound) if rate is None else rate
        self.time = self.squares = 0.0  # feedbacks so far; the sum of the squares of each step's
        self.logs = torch.zeros(forecasters, experts, dtype=torch.float64, device=device)
        self.alive = torch.ones(forecasters, experts, dtype=torch.bool, device=device)
        self.log_gamma = torch.zeros(forecasters, dtype=torch.float64, device=device)
        self.own_loss = torch.zeros(forecasters, dtype=torch.float64, device=device)
        self.leaf: Tensor | None = None

    # Algorithm 1 ---------------------------------------------------------------------------------

    def log_weights(self) -> Tensor:
        """``ln u``, equation 1's normalised weights; minus infinity for wiped experts."""
        return torch.log_softmax(self.logs.masked_fill(~self.alive, -math.inf), dim=1)

    def weights(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The normalised weights u as a new leaf: its gradient is the loss gradient without softmax's Jacobian."""
        self.leaf = self.log_weights().exp().to(dtype).requires_grad_()
        return self.leaf

    @torch.no_grad()
    def step(
        self,
        rewards: Tensor | None = None,
        samples: float = 1.0,
        replicas: float = 1.0,
        left: float | None = None,
    ) -> None:
        """Lines 7 to 12: rewards (35), the exponentiated-gradient step, wipe-out.

        Without `rewards` they are minus the gradient of `weights`'s last leaf. Where that is the gradient of a
        mean over `samples` images, and each forecaster stands in `replicas` places that share its weights, the step
        is worth ``samples * replicas`` feedbacks: the sum over places is clamped to ``replicas * L`` and counts
        once per image, so that time, horizon and learning rate are all in feedbacks. `left` says how many are still to
        come, where that is known better than as what the horizon leaves: after the last one a single expert stays.
        """
        if rewards is None:
            if self.leaf is None or self.leaf.grad is None:
                raise BadInput("step needs rewards, or the gradient of the weights: call backward on a loss first.")
            rewards, self.leaf = -self.leaf.grad, None
        u = self.log_weights().exp()
        most = replicas * self.bound
        rewards = samples * rewards.to(self.logs).clamp(-most, most).masked_fill(~self.alive, 0.0)  # line 8
        self.own_loss -= (u * rewards).sum(1)
        self.logs += self.rate * rewards  # line 9, in logarithms
        self.time += samples * replicas
        self.squares += (samples * replicas) ** 2
        if self.wipeout:
            self._wipe(max(0.0, self.horizon - self.time) if left is None else left)

    def _wipe(self, left: float) -> None:
        """Lines 11 and 12 with the factor zeta of section 3.2.1, in logarithms.

        When nothing is left to come the threshold is the leader's own weight: of several that lead, the first stays.
        """
        now = self.logs.masked_fill(~self.alive, -math.inf)
        threshold = now.max(1, keepdim=True).values - 2 * self.rate * self.bound * left * self.zeta
        stay = self.alive & (now >= threshold)
        if left < 0.5:  # feedbacks
            stay &= torch.zeros_like(stay).scatter(1, now.argmax(1, keepdim=True), True)
        rest = now.masked_fill(~stay, -math.inf)
        self.log_gamma += torch.logsumexp(now, 1) - torch.logsumexp(rest, 1)  # ln Gamma_t (28)
        self.alive = stay

    # what is known of it -------------------------------------------------------------------------

    @property
    def remaining(self) -> Tensor:
        """How many experts each forecaster has left."""
        return self.alive.sum(1)

    @property
    def entropy(self) -> Tensor:
        """Each forecaster's normalised entropy, ``-sum u ln u / ln N`` (54); 1 is uniform, 0 is decided."""
        logs = self.log_weights()
        return -(logs.exp() * logs.masked_fill(~self.alive, 0.0)).sum(1) / math.log(self.experts)

    @property
    def regret(self) -> Tensor:
        """Each forecaster's regret in the linearised losses (31), to the best of the remaining experts.

        By lemma 1 that is the best of all. The true regret is smaller where losses are convex (32).
        """
        best = self.logs.masked_fill(~self.alive, -math.inf).max(1).values / self.rate
        return self.own_loss + best

    def regret_bound(self) -> Tensor:
        """Right-hand side of (3) after the feedbacks so far, with the wipe-out factors so far.

        A step that brings n feedbacks to one prediction has rewards in [-n L, n L], so that Hoeffding's lemma (26)
        gives n^2 in place of n: batches cost regret. With single feedbacks this is (3) as it stands.
        """
        free = self.rate * self.squares * self.bound**2 / 2
        return free + (math.log(self.experts) - self.log_gamma) / self.rate

    def tight_bound(self) -> Tensor:
        """Right-hand side of (4): at the horizon, with equation 4's learning rate and single feedbacks."""
        log = math.log(self.experts)
        return self.bound * math.sqrt(2 * self.horizon * log) * (1 - self.log_gamma / (2 * log))

    def scores(self) -> Tensor:
        """``ln(N u)``: log-weights relative to indifference. A wiped expert scores no more than any that remained."""
        logs = self.logs - torch.logsumexp(self.logs.masked_fill(~self.alive, -math.inf), 1, keepdim=True)
        least = logs.masked_fill(~self.alive, math.inf).min(1, keepdim=True).values
        return torch.where(self.alive, logs, torch.minimum(logs, least)) + math.log(self.experts)

    def summary(self) -> dict[str, float]:
        """Means over the forecasters, for histories and plots."""
        bound = self.regret_bound() if self.time else torch.zeros_like(self.regret)
        return {
            "feedbacks": self.time,
            "entropy": float(self.entropy.mean()),
            "remaining": float(self.remaining.double().mean()),
            "regret": float(self.regret.mean()),
            "regret_bound": float(bound.mean()),
            "wipeout_factor": float(self.log_gamma.exp().mean()),
        }

    # checkpoints ---------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes."""
        return {name: getattr(self, name) for name in (*_TENSORS, "time", "squares")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read what `state_dict` gave."""
        for name in _TENSORS:
            mine: Tensor = getattr(self, name)
            if mine.shape != state[name].shape:
                raise ValueError(f"{name} has the shape {tuple(state[name].shape)}, not {tuple(mine.shape)}")
            setattr(self, name, state[name].to(mine).clone())
        self.time, self.squares = float(state["time"]), float(state["squares"])
