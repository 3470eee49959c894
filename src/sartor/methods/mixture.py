"""Search by a mixture of all options: what XNAS and DARTS share (first order, section 4.1 of XNAS).

The training images are halved: one half trains the weights of the network, the other the weights of the
mixture. After every step on the former follows one on the latter, each treating the other as constant.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sartor.core.quadratic import Array, Quadratic, while_active
from sartor.data.augment import Augment
from sartor.engine.fit import History, Training, fit
from sartor.engine.recipe import Recipe
from sartor.engine.replay import Repeated
from sartor.engine.seeding import seeded
from sartor.methods.base import Job
from sartor.spaces.capabilities import Wipeable, mixable
from sartor.spaces.supernet import StepDraw, new_supernet

Group = tuple[tuple[int, ...], int, int]  # choices with the same number of options, in the same number of places


def groups(job: Job) -> list[Group]:
    """Forecasters that share a learning rate: (choices, options, replicas); a single option is no choice."""
    found: dict[tuple[int, int], list[int]] = {}
    for choice, replicas in mixable(job.space).forecasters(job.task).items():
        if job.space.sizes[choice] > 1:
            found.setdefault((job.space.sizes[choice], replicas), []).append(choice)
    return [(tuple(choices), options, replicas) for (options, replicas), choices in found.items()]


class Learner(ABC):
    """The weights of the mixture, a (choices, options) tensor per group, and how they learn."""

    def expect(self, images: int) -> None:  # noqa: B027 (who does not care need not listen)
        """Before the first step: so many images will be shown to the mixture, one step's after the other."""

    @abstractmethod
    def leaves(self) -> list[Tensor]:
        """What the loss is differentiated by, anew for every step."""

    @abstractmethod
    def weights(self, leaves: Sequence[Tensor]) -> list[Tensor]:
        """The mixture's weights, group by group."""

    @abstractmethod
    def step(self, gradients: Sequence[Tensor], samples: int, left: int) -> None:
        """Learn from the gradients by the leaves of a mean loss over `samples` images; `left` are still to come."""

    @abstractmethod
    def scores(self) -> list[Tensor]:
        """The score of every option, group by group; only differences between a choice's options matter."""

    @abstractmethod
    def alive(self) -> list[Tensor]:
        """Which options are still in the mixture."""

    @abstractmethod
    def summary(self) -> list[dict[str, float]]:
        """What is worth plotting, group by group."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read what `state_dict` gave."""


class Search:
    """One search: the network, the learner, and their common history; state that a checkpoint holds."""

    def __init__(self, job: Job, learner: Learner, recipe: Recipe, name: str) -> None:
        self.job, self.learner, self.recipe, self.name = job, learner, recipe, name
        with seeded(job.seeds.number("supernet")):
            self.net: Any = job.engine.place(new_supernet(job.space, job.task))
        self.groups = groups(job)
        order = job.seeds.rng("halves").permutation(job.splits.train)
        self.train, self.held = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        if not len(self.train):
            self.train = self.held
        self.history: list[dict[str, Any]] = []
        self._batches: Iterator[tuple[Tensor, Tensor]] = iter(())
        self._following = -1  # the step that these batches go on at
        self._rewards, self._gone = Repeated(self._gradients, job.engine.device), list[tuple[int, int]]()

    def run(self) -> History:
        """Alternate until the recipe's epochs are over; goes on where a killed search stopped."""
        job = self.job
        training = Training(self.name, self.net, self._loss, self.recipe, job.feed, self.train, job.run)
        t = job.timed(replace(training, extra={"mixture": self}, after=self._after, draw=self._mixture))
        t = replace(t, title="training a mixture of all options")
        steps = len(job.feed.batches(self.train, self.recipe.batch, self.name))
        epochs = self.recipe.epochs if t.length is None else t.length.end
        self.learner.expect(max(1, round(epochs * steps)) * self._shown(self.recipe.batch))
        return fit(t)

    def _shown(self, batch: int) -> int:
        """How many images of the other half a step shows; those of a last, smaller batch are never shown."""
        return min(batch, len(self.held))

    def gates(self, weights: Sequence[Tensor]) -> Any:
        """The mixture that the supernet runs; choices with one option have the weight 1."""
        rows = {c: w[n] for (choices, _, _), w in zip(self.groups, weights, strict=True) for n, c in enumerate(choices)}
        like = weights[0]
        single = {c: like.new_ones(1) for c in mixable(self.job.space).forecasters(self.job.task) if c not in rows}
        return mixable(self.job.space).mixture({**rows, **single})

    @torch.no_grad()
    def _mixture(self, rng: np.random.Generator, images: int) -> StepDraw:
        """The present mixture, which a step on the network's weights leaves alone."""
        return StepDraw(tuple(w.detach() for w in self.learner.weights(self.learner.leaves())))

    def _loss(self, x: Tensor, y: Tensor, mixture: StepDraw) -> dict[str, Tensor]:
        """Line 4 of Algorithm 1: the training loss at the present mixture."""
        return {"loss": self.job.task.loss(self.net(x, self.gates(mixture.tensors)), y, self.recipe.smoothing)}

    def _gradients(self, tensors: Sequence[Tensor], freed: int) -> list[Tensor]:
        """Line 7: the loss on the other half differentiated by the mixture."""
        x, y, *at = tensors
        leaves = [a.detach().requires_grad_() for a in at]
        with self.job.engine.autocast():
            loss = self.job.task.loss(self.net(x, self.gates(self.learner.weights(leaves))), y, self.recipe.smoothing)
        return list(torch.autograd.grad(loss, leaves))

    def _after(self, t: Training, optimiser: torch.optim.SGD, epoch: int, step: int, steps: int) -> None:
        """Lines 5 to 12: the other half's gradient by the mixture. Wiped options leave the network once per epoch.

        Once an epoch, since looking which ones left waits for the device; until then their weight is zero.
        """
        assert t.length is not None
        shown, left = self._shown(t.recipe.batch), max(0, round((t.length.end - epoch) * steps) - step - 1)
        x, y = self._next(t, epoch, step)
        gradients = self._rewards((x, y, *self.learner.leaves()), key=len(self._gone))
        t.engine.average(gradients)
        self.learner.step(gradients, shown, left * shown)
        if step == steps - 1 or not left:
            self._free(self._dead(), optimiser)
            self.history.append(self._moment(epoch))

    def _next(self, t: Training, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """The held half's batch of this step; a function of epoch and step alone."""
        if step != self._following:  # a new epoch, or one that was stopped here
            self._batches = self._epoch(t, epoch, step)
        self._following = step + 1
        try:
            return next(self._batches)
        except StopIteration:  # this half has one batch less
            there = len(t.feed.batches(self.held, t.recipe.batch, t.name))
            self._batches = self._epoch(t, epoch, step - there, "again")
            return next(self._batches)

    def _epoch(self, t: Training, epoch: int, start: int, more: str = "held") -> Iterator[tuple[Tensor, Tensor]]:
        augment = Augment.for_task(t.feed.images.task, t.recipe.augment)
        return t.feed.train(self.held, t.recipe.batch, augment, f"{t.name}/{more}", epoch, start)

    def _dead(self) -> list[tuple[int, int]]:
        """Choices with those of their options that were wiped."""
        each = zip(self.groups, self.learner.alive(), strict=True)
        return [(choices[f], o) for (choices, _, _), alive in each for f, o in (~alive).nonzero().tolist()]

    def _free(self, gone: list[tuple[int, int]], optimiser: torch.optim.SGD | None = None) -> None:
        """Wiped options leave the network, and the optimiser forgets their momentum."""
        if isinstance(self.net, Wipeable):
            self.net.wipe(gone)
        self._gone = gone  # another network from here on
        if optimiser is not None:
            for group in optimiser.param_groups:
                for p in group["params"]:
                    if not p.requires_grad:
                        optimiser.state.pop(p, None)

    def _moment(self, epoch: int) -> dict[str, Any]:
        """The end of an epoch, for plots."""
        weights = self.learner.weights(self.learner.leaves())
        return {
            "epoch": epoch + 1,
            "groups": self.learner.summary(),
            "weights": [[[round(float(v), 5) for v in row] for row in w.detach().cpu()] for w in weights],
        }

    def score(self) -> Quadratic:
        """Each option's score, counted while its choice has an effect: the solver's unconstrained answer keeps the
        inputs with the largest weights, and on each the option with the largest weight, as the papers do.
        """
        rows: dict[int, Array] = {}
        for (members, _, _), scores in zip(self.groups, self.learner.scores(), strict=True):
            rows.update(zip(members, scores.double().cpu().numpy(), strict=True))
        return while_active(self.job.space.choices, rows)

    def facts(self, training: History) -> Mapping[str, Any]:
        """The history for score.json and the report."""
        names = [c.name for c in self.job.space.choices]
        return {
            "history": {self.name: training},
            "mixture": {
                "groups": [
                    {"choices": [names[c] for c in members], "options": options, "replicas": replicas}
                    for members, options, replicas in self.groups
                ],
                "epochs": self.history,
            },
        }

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"learner": self.learner.state_dict(), "history": self.history, "gone": self._gone}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read what `state_dict` gave; what was wiped is freed before the network's weights are loaded."""
        self.learner.load_state_dict(state["learner"])
        self.history = list(state["history"])
        self._free([(c, o) for c, o in state["gone"]] if "gone" in state else self._dead())
