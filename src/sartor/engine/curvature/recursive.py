"""BayesNAS's fast recursive Hessians: one backward pass of diagonals (arXiv:1905.04919, appendix C).

Every value of the network carries the diagonal of the loss's Hessian with respect to itself, from the outputs
backwards, as if the values of one layer did not interact. Two versions:

- ``diagonal`` keeps one entry a value and image: (C.1.4) and (C.1.5) for fully connected layers, the diagonals of
  (C.2.1) and (C.2.2) for convolutions, ``E sum B^2 H`` for switches (C.3);
- ``mean`` is the paper's faster one: inputs and Hessians enter by their means over the batch and the feature map
  (C.2.4), (C.2.5), (C.3.2).

Exact for the last layer; an approximation below it, since what the recursion drops is the interaction of values.
Where the paper's (C.2.3) averages over positions this sums over them: a kernel's weight acts at every position.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from sartor.core.errors import BadInput
from sartor.engine.curvature.hessian import CATEGORICAL, Likelihood

Version = Literal["diagonal", "mean"]

_COPIES = (nn.Identity, nn.Dropout, nn.Dropout2d, nn.Flatten, nn.MaxPool2d, nn.ZeroPad2d)
_AVERAGES = (nn.AvgPool2d, nn.AdaptiveAvgPool2d)
_POINTWISE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SiLU, nn.GELU, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardsigmoid,
    nn.Hardtanh, nn.Softplus,
)  # fmt: skip
_COPY_CALLS = {torch.flatten, torch.cat, F.pad, F.dropout, F.max_pool2d, torch.reshape}
_COPY_METHODS = {"flatten", "view", "reshape", "contiguous", "squeeze", "unsqueeze", "permute", "transpose"}
_AVERAGE_CALLS = {F.avg_pool2d, F.adaptive_avg_pool2d, torch.mean}
_POINTWISE_CALLS = {
    F.relu, torch.relu, F.relu6, torch.sigmoid, F.sigmoid, torch.tanh, F.tanh, F.silu, F.gelu, F.leaky_relu,
    F.hardswish, F.hardsigmoid, F.hardtanh, F.softplus,
}  # fmt: skip
_ADDS = {operator.add, operator.iadd, torch.add}
_PRODUCTS = {operator.mul, operator.imul, torch.mul}
_QUOTIENTS = {operator.truediv, operator.itruediv, torch.div}


def diagonal(
    forward: Any, tensors: Sequence[Tensor], x: Tensor, y: Tensor, likelihood: Likelihood, version: Version = "diagonal"
) -> list[Tensor]:
    """The diagonals for these parameters of a module, on one batch: the way ``recursive`` of `curvature.hessian`."""
    net = forward if isinstance(forward, nn.Module) else getattr(forward, "__self__", None)
    if not isinstance(net, nn.Module):
        raise BadInput("recursive Hessians need the network itself as `forward`: an nn.Module, not another function.")
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    found = recursive_diagonals(net, [(x, y)], version, likelihood)
    missing = [names.get(id(t), "one of no module") for t in tensors if names.get(id(t)) not in found]
    if missing:
        raise BadInput(
            "recursive Hessians exist for weights of convolutions and linear layers and for parameters that multiply, "
            f"but not for {', '.join(missing)}."
        )
    return [found[names[id(t)]].view_as(t) for t in tensors]


def recursive_diagonals(
    net: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    version: Version = "diagonal",
    likelihood: Likelihood = CATEGORICAL,
) -> dict[str, Tensor]:
    """The approximate Hessian diagonal of the mean loss, by parameter name.

    For the weights of convolutions and linear layers, and for parameters that multiply values (switches).
    Batch-norms use their running statistics; `batches` is the whole stream over which the mean is taken.
    """
    modes = [(m, m.training) for m in net.modules()]
    net.eval()
    try:
        tape = _Tape(net, version, likelihood)
        for x, y in batches:
            tape.add(x, y)
    finally:
        for module, training in modes:
            module.training = training
    if not tape.images:
        raise BadInput("a Hessian needs at least one batch of images, but there is none.")
    return {name: total / tape.images for name, total in tape.totals.items()}


class _Tape:
    """A traced network, its values on one batch, and the sums of diagonals over all batches."""

    def __init__(self, net: nn.Module, version: Version, likelihood: Likelihood) -> None:
        self.likelihood = likelihood
        try:
            self.traced = fx.symbolic_trace(net)
        except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
            raise BadInput(
                f"recursive Hessians need a network that torch.fx can trace, but: {error}. Use Gauss-Newton instead."
            ) from error
        self.nodes = list(self.traced.graph.nodes)
        self.mean = version == "mean"
        self.totals: dict[str, Tensor] = {}
        self.images = 0
        self.values: dict[fx.Node, Any] = {}
        self.slopes: dict[fx.Node, Tensor] = {}

    def add(self, x: Tensor, y: Tensor) -> None:
        """One batch: forwards, the first derivatives that curved activations need, and the recursion backwards."""
        interpreter = fx.Interpreter(self.traced, garbage_collect_values=False)
        curved = [n for n in self.nodes if self._curved(n)]
        with torch.set_grad_enabled(bool(curved)):
            logits: Tensor = interpreter.run(x)
            self.values = dict(interpreter.env)
            if curved:
                loss = self.likelihood.loss(logits, y) * len(x)
                grads = torch.autograd.grad(loss, [self.values[n] for n in curved], allow_unused=True)
                self.slopes = {n: g for n, g in zip(curved, grads, strict=True) if g is not None}
        with torch.no_grad():
            output = next(n for n in reversed(self.nodes) if n.op == "output")
            unit = torch.eye(logits.shape[1], dtype=logits.dtype, device=logits.device).expand(len(x), -1, -1)
            self._backward(output.args[0], self.likelihood.bend(logits.detach(), unit))
        self.images += len(x)
        self.values.clear()

    def _backward(self, last: Any, seed: Tensor) -> None:
        found: dict[fx.Node, Tensor] = {last: self._reduce(seed)}
        for node in reversed(self.nodes):
            hessian = found.pop(node, None)
            if hessian is None:
                continue
            if node.op == "get_attr":
                self._tally(str(node.target), self._whole(hessian, self.values[node]))
                continue
            if node.op == "placeholder":
                continue
            for source, part in self._step(node, hessian):
                part = self._reduce(part) if source.op != "get_attr" else part
                found[source] = found[source] + part if source in found else part

    # one node --------------------------------------------------------------------------------------------------------

    def _step(self, node: fx.Node, h: Tensor) -> list[tuple[fx.Node, Tensor]]:
        """The Hessians of a node's inputs, from that of its output."""
        module = self.traced.get_submodule(str(node.target)) if node.op == "call_module" else None
        target = node.target
        sources = [n for n in node.all_input_nodes if isinstance(self.values.get(n), Tensor)]
        if isinstance(module, nn.Conv2d):
            return [(sources[0], self._conv(str(target), module, self.values[sources[0]].detach(), h))]
        if isinstance(module, nn.Linear):
            return [(sources[0], self._linear(str(target), module, self.values[sources[0]].detach(), h))]
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            return [(sources[0], h * _norm_scale(module, self.values[sources[0]].ndim) ** 2)]
        if self._pointwise(node):
            return [(sources[0], self._activation(node, sources[0], h))]
        if (
            isinstance(module, _COPIES)
            or target in _COPY_CALLS
            or (node.op == "call_method" and target in _COPY_METHODS)
        ):
            return self._vjp(node, sources, h)
        if isinstance(module, _AVERAGES) or target in _AVERAGE_CALLS or (node.op, target) == ("call_method", "mean"):
            share = _coefficients(module, node, self.values[sources[0]], self.values[node])
            return self._vjp(node, sources, self._whole(h, self.values[node]) * share)
        if target in _ADDS:
            return [(s, _sum_to(self._whole(h, self.values[node]), self.values[s])) for s in sources]
        if target in _PRODUCTS:
            return self._product(node, h)
        if target in _QUOTIENTS and isinstance(node.args[1], int | float):
            return [(sources[0], h / float(node.args[1]) ** 2)]
        if target is operator.getitem:
            return self._vjp(node, sources, h)
        raise BadInput(
            f"recursive Hessians do not know the operation {target!r} ({node.op}). Use Gauss-Newton instead."
        )

    def _conv(self, name: str, conv: nn.Conv2d, x: Tensor, h: Tensor) -> Tensor:
        """(C.2.1), (C.2.2); by means: (C.2.4), (C.2.5)."""
        weight2, geometry = conv.weight.detach() ** 2, _geometry(conv)
        if not self.mean:
            back = torch.ops.aten.convolution_backward(
                h.contiguous(),
                (x * x).contiguous(),
                weight2.contiguous(),
                None,
                *geometry,
                False,
                [0, 0],
                conv.groups,
                [True, True, False],
            )
            self._tally(f"{name}.weight", back[1])
            return back[0]  # type: ignore[no-any-return]
        out = F.conv2d(x[:1], conv.weight.detach(), None, *geometry, conv.groups)
        positions, places = out[0, 0].numel(), x[0, 0].numel()
        h_n = h.reshape(-1)[:, None, None, None]  # E(H) of every filter
        x2_c = (x * x).mean((0, 2, 3))
        per_group = x2_c.reshape(conv.groups, -1).repeat_interleave(len(weight2) // conv.groups, 0)
        self._tally(f"{name}.weight", len(x) * positions * h_n * per_group[:, :, None, None].expand_as(weight2))
        spread = (weight2 * h_n).sum((2, 3)).reshape(conv.groups, -1, weight2.shape[1]).sum(1)
        return spread.reshape(1, -1, 1, 1) * (positions / places)

    def _linear(self, name: str, linear: nn.Linear, x: Tensor, h: Tensor) -> Tensor:
        """(C.1.4), (C.1.5) without the activation, which is a node of its own."""
        if self.mean:
            rows = x.reshape(-1, x.shape[-1])
            self._tally(f"{name}.weight", len(rows) * torch.outer(h.reshape(-1), (rows * rows).mean(0)))
        else:
            self._tally(f"{name}.weight", h.flatten(0, -2).T @ (x * x).flatten(0, -2))
        return h @ linear.weight.detach() ** 2

    def _activation(self, node: fx.Node, source: fx.Node, h: Tensor) -> Tensor:
        """``sigma'(h)^2 H + sigma''(h) dL/da`` (C.1.5); by means as (C.2.5) has it."""
        with torch.enable_grad():
            x = self.values[source].detach().requires_grad_(True)
            y = self._call(node, {source: x})
            (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            second = None
            if node in self.slopes and first.requires_grad:
                (second,) = torch.autograd.grad(first.sum(), x)
        first = self._reduce(first.detach())
        bent = h * first * first
        return bent if second is None else bent + self._reduce(second * self.slopes[node])

    def _product(self, node: fx.Node, h: Tensor) -> list[tuple[fx.Node, Tensor]]:
        """``a b`` with respect to either factor: the other one's square (C.3.1), for a switch (C.3.2) by means."""
        found = []
        whole = self._whole(h, self.values[node])
        for mine, other in ((node.args[0], node.args[1]), (node.args[1], node.args[0])):
            if not isinstance(mine, fx.Node) or not isinstance(self.values.get(mine), Tensor):
                continue
            factor = self.values[other] if isinstance(other, fx.Node) else other
            square = factor.detach() ** 2 if isinstance(factor, Tensor) else torch.as_tensor(float(factor) ** 2)  # type: ignore[arg-type]
            if self.mean and mine.op == "get_attr" and isinstance(factor, Tensor):
                square = factor.detach().abs().mean() ** 2
            found.append((mine, _sum_to(whole * square, self.values[mine])))
        return found

    # helpers ---------------------------------------------------------------------------------------------------------

    def _vjp(self, node: fx.Node, sources: list[fx.Node], h: Tensor) -> list[tuple[fx.Node, Tensor]]:
        """Through operations that copy values: the derivative is 0 or 1, and so is its square."""
        with torch.enable_grad():
            leaves = {s: self.values[s].detach().requires_grad_(True) for s in sources}
            y = self._call(node, leaves)
            grads = torch.autograd.grad(y, list(leaves.values()), self._whole(h, y).contiguous())
        return list(zip(leaves, grads, strict=True))

    def _call(self, node: fx.Node, leaves: dict[fx.Node, Tensor]) -> Tensor:
        """The node again, on leaves of its own."""
        values = {n: v.detach() if isinstance(v, Tensor) else v for n, v in self.values.items()} | leaves
        args = fx.map_arg(node.args, lambda n: values[n])
        kwargs = fx.map_arg(node.kwargs, lambda n: values[n])
        out: Tensor
        if node.op == "call_module":
            module = self.traced.get_submodule(str(node.target))
            out = _curved_call(module, args) if isinstance(module, _POINTWISE) else module(*args, **kwargs)
        elif node.op == "call_method":
            out = getattr(args[0], str(node.target))(*args[1:], **kwargs)
        elif node.target in (F.hardswish, F.hardsigmoid):
            out = _curved_call(nn.Hardswish() if node.target is F.hardswish else nn.Hardsigmoid(), args)
        else:
            assert callable(node.target)
            out = node.target(*args, **{k: v for k, v in kwargs.items() if k != "inplace"})
        return out

    def _pointwise(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return isinstance(self.traced.get_submodule(str(node.target)), _POINTWISE)
        return node.target in _POINTWISE_CALLS or (
            node.op == "call_method" and node.target in ("relu", "sigmoid", "tanh")
        )

    def _curved(self, node: fx.Node) -> bool:
        """Whether the node is an activation with a second derivative."""
        if not self._pointwise(node):
            return False
        straight = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Hardtanh, nn.Hardsigmoid)
        if node.op == "call_module":
            return not isinstance(self.traced.get_submodule(str(node.target)), straight)
        return node.target not in {F.relu, torch.relu, F.relu6, F.leaky_relu, F.hardtanh, F.hardsigmoid, "relu"}

    def _reduce(self, h: Tensor) -> Tensor:
        """By means: one entry a channel, the mean over the batch and the feature map."""
        if not self.mean or h.ndim < 2:
            return h
        axes = (0, 2, 3) if h.ndim == 4 else tuple(range(h.ndim - 1))
        return h.mean(axes, keepdim=True)

    def _whole(self, h: Tensor, value: Tensor) -> Tensor:
        return h.expand(value.shape) if h.shape != value.shape else h

    def _tally(self, name: str, value: Tensor) -> None:
        value = value.detach().to(torch.float64 if value.dtype == torch.float64 else torch.float32)
        self.totals[name] = self.totals[name] + value if name in self.totals else value.clone()


def _geometry(conv: nn.Conv2d) -> tuple[list[int], list[int], list[int]]:
    """Stride, padding and dilation as numbers."""
    if conv.padding_mode != "zeros":
        raise BadInput(f"recursive Hessians need zero padding, but a convolution has {conv.padding_mode!r}.")
    padding = conv.padding
    if isinstance(padding, str):
        sizes = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
        if padding == "same" and any(s % 2 for s in sizes):
            raise BadInput("recursive Hessians need even padding, but a convolution has an even kernel and 'same'.")
        padding = tuple(s // 2 for s in sizes) if padding == "same" else (0, 0)
    return list(conv.stride), list(padding), list(conv.dilation)


def _norm_scale(norm: Any, ndim: int) -> Tensor:
    scale: Tensor = (norm.running_var + norm.eps) ** -0.5
    scale = scale if norm.weight is None else scale * norm.weight.detach()
    return scale.reshape(1, -1, *([1] * (ndim - 2)))


def _curved_call(module: nn.Module, args: tuple[Any, ...]) -> Tensor:
    """Activations out of place, and in a form that has the second derivative PyTorch's own lacks."""
    x: Tensor = args[0]
    if isinstance(module, nn.Hardswish):
        return x * F.relu6(x + 3) / 6
    if isinstance(module, nn.Hardsigmoid):
        return F.relu6(x + 3) / 6
    out: Tensor = module(x.clone()) if getattr(module, "inplace", False) else module(x)
    return out


def _coefficients(module: nn.Module | None, node: fx.Node, x: Tensor, y: Tensor) -> Tensor | float:
    """What every output of an average multiplies each value of its window by: squared, it is itself times this."""
    if isinstance(module, nn.AvgPool2d):
        return _padded(x, {name: getattr(module, name) for name in _POOLING})
    if node.target is F.avg_pool2d:
        return _padded(x, dict(zip(_POOLING, node.args[1:], strict=False)) | dict(node.kwargs))
    if isinstance(module, nn.AdaptiveAvgPool2d) or node.target is F.adaptive_avg_pool2d:
        rows, columns = (_spans(size, out) for size, out in zip(x.shape[2:], y.shape[2:], strict=True))
        return 1 / (rows[:, None] * columns[None]).to(x)
    return float(y.numel() / x.numel())


_POOLING = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override")


def _padded(x: Tensor, options: dict[str, Any]) -> Tensor:
    """The average of ones, which is coefficient times values in the window, over the number of these values."""
    options = {k: v for k, v in options.items() if k in _POOLING}
    ones = torch.ones_like(x[:1, :1])
    values = F.avg_pool2d(ones, **(options | {"count_include_pad": True, "divisor_override": 1}))
    return F.avg_pool2d(ones, **options) / values


def _spans(size: int, out: int) -> Tensor:
    """How many values each of `out` adaptive windows over `size` of them has."""
    return torch.tensor([-(-(i + 1) * size // out) - i * size // out for i in range(out)])


def _sum_to(h: Tensor, like: Tensor) -> Tensor:
    """Undo broadcasting: a value that was used many times gets the sum."""
    return h.sum_to_size(like.shape) if h.shape != like.shape else h
