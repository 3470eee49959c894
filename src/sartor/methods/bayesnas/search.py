"""The search loop of BayesNAS: network and switches trained together, the Hessian taken along, a round's end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.quadratic import Quadratic, while_active
from sartor.engine.curvature.hessian import diagonal, likelihood_of, sampled_diagonal
from sartor.engine.fit import History, Training, fit
from sartor.engine.recipe import Recipe
from sartor.engine.seeding import seeded
from sartor.methods.base import Job
from sartor.methods.bayesnas.relevance import THRESHOLD, Relevance, Removal
from sartor.spaces.capabilities import Wipeable, switchable
from sartor.spaces.supernet import StepDraw, new_supernet

MOST, _QUIET = 20, 2  # rounds, where they go on until nothing leaves, and in how many in a row nothing must


class Switched(nn.Module):
    """The search network and the weights of its switches, which are trained like any other parameters.

    After every step `shrink` applies the penalty of (16) and (21) by its proximal operator, so that weights become
    zero and not merely small.
    """

    owner: Tensor
    scales: Tensor
    live: Tensor
    penalty: Tensor
    curvature: Tensor

    def __init__(self, space: Any, net: Any, relevance: Relevance, rate: float = 1.0) -> None:
        super().__init__()
        circuit = relevance.circuit
        self.space, self.net, self.relevance, self.rate = space, net, relevance, rate
        # A parameter v with w = sqrt(rate) v: the optimiser's learning rate is then `rate` times as high for w.
        self.v = nn.Parameter(torch.full((len(circuit.owner),), rate**-0.5))
        scales = circuit.scales
        self.groups = 0 if scales is None else max(scales) + 1
        self.register_buffer("owner", torch.from_numpy(circuit.owner), persistent=False)
        self.register_buffer("scales", torch.tensor(scales or (0,) * len(circuit.owner)), persistent=False)
        self.register_buffer("live", torch.ones(len(circuit.owner)))
        self.register_buffer("penalty", torch.ones(len(circuit)))
        self.register_buffer("curvature", torch.zeros(len(circuit.owner)))  # summed over the batches of a round
        self.follow()

    def weights(self) -> Tensor:
        """w, zero where a switch is off."""
        return torch.mul(self.v, self.live * self.rate**0.5)

    def forward(self, x: Tensor, w: Tensor | None = None) -> Tensor:
        logits: Tensor = switchable(self.space).switched(self.net, x, self.weights() if w is None else w)
        return logits

    @torch.no_grad()
    def follow(self) -> None:
        """Take over from the priors which switches are on and how strongly each is penalised."""
        r = self.relevance
        self.live.copy_(torch.from_numpy(r.on[r.circuit.owner].astype(np.float32)))
        self.penalty.copy_(torch.from_numpy((r.strength * r.omega).astype(np.float32)))
        self.v.mul_(self.live)
        self.curvature.zero_()

    @torch.no_grad()
    def shrink(self, step: float) -> None:
        """``w_g <- w_g (1 - step lambda omega_g / ||w_g||)_+``, then each scale's mean square back to 1.

        Where batch-norms follow, the loss does not feel a common factor, and the penalty alone would take all weights
        of a cell to zero: they compete on a sphere instead.
        """
        w, count = self.weights(), len(self.penalty)
        norms = w.new_zeros(count).index_add(0, self.owner, w**2).sqrt()
        factor = (1 - step * self.rate * self.penalty / norms.clamp_min(1e-12)).clamp_min(0.0)
        w = w * factor[self.owner]
        if self.groups:
            squares = w.new_zeros(self.groups).index_add(0, self.scales, w**2)
            wanted = w.new_zeros(self.groups).index_add(0, self.scales, self.live)
            w = w * (wanted / squares.clamp_min(1e-12)).sqrt()[self.scales]
        self.v.copy_(w * self.rate**-0.5)


class Search:
    """One search; the state that a checkpoint holds beside the network's."""

    def __init__(self, job: Job, method: Any) -> None:
        self.job, self.method, self.likelihood = job, method, likelihood_of(job.task)
        self.circuit = switchable(job.space).circuit(job.task)
        self.strength, of_edge = method.strengths(len(job.splits.train))
        strength = [of_edge if s.feeds is None else self.strength for s in self.circuit.switches]
        self.relevance = Relevance(self.circuit, np.array(strength), method.dependency)
        with seeded(job.seeds.number("supernet")):
            net: Any = new_supernet(job.space, job.task)
        self.net: Any = job.engine.place(Switched(job.space, net, self.relevance, method.rate))
        rounds = method.rounds or MOST
        self.recipe = Recipe(
            epochs=rounds * method.epochs, batch=method.batch, lr=method.lr,
            last_lr=method.last_lr, momentum=method.momentum, weight_decay=method.weight_decay, warmup=0.0,
            smoothing=0.0, ema=0.0, clip=method.clip,
            augment=method.augment, cycles=rounds, cycle_decay=1.0,
        )  # fmt: skip
        self.rounds: list[dict[str, Any]] = []
        self._next(0)

    def run(self) -> History:
        """All rounds; goes on where a killed search stopped."""
        job = self.job
        training = Training(
            "bayesnas", self.net, self._loss, self.recipe, job.feed, job.splits.train, job.run,
            extra={"switches": self}, after=self._after, draw=self._draw, title="training and switching off",
        )  # fmt: skip
        return fit(job.timed(training))

    def _draw(self, rng: np.random.Generator, images: int) -> StepDraw:
        """Nothing; but what runs depends on which switches are on and on whether the curvature is measured."""
        return StepDraw(same=(self.measuring, int(self.relevance.on.sum())))

    def _loss(self, x: Tensor, y: Tensor, drawn: StepDraw) -> dict[str, Tensor]:
        """E_D of a batch. The curvature is taken along: one more backward pass, of the switches' gradients only."""
        w = self.net.weights()
        logits = self.net(x, w)
        if self.measuring:
            self.net.curvature += sampled_diagonal(logits, [w], self.likelihood, keep=True)[0]
        return {"loss": self.job.task.loss(logits, y)}

    def _after(self, t: Training, optimiser: torch.optim.SGD, epoch: int, step: int, steps: int) -> None:
        """The penalty's part of a step; at the end of a round its lines 2 to 4.

        Momentum makes a steady gradient count 1 / (1 - momentum) times, so the penalty counts as often.
        """
        self.net.shrink(optimiser.param_groups[0]["lr"] / (1 - self.method.momentum))
        if step == steps - 1:
            if epoch % self.method.epochs == self.method.epochs - 1:
                self._end(t, optimiser, epoch // self.method.epochs + 1, steps)
            self._next(epoch + 1)

    def _next(self, epoch: int) -> None:
        last = epoch % self.method.epochs == self.method.epochs - 1
        self.measuring = self.method.hessian == "sampled" and last

    def _end(self, t: Training, optimiser: torch.optim.SGD, number: int, steps: int) -> None:
        """A round's end: Hessian, update of the switches, pruning."""
        if self.method.hessian == "sampled":
            t.engine.average([self.net.curvature])
            hessian = self.net.curvature / steps
        else:
            hessian = self._hessian(t)
        w = self.net.weights().detach()
        self.relevance.update(w.double().cpu().numpy(), hessian.double().cpu().numpy())
        removal = self.relevance.prune(number)
        self.rounds.append(self._summary(number, removal))
        self.job.run.log(_words(self.rounds[-1]))
        self.net.follow()
        self._wipe(optimiser)
        quiet = not any(r["removed"] for r in self.rounds[-_QUIET:]) and any(r["removed"] for r in self.rounds)
        if quiet and not self.method.rounds:
            assert t.length is not None
            t.length.end = float(number * self.method.epochs)  # nothing leaves any more

    @property
    def warning(self) -> str:
        """Where nothing left, the prior had no say; empty otherwise."""
        if any(r["removed"] for r in self.rounds):
            return ""
        m, images = self.method, len(self.job.splits.train)
        return (
            f"nothing was pruned in {len(self.rounds)} rounds: all operations stay. Raise method.strength (lambda, "
            f"{self.strength:.2g}; 1 / images is {1 / images:.2g}), method.rate ({m.rate:g}), at which weights move "
            f"towards zero, method.epochs ({m.epochs}) or method.rounds ({m.rounds}; 0: until nothing leaves)"
        )

    def _hessian(self, t: Training) -> Tensor:
        """On plain images, batch-norms at their running statistics."""
        training = self.net.training
        self.net.eval()
        index = self.job.seeds.rng("hessian").permutation(self.job.splits.train)[: self.method.hessian_images]
        batches = t.feed.plain(np.sort(index), t.recipe.batch)
        w = self.net.weights().detach().requires_grad_()
        found = diagonal(lambda x: self.net(x, w), [w], batches, self.method.hessian, likelihood=self.likelihood)[0]
        self.net.train(training)
        return found

    def _wipe(self, optimiser: torch.optim.SGD | None = None) -> None:
        """Operations that are off leave the network, and the optimiser forgets their momentum."""
        off = [p for s, on in zip(self.circuit.switches, self.relevance.on, strict=True) if not on for p in s.picks]
        if isinstance(self.net.net, Wipeable):
            self.net.net.wipe(off)
        if optimiser is not None:
            for group in optimiser.param_groups:
                for p in group["params"]:
                    if not p.requires_grad:
                        optimiser.state.pop(p, None)

    def _summary(self, number: int, removal: Removal) -> dict[str, Any]:
        r, names = self.relevance, [s.name for s in self.circuit.switches]
        return {
            "round": number,
            "removed": [{"switch": names[i], "why": why} for i, why in sorted(removal.gone.items())],
            "kept": [names[i] for i in removal.kept],
            "left": sum(bool(on) for s, on in zip(self.circuit.switches, r.on, strict=True) if s.pick),
            "edges": sum(bool(on) for s, on in zip(self.circuit.switches, r.on, strict=True) if not s.pick),
            "isolated": self.circuit.isolated(r.on),
        }

    def score(self) -> Quadratic:
        """The entropy of every switch on the options that have it, counted while their choice has an effect."""
        choices = self.job.space.choices
        tables: dict[int, Any] = {}
        for switch, value in zip(self.circuit.switches, self.relevance.score().tolist(), strict=True):
            for choice, option in switch.picks:
                tables.setdefault(choice, np.zeros(len(choices[choice].options)))[option] += value
        return while_active(choices, tables)

    def facts(self, training: History) -> Mapping[str, Any]:
        """The history and the posterior for score.json and the report."""
        r = self.relevance
        mean_square = np.bincount(self.circuit.owner, r.mean**2, len(self.circuit))
        variance = np.bincount(self.circuit.owner, r.variance, len(self.circuit))
        posterior = []
        for i, switch in enumerate(self.circuit.switches):
            posterior.append({
                "switch": switch.name, "reads": switch.reads, "feeds": switch.feeds, "edge": switch.zero is None,
                "places": switch.places, "mean": float(np.sqrt(mean_square[i] / switch.places)),
                "variance": float(variance[i] / switch.places), "s": float(r.s[i]), "gamma": float(r.gamma[i]),
                "entropy": float(r.entropy[i]), "removed": int(r.removed[i]),
            })  # fmt: skip
        return {
            "history": {"bayesnas": training},
            "switches": {
                "threshold": THRESHOLD, "dependency": self.method.dependency, "hessian": self.method.hessian,
                "strength": self.strength, "rounds": self.rounds, "posterior": posterior,
            },
        }  # fmt: skip

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"relevance": self.relevance.state_dict(), "rounds": self.rounds, "measuring": self.measuring}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read what `state_dict` gave; what was removed leaves before the network's weights are loaded."""
        self.relevance.load_state_dict(state["relevance"])
        self.rounds, self.measuring = list(state["rounds"]), bool(state["measuring"])
        self.net.follow()
        self._wipe()


def _words(round_: Mapping[str, Any]) -> str:
    why = [entry["why"] for entry in round_["removed"]]
    counted = ", ".join(f"{why.count(w)} by {w}" for w in ("entropy", "edge", "source", "unread") if w in why)
    text = f"round {round_['round']}: {len(why)} switches off ({counted or 'none'}), {round_['left']} operations left"
    if round_["kept"]:
        text += f"; kept, or the network would not be connected: {', '.join(round_['kept'])}"
    if round_["isolated"]:
        text += f"; isolated nodes: {', '.join(round_['isolated'])}"
    return text
