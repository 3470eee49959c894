"""The tensors of modules that differ in widths only: as large as the largest needs; others have their leading slices.

A batch-norm has parameters and statistics of its own for every number of inputs, as in slimmable networks
(arXiv:1812.08928): what is summed over more channels varies more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from sartor.spaces.mending import mended

_NORM = ("weight", "bias", "running_mean", "running_var")


@dataclass(frozen=True)
class Make:
    """How a module of certain widths is made, and for which number of inputs its batch-norms are."""

    build: Callable[[], nn.Module]
    inputs: Hashable


class Norms(nn.Module):
    """A batch-norm for every number of inputs, as rows of a table; it is the modules' own that compute."""

    running_mean: Tensor
    running_var: Tensor
    seen: Tensor  # batches, by each row

    def __init__(self, rows: int, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(rows, channels))
        self.bias = nn.Parameter(torch.zeros(rows, channels))
        self.register_buffer("running_mean", torch.zeros(rows, channels))
        self.register_buffer("running_var", torch.ones(rows, channels))
        self.register_buffer("seen", torch.zeros(rows, dtype=torch.int64))
        self.momentum = 0.1

    def average_anew(self) -> None:
        """Forget the batches that were seen: a row's first ones are averaged, each counting alike."""
        self.seen.zero_()

    def weigh(self, row: int) -> float:
        """What the next batch counts for in a row's statistics."""
        self.seen[row] += 1
        return max(self.momentum, 1 / int(self.seen[row]))


@final
class Shared(nn.Module):
    """The tensors of modules that differ in widths only."""

    def __init__(self, made: Mapping[Hashable, Make]) -> None:
        super().__init__()
        self.made, self.rows = dict(made), list(dict.fromkeys(make.inputs for make in made.values()))
        self.modules_at: dict[Hashable, nn.Module] = {}  # without memory of their own
        shapes: dict[str, tuple[tuple[int, ...], nn.Module]] = {}
        widest: dict[str, int] = {}
        for key in made:
            for path, part in self._at(key).named_modules():
                if isinstance(part, nn.BatchNorm2d):
                    widest[path] = max(part.num_features, widest.get(path, 0))
                    continue
                for name, tensor in part.named_parameters(path, recurse=False):
                    known = shapes.get(name, (tensor.shape, part))[0]
                    shapes[name] = tuple(map(max, tensor.shape, known)), part
        self.tensors = nn.ParameterDict(
            {_key(name): _fresh(part, name, shape) for name, (shape, part) in shapes.items()}
        )
        self.norms = nn.ModuleDict({_key(path): Norms(len(self.rows), width) for path, width in widest.items()})

    def _at(self, key: Hashable) -> nn.Module:
        if key not in self.modules_at:
            with torch.device("meta"):
                self.modules_at[key] = mended(self.made[key].build())
        return self.modules_at[key]

    def slices(self, key: Hashable) -> dict[str, Tensor]:
        """The tensors of the module with these widths, by its own names."""
        row, found = self.rows.index(self.made[key].inputs), dict[str, Tensor]()
        for path, part in self._at(key).named_modules():
            if isinstance(part, nn.BatchNorm2d):
                norms = self.norms[_key(path)]
                found |= {f"{path}.{name}": getattr(norms, name)[row, : part.num_features] for name in _NORM}
                continue
            for name, tensor in part.named_parameters(path, recurse=False):
                found[name] = self.tensors[_key(name)][tuple(slice(0, n) for n in tensor.shape)]
        return found

    def forward(self, x: Tensor, key: Hashable) -> Tensor:
        """The module of these widths."""
        module, row = self._at(key).train(self.training), self.rows.index(self.made[key].inputs)
        for path, part in module.named_modules() if self.training else ():
            if isinstance(part, nn.BatchNorm2d):
                norms = self.norms[_key(path)]
                assert isinstance(norms, Norms)
                part.momentum = norms.weigh(row)
        y: Tensor = functional_call(module, self.slices(key), (x,))
        return y


def _key(name: str) -> str:
    return name.replace(".", "/")


def _fresh(part: nn.Module, name: str, shape: tuple[int, ...]) -> Tensor:
    """As `initialise` does it: Kaiming-normal convolutions (fan out), a small normal classifier, biases of zero."""
    tensor = torch.zeros(shape)
    if name.endswith("weight") and isinstance(part, nn.Conv2d):
        nn.init.kaiming_normal_(tensor, mode="fan_out")
    elif name.endswith("weight"):
        nn.init.normal_(tensor, 0.0, 0.01)
    return tensor
