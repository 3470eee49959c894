"""Which layers' weights have a common factor that the loss does not feel, found in the graph that autograd records."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sartor.compression.structures import layers

_NORMS = ("NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm")
# A factor of what goes in is a factor of what comes out.
_HOMOGENEOUS = (
    "Relu", "LeakyRelu", "MaxPool2DWithIndices", "AdaptiveMaxPool2D", "AvgPool2D", "AdaptiveAvgPool2D", "Mean",
    "ConstantPadNd", "Cat", "View",
)  # fmt: skip
_SHIFTLESS = ("Cat",)  # of these, what leaves a channel's constant the constant that a norm takes away


def scale_free(net: nn.Module, x: Tensor) -> set[str]:
    """The layers whose every reader is a batch-norm, whatever lies between them that passes a factor on."""
    found: dict[str, Any] = {}
    handles = [layer.register_forward_hook(_noting(found, name)) for name, layer in layers(net).items()]
    modes = [(m, m.training) for m in net.modules()]
    net.eval()
    try:
        with torch.enable_grad():
            out = net(x.clone().requires_grad_(True))
    finally:
        for handle in handles:
            handle.remove()
        for module, training in modes:
            module.training = training
    readers = _readers(out.grad_fn)
    biased = {name for name, layer in layers(net).items() if layer.bias is not None}
    return {name for name, node in found.items() if _normed(node, readers, name in biased)}


def _noting(found: dict[str, Any], name: str) -> Any:
    def hook(_module: nn.Module, _args: tuple[Any, ...], out: Tensor) -> None:
        found[name] = out.grad_fn

    return hook


def _readers(last: Any) -> dict[Any, list[Any]]:
    """For every step of the computation those that read what it makes; the network's output is read by None."""
    readers: dict[Any, list[Any]] = {last: [None]}
    waiting, seen = [last], {last}
    while waiting:
        node = waiting.pop()
        for source, _ in node.next_functions:
            if source is None:
                continue
            readers.setdefault(source, []).append(node)
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    return readers


def _normed(node: Any, readers: dict[Any, list[Any]], biased: bool) -> bool:
    """Whether all that becomes of this step's values ends in batch-norms; a bias has to reach them as it is."""
    for reader in readers.get(node, [None]):
        kind = "" if reader is None else reader.name().rpartition("Backward")[0]
        if kind in _NORMS:
            continue
        if kind not in (_SHIFTLESS if biased else _HOMOGENEOUS) or not _normed(reader, readers, biased):
            return False
    return True
