"""How much memory the tensors of a network take at the worst moment, from when each is made and last read.

The network is run on shapes alone. Operators come one after another, as deployed ones do; a tensor's memory is free
again after the last operator that reads it. Batch-norm, activations and additions write over an input that nobody reads
after them: deployed, they are part of the convolution before. The image counts while it is needed; weights do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from sartor.costs.layers import telling
from sartor.deploy.module import evaluating
from sartor.spaces.base import Shape


@dataclass(frozen=True, slots=True)
class _Step:
    """One operator: the memories that it reads and makes, and whether it may write over what it reads."""

    reads: frozenset[int]
    makes: frozenset[int]
    in_place: bool


def peak(module: nn.Module, in_shape: Shape) -> int:
    """The most numbers that live at once while the module computes one image, batch 1."""
    tensors = dict([*module.named_parameters(), *module.named_buffers()])
    weights = {name: tensor if tensor.is_meta else tensor.detach().to("meta") for name, tensor in tensors.items()}
    x = torch.empty(1, *in_shape, device="meta")
    with evaluating(module), telling(module, torch.neg), _Recorder({_memory(t) for t in weights.values()}) as record:
        record.note(x)
        out = functional_call(module, weights, (x,))
    return _highest(record, {_memory(t) for t in tree_leaves(out) if isinstance(t, Tensor)}, _memory(x))


class _Recorder(TorchDispatchMode):
    """Lists every operator; tensors are kept, so that no two memories get the same name."""

    def __init__(self, weights: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.weights, self.sizes, self.steps, self.kept = weights, dict[int, int](), list[_Step](), list[Tensor]()

    def note(self, tensor: Tensor) -> int:
        """The tensor's memory; a view shares that of what it looks at."""
        self.kept.append(tensor)
        self.sizes.setdefault(_memory(tensor), tensor.numel())
        return _memory(tensor)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        reads, makes = (
            frozenset(self.note(t) for t in tree_leaves(values) if isinstance(t, Tensor)) - self.weights
            for values in ((args, kwargs), out)
        )
        in_place = torch.Tag.pointwise in func.tags or "batch_norm" in func.__name__
        self.steps.append(_Step(reads, makes - reads, in_place))
        return out


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _highest(record: _Recorder, results: set[int], image: int) -> int:
    last = {memory: n for n, step in enumerate(record.steps) for memory in (*step.reads, *step.makes)}
    last |= dict.fromkeys(results, len(record.steps))
    live = {image: record.sizes[image]}
    most = live[image]
    for n, step in enumerate(record.steps):
        free = [m for m in step.reads if last[m] == n and m in live]
        for made in step.makes:
            size = record.sizes[made]
            below = next((m for m in free if step.in_place and live[m] >= size), None)
            live[made] = size
            if below is not None:  # written over
                free.remove(below)
                del live[below]
        most = max(most, sum(live.values()))
        live = {m: size for m, size in live.items() if last.get(m, n) > n}
    return most
