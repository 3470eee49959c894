"""The diagonal of the loss' Hessian with respect to given tensors: switches, or weights (BayesNAS, arXiv:1905.04919).

One interface, `diagonal`, averages over a whole stream of batches and keeps no feature maps from one batch to the next:

- ``exact``: second derivatives by differentiating the gradient, a row per entry: for hundreds of entries;
- ``ggn``: the generalised Gauss-Newton matrix J' H J with the Hessian H of the loss by the outputs, exactly: a column
  per entry, or a row per output of a batch. It is never negative, and where the outputs are linear in every entry,
  as in a ReLU network with switches, its diagonal is the Hessian's;
- ``sampled``: the same in expectation, for one backward pass per batch (`sampled_diagonal`): for any number of entries;
- ``recursive``: the paper's approximation (appendix C), layer by layer (`sartor.engine.curvature.recursive`).

Images of a batch may influence each other (batch-norm in training): every way takes that into account but the last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Literal, final, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from sartor.core.errors import BadInput
from sartor.core.task import MultiLabel, Task

# B images, C outputs, R rows of a chunk, K entries of all tensors
How = Literal["exact", "ggn", "sampled", "recursive"]
Forward = Callable[[Tensor], Tensor]
Batches = Iterable[tuple[Tensor, Tensor]]


class Likelihood(ABC):
    """What the network's outputs mean: the energy E_D of a batch is the mean over its images (equation 15)."""

    @abstractmethod
    def loss(self, outputs_BC: Tensor, y: Tensor) -> Tensor:
        """The mean negative log-likelihood, up to a constant."""

    @abstractmethod
    def sample(self, outputs_BC: Tensor, generator: torch.Generator | None) -> Tensor:
        """Targets drawn from the network's own predictions."""

    @abstractmethod
    def bend(self, outputs_BC: Tensor, tangents_BCK: Tensor) -> Tensor:
        """(B, K): ``t' H t`` with H the Hessian of one image's loss by its outputs."""


@final
@dataclass(frozen=True)
class Categorical(Likelihood):
    """Logits of a class: cross-entropy, H = diag(p) - p p'."""

    def loss(self, outputs_BC: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy."""
        return F.cross_entropy(outputs_BC, y)

    @torch.no_grad()
    def sample(self, outputs_BC: Tensor, generator: torch.Generator | None) -> Tensor:
        """Labels, by an exponential race: unlike `torch.multinomial` it never waits for the device."""
        p = outputs_BC.float().softmax(1)
        return (p / torch.empty_like(p).exponential_(generator=generator)).argmax(1)

    @torch.no_grad()
    def bend(self, outputs_BC: Tensor, tangents_BCK: Tensor) -> Tensor:
        """The variance of the tangent under p."""
        p = outputs_BC.softmax(1)[:, :, None]
        return (p * tangents_BCK**2).sum(1) - (p * tangents_BCK).sum(1) ** 2


@final
@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """A logit for every label's yes or no: binary cross-entropy, H = diag(p (1 - p))."""

    def loss(self, outputs_BC: Tensor, y: Tensor) -> Tensor:
        """Summed over the labels."""
        return F.binary_cross_entropy_with_logits(outputs_BC, y.to(outputs_BC), reduction="sum") / len(y)

    @torch.no_grad()
    def sample(self, outputs_BC: Tensor, generator: torch.Generator | None) -> Tensor:
        """Labels."""
        p = outputs_BC.float().sigmoid()
        return (torch.empty_like(p).uniform_(generator=generator) < p).float()

    @torch.no_grad()
    def bend(self, outputs_BC: Tensor, tangents_BCK: Tensor) -> Tensor:
        """The labels' variances weigh the squared tangent."""
        p = outputs_BC.sigmoid()[:, :, None]
        return (p * (1 - p) * tangents_BCK**2).sum(1)


CATEGORICAL = Categorical()


def likelihood_of(task: Task) -> Likelihood:
    """What a task's loss is the negative logarithm of."""
    return Bernoulli() if isinstance(task, MultiLabel) else CATEGORICAL


def diagonal(
    forward: Forward,
    tensors: Sequence[Tensor],
    batches: Batches,
    how: How = "sampled",
    *,
    likelihood: Likelihood = CATEGORICAL,
    generator: torch.Generator | None = None,
    draws: int = 1,
    chunk: int = 32,
) -> list[Tensor]:
    """The Hessian's diagonal of the mean loss over all images of `batches`, one tensor for each of `tensors`.

    `tensors` are leaves that need gradients and that `forward` uses; one that it does not use has curvature zero.
    `draws` is how often ``sampled`` draws labels for a batch, `chunk` how many rows the other two hold at once.
    """
    if how not in get_args(How):
        raise BadInput(f"a Hessian is one of {', '.join(get_args(How))}, but got {how!r}.")
    if not all(t.requires_grad for t in tensors):
        raise BadInput("every tensor whose Hessian is wanted must require gradients: call requires_grad_() on it.")
    total, images = [torch.zeros_like(t) for t in tensors], 0
    for x, y in batches:
        if how == "exact":
            found = _exact(likelihood.loss(forward(x), y), tensors, chunk)
        elif how == "ggn":
            found = _gauss_newton(forward(x), tensors, likelihood, chunk)
        elif how == "sampled":
            found = sampled_diagonal(forward(x), tensors, likelihood, generator, draws)
        else:
            found = _recursive(forward, tensors, x, y, likelihood)
        images += len(x)
        torch._foreach_add_(total, [f * len(x) for f in found])
    if not images:
        raise BadInput("a Hessian needs at least one batch of images, but there was none.")
    return [t / images for t in total]


def sampled_diagonal(
    outputs: Tensor,
    tensors: Sequence[Tensor],
    likelihood: Likelihood = CATEGORICAL,
    generator: torch.Generator | None = None,
    draws: int = 1,
    keep: bool = False,
) -> list[Tensor]:
    """An unbiased estimate of the Gauss-Newton diagonal from a forward pass that is already there.

    With targets drawn from the predictions themselves, the residuals r_n of different images are independent, have mean
    zero and covariance H_n, so the square of the batch's gradient ``(1/B) sum_n J_n' r_n``, times B, is
    ``(1/B) sum_n J_n' H_n J_n`` in expectation: one backward pass, however many tensors, and the weights' own gradients
    are not computed. `keep` leaves the graph for the training step that follows.
    """
    total = [torch.zeros_like(t) for t in tensors]
    for draw in range(draws):
        loss = likelihood.loss(outputs, likelihood.sample(outputs, generator))
        retain = keep or draw + 1 < draws
        grads = torch.autograd.grad(loss, list(tensors), retain_graph=retain, allow_unused=True)
        for sum_, grad in zip(total, grads, strict=True):
            if grad is not None:
                sum_ += len(outputs) / draws * grad.detach() ** 2
    return total


def _exact(loss: Tensor, tensors: Sequence[Tensor], chunk: int) -> list[Tensor]:
    """Row k of the Hessian is the gradient of entry k of the gradient; its own entry of that row is kept."""
    grads = torch.autograd.grad(loss, list(tensors), create_graph=True, allow_unused=True)
    found = [torch.zeros_like(t) for t in tensors]
    for tensor, grad, out in zip(tensors, grads, found, strict=True):
        if grad is None or not grad.requires_grad:
            continue
        for rows in torch.split(torch.arange(tensor.numel(), device=tensor.device), chunk):
            second = _rows(grad, [tensor], _units(rows, tensor))[0].reshape(len(rows), -1)
            out.view(-1)[rows] = second.gather(1, rows[:, None])[:, 0]
    return found


def _gauss_newton(outputs_BC: Tensor, tensors: Sequence[Tensor], likelihood: Likelihood, chunk: int) -> list[Tensor]:
    """``(1/B) sum_m J_m' H_m J_m`` on the diagonal, from the Jacobian J of all outputs of all images.

    Its columns, one per entry, or its rows, one per output: whichever are fewer.
    """
    if sum(t.numel() for t in tensors) <= outputs_BC.numel():
        return _by_columns(outputs_BC, tensors, likelihood, chunk)
    count, classes = outputs_BC.shape
    found = [torch.zeros_like(t) for t in tensors]
    for images in torch.split(torch.arange(count), max(1, chunk // classes)):
        seeds = torch.zeros(len(images), classes, count, classes, dtype=outputs_BC.dtype, device=outputs_BC.device)
        for row, image in enumerate(images.tolist()):
            seeds[row, torch.arange(classes), image, torch.arange(classes)] = 1.0
        jacobian = _rows(outputs_BC, tensors, seeds.flatten(0, 1))
        for out, rows in zip(found, jacobian, strict=True):
            bent = likelihood.bend(outputs_BC.detach()[images], rows.reshape(len(images), classes, -1))
            out += bent.sum(0).view_as(out) / count
    return found


def _by_columns(outputs_BC: Tensor, tensors: Sequence[Tensor], likelihood: Likelihood, chunk: int) -> list[Tensor]:
    """A column ``J e_k`` is the derivative by u of entry k of ``J' u``, which is linear in u: reverse mode twice."""
    u = torch.zeros_like(outputs_BC, requires_grad=True)
    backs = torch.autograd.grad(outputs_BC, list(tensors), u, create_graph=True, allow_unused=True)
    found = [torch.zeros_like(t) for t in tensors]
    for tensor, back, out in zip(tensors, backs, found, strict=True):
        if back is None or not back.requires_grad:
            continue
        for entries in torch.split(torch.arange(tensor.numel(), device=tensor.device), chunk):
            columns_KBC = _rows(back, [u], _units(entries, tensor))[0]
            bent = likelihood.bend(outputs_BC.detach(), columns_KBC.permute(1, 2, 0))
            out.view(-1)[entries] = bent.mean(0)
    return found


def _units(entries: Tensor, like: Tensor) -> Tensor:
    """One tensor of zeros an entry, with a one there."""
    seeds = torch.zeros(len(entries), like.numel(), dtype=like.dtype, device=like.device)
    seeds[torch.arange(len(entries), device=like.device), entries] = 1.0
    return seeds.view(-1, *like.shape)


def _rows(of: Tensor, by: Sequence[Tensor], seeds: Tensor) -> list[Tensor]:
    """Gradients of ``<seed, of>`` by every tensor for every seed, vectorised; zero where there is no dependence."""
    grads = torch.autograd.grad(of, list(by), seeds, retain_graph=True, allow_unused=True, is_grads_batched=True)
    return [t.new_zeros(len(seeds), *t.shape) if g is None else g for t, g in zip(by, grads, strict=True)]


def _recursive(
    forward: Forward, tensors: Sequence[Tensor], x: Tensor, y: Tensor, likelihood: Likelihood
) -> list[Tensor]:
    walk = import_module("sartor.engine.curvature.recursive")  # only where it is wanted
    return list(walk.diagonal(forward, tensors, x, y, likelihood))
