"""Fine-tuning of the cut network: the labels and the given network's outputs; pruned weights stay zero."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sartor.compression.given import Job
from sartor.engine.evaluate import accuracy, recalibrate
from sartor.engine.fit import History, Training, fit, nothing
from sartor.engine.network import TEACHER_WEIGHT, calibration
from sartor.spaces.supernet import StepDraw


class Masks:
    """Which weights of a network are alive; applied after every step."""

    def __init__(self, net: nn.Module, masks: Mapping[str, Tensor]) -> None:
        own = dict(net.named_parameters())
        # A layer whose weights are all alive needs no mask.
        self.pairs = [(own[n], m.to(own[n])) for n, m in masks.items() if n in own and not bool(m.all())]

    @torch.no_grad()
    def apply(self) -> None:
        """Zeros where nothing is alive."""
        for weight, mask in self.pairs:
            weight.mul_(mask)


def finetune(
    job: Job, net: nn.Module, teacher: nn.Module | None, masks: Mapping[str, Tensor], name: str
) -> tuple[History, float]:
    """Train the small network in place; the history, and the validation accuracy it started with."""
    recipe = job.options.training
    job.engine.place(net)
    held = Masks(net, masks)
    held.apply()

    def loss(x: Tensor, y: Tensor, drawn: StepDraw) -> dict[str, Tensor]:
        logits = net(x)
        labels = job.task.loss(logits, y, recipe.smoothing)
        if teacher is None:
            return {"loss": labels}
        with torch.no_grad():
            target = teacher(x)
        imitation = job.task.imitation(logits, target)
        return {"loss": labels + TEACHER_WEIGHT * imitation, "labels": labels, "imitation": imitation}

    def hold(training: Training, optimiser: torch.optim.SGD, epoch: int, step: int, steps: int) -> None:
        held.apply()

    renormalise(job, net)
    inherited = accuracy(net, job.feed, job.splits.val)
    training = Training(
        name, net, loss, recipe, job.feed, job.splits.train, job.run,
        after=hold if held.pairs else None, draw=nothing,
    )  # fmt: skip
    history = fit(training)
    held.apply()  # moving averages forget zeros only in the limit
    renormalise(job, net)
    return history, inherited


def renormalise(job: Job, net: nn.Module) -> None:
    """Batch-norm statistics for the weights as they are now."""
    if any(hasattr(m, "running_mean") for m in net.modules()):
        recalibrate(net, calibration(job.feed, job.splits), job.engine.cast(lambda x, _: net(x)))
