"""Gradients as measurements: networks prepared for them, the neural tangent kernel's trace and its approximations.

Equation numbers are NASI's (arXiv:2109.00817). What a network's gradients say depends on how its weights were drawn
and on what its batch-norms do, so both are said explicitly (`prepare`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

Init = Literal["keep", "default", "kaiming", "xavier", "lecun"]
Norm = Literal["batch", "running", "off"]
Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {
    "cross_entropy": F.cross_entropy,
    "mse": lambda f, y: F.mse_loss(f, _targets(f, y), reduction="sum") / len(f),
    "logits": lambda f, y: (f * _targets(f, y)).sum() / len(f),  # of the target classes: no loss at all
}


def _targets(f: Tensor, y: Tensor) -> Tensor:
    """A one for every class that an image shows; labels of several classes are that already."""
    return y.to(f) if y.ndim == 2 else torch.eye(f.shape[-1], dtype=f.dtype, device=f.device)[y]


def prepare(net: nn.Module, init: Init, norm: Norm, gain: float = 1.0, seed: int = 0) -> None:
    """Draw the weights of convolutions and linear layers anew and settle the batch-norms, in place.

    `init`: ``keep`` leaves the weights; ``default`` is PyTorch's; the others are normal with variance 2 / fan-in
    (``kaiming``), 2 / (fan-in + fan-out) (``xavier``) and 1 / fan-in (``lecun``), biases zero. Weights are multiplied
    by `gain`. `norm`: statistics of the ``batch``, the ``running`` ones, or ``off``: no normalisation at all.
    """
    generator = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            _draw(module, init, gain, generator)
    net.train(norm == "batch")
    if norm == "off":
        _without_norms(net)


@torch.no_grad()
def _draw(module: nn.Conv2d | nn.Linear, init: Init, gain: float, generator: torch.Generator) -> None:
    weight = module.weight
    fan_in, fan_out = weight[0].numel(), len(weight) * weight[0, 0].numel()
    if init == "default":
        bound = fan_in**-0.5
        for tensor in (weight, module.bias):
            if tensor is not None:
                tensor.copy_(torch.empty(tensor.shape).uniform_(-bound, bound, generator=generator))
    elif init != "keep":
        variance = {"kaiming": 2 / fan_in, "xavier": 2 / (fan_in + fan_out), "lecun": 1 / fan_in}[init]
        weight.copy_(torch.empty(weight.shape).normal_(0.0, variance**0.5, generator=generator))
        if module.bias is not None:
            module.bias.zero_()
    weight.mul_(gain)


def _without_norms(net: nn.Module) -> None:
    """Batch-norms in a sequence are replaced by nothing; others become the identity, with nothing to train."""
    for module in list(net.modules()):
        if isinstance(module, nn.Sequential):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.BatchNorm2d):
                    setattr(module, name, nn.Identity())
        elif hasattr(module, "running_mean"):
            with torch.no_grad():
                norm: Any = module
                for tensor, value in ((norm.running_mean, 0.0), (norm.running_var, 1.0)):
                    tensor.fill_(value)
                for tensor, value in ((norm.weight, 1.0), (norm.bias, 0.0)):
                    if tensor is not None:
                        tensor.fill_(value)
            module.requires_grad_(False)


def weights(net: nn.Module) -> list[nn.Parameter]:
    """The parameters theta: all that would be trained."""
    return [p for p in net.parameters() if p.requires_grad]


def ntk_factors(net: nn.Module) -> list[float]:
    """By which every parameter's squared gradient norm is multiplied in Jacot's parameterisation.

    There a layer multiplies by ``W / sqrt(n)`` with W of variance one and n its fan-in: with weights ``W / sqrt(n)``
    drawn (init ``lecun``) the network is the same, and its gradient by W is that by the weights over ``sqrt(n)``.
    """
    fan_in = {id(m.weight): m.weight[0].numel() for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)}
    return [1.0 / fan_in.get(id(p), 1) for p in weights(net)]


def squared_norm(tensors: Iterable[Tensor | None], factors: Iterable[float] | None = None) -> Tensor:
    """The squared Euclidean norm of everything together, each tensor's times its factor; None (unused) is zero."""
    pairs = zip(tensors, repeat(1.0) if factors is None else factors, strict=False)
    parts = [factor * t.pow(2).sum() for t, factor in pairs if t is not None]
    return torch.stack(parts).sum() if parts else torch.zeros(())


def batch_trace(net: nn.Module, x: Tensor, y: Tensor, loss: Loss = F.cross_entropy) -> float:
    """Equation 12: the squared norm of the mini-batch's mean-loss gradient (without its factor m / gamma)."""
    grads = torch.autograd.grad(loss(net(x), y), weights(net), allow_unused=True)
    return float(squared_norm(grads))


def sum_trace(net: nn.Module, x: Tensor, y: Tensor, loss: Loss = F.cross_entropy, chunk: int = 16) -> float:
    """The first part of equation 11: the sum over images of each one's squared gradient norm, vectorised."""
    theta, rest = _split(net)

    def one(theta: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        return loss(functional_call(net, (theta, rest), (image[None],)), label[None])

    grads = vmap(grad(one), in_dims=(None, 0, 0), chunk_size=chunk)(theta, x, y)
    return float(squared_norm(grads.values()))


def exact_trace(net: nn.Module, x: Tensor, chunk: int = 8) -> float:
    """Equation 9: the NTK's trace, the sum over images of the squared Frobenius norm of the Jacobian of all outputs.

    One image at a time for the mathematics, vectorised over images and outputs for the machine. Batch-norms must not
    use the statistics of the batch here, since images then have no Jacobians of their own: see `joint_trace`.
    """
    theta, rest = _split(net)

    def outputs(theta: dict[str, Tensor], image: Tensor) -> Tensor:
        out: Tensor = functional_call(net, (theta, rest), (image[None],))
        return out[0]

    total = 0.0
    for part in torch.split(x, chunk):
        jacobians = vmap(jacrev(outputs), in_dims=(None, 0))(theta, part)
        total += float(squared_norm(jacobians.values()))
    return total


def joint_trace(net: nn.Module, x: Tensor, chunk: int = 16) -> float:
    """Equation 9 where images influence each other through batch statistics: all outputs of all images as one."""
    theta, rest = _split(net)
    leaves = {n: t.requires_grad_(True) for n, t in theta.items()}
    out: Tensor = functional_call(net, (leaves, rest), (x,))
    basis = torch.eye(out.numel(), dtype=out.dtype, device=out.device).view(-1, *out.shape)
    total = 0.0
    for part in torch.split(basis, chunk):
        rows = torch.autograd.grad(
            out, list(leaves.values()), part, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
        total += float(squared_norm(rows))
    return total


def _split(net: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Parameters that are trained, and everything else, as copies: running statistics must not move."""
    theta = {n: p.detach() for n, p in net.named_parameters() if p.requires_grad}
    rest = {n: p.detach() for n, p in net.named_parameters() if not p.requires_grad}
    return theta, rest | {n: b.detach().clone() for n, b in net.named_buffers()}
