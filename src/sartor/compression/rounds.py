"""Algorithm 3's iteration: reweighted group-lasso training, Hessians, updates of the prior, pruning."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sartor.compression.flow import scale_free
from sartor.compression.given import Given
from sartor.compression.graph import Index, Width, widths
from sartor.compression.priors import Prior
from sartor.compression.space import Widths
from sartor.compression.structures import layers, of_layer
from sartor.compression.surgery import Branch, branches
from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.costs.base import Cost, CostTable
from sartor.engine import checkpoint
from sartor.engine.curvature.hessian import diagonal, likelihood_of
from sartor.engine.curvature.recursive import Version, recursive_diagonals
from sartor.engine.evaluate import accuracy
from sartor.engine.fit import Training, fit, nothing
from sartor.engine.network import settle_norms
from sartor.solvers import solve
from sartor.solvers.base import Problem, Solution
from sartor.spaces.supernet import StepDraw


class Emptied(BadInput):
    """The prior took all channels of a width that the network cannot be without."""


class Sparse:
    """The network under its prior, and what its channels are worth."""

    def __init__(self, job: Given, net: nn.Module) -> None:
        self.job, self.net = job, net
        self.widths: tuple[Width, ...] = widths(net, job.example())
        self.branches: tuple[Branch, ...] = branches(net)
        self.free = scale_free(net, job.example())
        self.prior: Prior

    def place(self) -> Sparse:
        """To the device, with a fresh prior."""
        options = self.job.options
        self.job.engine.place(self.net)
        assert options.strength is not None  # completed for the training images
        self.prior = Prior(self.net, self._structures(options.structures), options.strength, self.free)
        return self

    def _structures(self, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        """Per layer; outputs that must all stay, the classifier's, get no prior of their own."""
        makes = {s.layer for w in self.widths for s in w.slots if s.side == "out"}
        chosen = {}
        for name, layer in layers(self.net).items():
            free = [n for n in names if name in makes or 0 not in of_layer(layer, [n])[0].index]
            chosen[name] = tuple(free)
        return chosen

    def values(self) -> list[np.ndarray]:
        """The relevance of every channel of every width, in units of the loss.

        The weights that make a channel and those that read it each tell how much the loss would rise without it: the
        mean of the two; of pixels there are only readers.
        """
        found = []
        for width in self.widths:
            told = {"out": np.zeros(width.channels), "in": np.zeros(width.channels)}
            for slot in width.slots:
                if slot.layer in self.prior.layers:
                    told[slot.side] += self._along(slot.layer, slot.side)[slot.index].sum(1)
            mean = told["in"] if width.pixels else (told["in"] + told["out"]) / 2
            found.append(self.prior.strength * mean)
        return found

    def _along(self, layer: str, side: str) -> np.ndarray:
        """A layer's relevance summed for every output, or every input."""
        relevance = self.prior.layers[layer].relevance
        axis = 0 if side == "out" and relevance.shape[0] > 1 else 1
        return relevance.sum([a for a in range(4) if a != axis]).double().cpu().numpy()

    def settle(self) -> int:
        """Channels that nothing makes, or nothing reads, go from all their layers; how many channels live."""
        living = 0
        for width in self.widths:
            made, read = np.zeros(width.channels, bool), np.zeros(width.channels, bool)
            for slot in width.slots:
                if slot.layer in self.prior.layers:
                    used = (self._nonzero(slot.layer, slot.side)[slot.index]).any(1)
                    made |= used if slot.side == "out" else False
                    read |= used if slot.side == "in" else False
            alive = read if width.pixels else made & read
            if not alive.any() and not any(all(s.layer in b.layers for s in width.slots) for b in self.branches):
                raise Emptied(
                    f"all channels of {width.name} have died: the prior is too strong for this network. Lower its "
                    f"strength (now {self.prior.strength:g}) with --set strength=..., into a new --out."
                )
            self.mask(width, np.flatnonzero(alive))
            living += int(alive.sum())
        return living

    def _nonzero(self, layer: str, side: str) -> np.ndarray:
        weight = self.prior.layers[layer].weight
        axis = 0 if side == "out" and weight.shape[0] > 1 else 1
        return (weight != 0).float().sum([a for a in range(4) if a != axis]).cpu().numpy() > 0

    @torch.no_grad()
    def mask(self, width: Width, kept: Index) -> None:
        """The weights of all channels but `kept` are pruned on every side."""
        gone = np.setdiff1d(np.arange(width.channels), kept)
        if not len(gone):
            return
        for slot in width.slots:
            prior = self.prior.layers.get(slot.layer)
            if prior is not None:
                entries = torch.from_numpy(slot.index[gone].reshape(-1)).to(prior.alive.device)
                axis = 0 if slot.side == "out" and prior.alive.shape[0] > 1 else 1
                prior.alive.index_fill_(axis, entries, 0.0)
                prior.mask()

    def space(self, most: int | None = None) -> Widths:
        """All networks that narrowing can give now; with `most`, in steps so coarse that no more parts are priced."""
        levels = self.job.options.levels
        while True:
            made = Widths(self.net, self.job.task, self.widths, self.values(), self.branches, levels)
            if most is None or levels <= 3 or len({part.key for part in made.parts(self.job.task)}) <= most:
                return made
            levels -= 1

    def state(self) -> dict[str, Any]:
        """Everything a later process needs."""
        return {"net": self.net.state_dict(), "prior": self.prior.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Read what `state` gave."""
        self.net.load_state_dict(state["net"])
        self.prior.load_state_dict(state["prior"])


def table(job: Given, cost: Cost, space: Widths, made: CostTable | None = None) -> CostTable:
    """A cost's table over the space; what no part holds (a parameter outside all layers, say) is a constant."""
    made = made or cost.table(space, job.task)
    if cost.measured:
        return made
    whole = cost.of(space.network(space.heaviest, job.task).cpu(), job.shape)
    return replace(made, form=made.form + Quadratic(space.sizes, whole - made.form(space.heaviest)))


def run_rounds(
    job: Given, sparse: Sparse, limits: Mapping[str, float], given: Mapping[str, float]
) -> list[dict[str, Any]]:
    """T_max rounds, each resumed from its own file; what happened in every one.

    A later round that would leave no network is undone, and the rounds end with what the one before it left.
    """
    history: list[dict[str, Any]] = []
    total = job.options.rounds or 1
    files = [job.run.path / f"search/round-{t + 1}.safetensors" for t in range(total)]
    for t, file in enumerate(files):
        if file.exists():
            saved = checkpoint.load(file)
            sparse.load(saved)
            history.append(dict(saved["facts"]))
            continue
        way = _path(job, limits, given, (t + 1) / (total + 1)) if job.options.gradual else {}
        try:
            facts = _round(job, sparse, t, way)
        except Emptied as error:
            if not history:
                raise
            sparse.load(checkpoint.load(files[t - 1]))
            job.run.log(f"warning: round {t + 1} is undone, and the rounds end with what round {t} left: {error}")
            break
        history.append(facts)
        checkpoint.save(file, {**sparse.state(), "facts": facts})
        job.run.log(
            f"round {t + 1}: {facts['weights'] / facts['of_weights']:.1%} of the weights, {facts['channels']} "
            f"channels; validation {facts['val_trained']:.2f} % trained, {facts['val_pruned']:.2f} % pruned"
        )
    if not limits and history[-1]["weights"] == history[-1]["of_weights"]:
        o = job.options
        job.run.log(
            f"warning: nothing was pruned: without a budget lambda decides alone. Raise strength (now {o.strength:g}), "
            f"rounds ({o.rounds}) or epochs ({o.epochs}) with --set, or give a budget, e.g. --params 50%"
        )
    return history


def _path(job: Given, limits: Mapping[str, float], given: Mapping[str, float], share: float) -> dict[str, float]:
    """Limits a share of the way (in logarithms) from the given network; a measured budget leads by its guide."""
    ways: dict[str, float] = {}
    for name, limit in limits.items():
        ratio = min(1.0, limit / given[name])
        target = job.costs[name].guide if job.costs[name].measured else name
        ways[target] = min(ways.get(target, np.inf), given[target] * ratio**share)
    return ways


def _round(job: Given, sparse: Sparse, t: int, limits: Mapping[str, float]) -> dict[str, Any]:
    start = time.monotonic()
    prior, recipe = sparse.prior, job.options.round_recipe()

    def loss(x: Tensor, y: Tensor, drawn: StepDraw) -> dict[str, Tensor]:
        return {"loss": job.task.loss(sparse.net(x), y, recipe.smoothing)}

    def shrink(training: Training, optimiser: torch.optim.SGD, epoch: int, step: int, steps: int) -> None:
        # A gradient moves the weights by lr / (1 - momentum) in the end: so must the penalty's.
        prior.proximal(optimiser.param_groups[0]["lr"] / (1 - recipe.momentum))

    training = Training(
        f"round-{t + 1}", sparse.net, loss, recipe, job.feed, job.splits.train, job.run,
        extra={"prior": prior}, after=shrink, draw=nothing, title=f"training, round {t + 1}",
    )  # fmt: skip
    history = fit(training)
    penalty, trained = float(prior.penalty()), accuracy(sparse.net, job.feed, job.splits.val)
    left = prior.update(hessians(job, sparse.net))
    channels = sparse.settle()
    if limits:
        channels = _narrow(job, sparse, limits)
    settle_norms(sparse.net, job.feed, job.splits)
    weights = sum(int(p.alive.sum()) for p in prior.layers.values())
    return {
        "round": t + 1, "loss": history[-1]["loss"], "penalty": penalty, "groups_left": left, "limits": dict(limits),
        "weights": weights, "of_weights": sum(p.alive.numel() for p in prior.layers.values()), "channels": channels,
        "val_trained": trained, "val_pruned": accuracy(sparse.net, job.feed, job.splits.val),
        "seconds": time.monotonic() - start,
    }  # fmt: skip


def hessians(job: Given, net: nn.Module) -> dict[str, Tensor]:
    """Step 2 of Algorithm 3, over a fixed random part of the training images.

    ``auto`` is the recursion, or sampled Gauss-Newton for networks that it cannot follow.
    """
    how, likelihood = job.options.hessian, likelihood_of(job.task)
    index = np.sort(job.feed.seeds.rng("hessian images").permutation(job.splits.train)[: job.options.hessian_images])
    if how != "sampled":
        try:
            version: Version = "mean" if how == "mean" else "diagonal"
            return recursive_diagonals(net, job.feed.plain(index, 256), version, likelihood)
        except BadInput as error:
            if how != "auto":
                raise
            job.run.log(f"{error} Sampled Gauss-Newton is used")
    net.eval()
    weights = {f"{name}.weight": layer.weight for name, layer in layers(net).items()}
    generator = job.feed.seeds.torch("hessian labels", device=job.engine.device)
    batches = job.feed.plain(index, 32)
    found = diagonal(net, list(weights.values()), batches, "sampled", likelihood=likelihood, generator=generator)
    return dict(zip(weights, found, strict=True))


def best(problem: Problem, seconds: float = 60.0) -> Solution:
    """The optimum by HiGHS: widths are coupled, so that no frontier is to be had."""
    return solve(problem, "milp", time_limit=seconds)


def _narrow(job: Given, sparse: Sparse, limits: Mapping[str, float]) -> int:
    """Prune to this round's share of the way to the budget: the least relevant channels by the exact solver."""
    space = sparse.space()
    forms = [Limit(name, table(job, job.costs[name], space).form, high) for name, high in limits.items()]
    try:
        found = best(Problem(space.score, (*forms, *space.rules)), 20.0)
    except Infeasible:  # the last step, which is exact, will say so with all it knows
        return int(sum(len(k) for k in space.kept(space.heaviest)))
    kept = space.kept(found.arch)
    for width, channels in zip(sparse.widths, kept, strict=True):
        sparse.mask(width, channels)
    sparse.settle()
    return int(sum(len(k) for k in kept))
