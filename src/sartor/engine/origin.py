"""Weights learnt elsewhere, and what of them a network takes: whatever matches by name, sliced where widths differ.

A run brings all that it left: the exported network, the supernet, the teacher, the networks of its last trials. Of
these a network takes from the one that has most for it. Its head, the last layer with an output a class, stays new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.deploy.export import read_safetensors
from sartor.engine import checkpoint
from sartor.runs.directory import Run
from sartor.runs.schema import ModelFile

_EXPORTED = "model/weights.safetensors"


@dataclass(frozen=True)
class Taken:
    """How many of a network's weights came from elsewhere, of how many, and from which file."""

    weights: int
    of: int
    sliced: int  # tensors of which a part fitted
    source: str

    def __str__(self) -> str:
        part = f", {self.sliced} tensors in part" if self.sliced else ""
        return f"{100 * self.weights / max(1, self.of):.0f} % of {self.of:,} weights from {self.source}{part}"


@final
@dataclass(frozen=True)
class Origin:
    """A run directory, or a safetensors file."""

    path: str

    def __post_init__(self) -> None:
        path = Path(self.path)
        if self.path.startswith("timm:"):
            raise BadInput(
                "weights are taken from a run or a safetensors file: save the network of timm's as one first."
            )
        if not (path / _EXPORTED).is_file() and not path.is_file():
            raise BadInput(f"--start {self.path} must be a finished run or a safetensors file, but there is none.")

    @cached_property
    def networks(self) -> dict[str, Mapping[str, Tensor]]:
        """The tensors of every network by its file."""
        path = Path(self.path)
        if path.is_file():
            return {path.name: read_safetensors(path)[0]}
        found: dict[str, Mapping[str, Tensor]] = {_EXPORTED: read_safetensors(path / _EXPORTED)[0]}
        search = path / "search"
        for file in (search / "supernet.safetensors", search / "teacher.safetensors",
                     *sorted(search.glob("starts/*.safetensors"))):  # fmt: skip
            if file.is_file():
                held = checkpoint.load(file)
                found[str(file.relative_to(path))] = {n: t for n, t in held.items() if isinstance(t, Tensor)}
        return found

    def into(self, net: nn.Module, classes: int) -> Taken:
        """Put into a network what it can take, and say how much that was."""
        own = net.state_dict()
        names = [n for n, t in own.items() if t.is_floating_point() and n not in _head(net, classes)]
        total = sum(p.numel() for p in net.parameters())
        best = max(self.networks, key=lambda file: sum(_overlap(own[n], self.networks[file].get(n)) for n in names))
        held, weights, sliced = self.networks[best], 0, 0
        with torch.no_grad():
            for name in names:
                many = _overlap(own[name], held.get(name))
                if many:
                    here, there = _windows(own[name].shape, held[name].shape)
                    own[name][here] = held[name][there].to(own[name])
                    weights += many * (name in dict(net.named_parameters()))
                    sliced += many < own[name].numel()
        return Taken(weights, total, sliced, best)

    def arch(self, choices: Sequence[Choice]) -> Arch | None:
        """The run's own network as one of another space, where that has every one of its choices by name."""
        if Path(self.path).is_file():
            return None
        told = Run(Path(self.path)).load(ModelFile).architecture
        if set(told) - {c.name for c in choices}:
            return None
        picks = [c.options.index(told[c.name]) if told.get(c.name) in c.options else None for c in choices]
        missing = [c for c, pick in zip(choices, picks, strict=True) if pick is None and c.name in told]
        return None if missing else Arch(tuple(pick or 0 for pick in picks))


def _head(net: nn.Module, classes: int) -> set[str]:
    """The parameters of the last layer with an output for every class."""
    layers = [n for n, m in net.named_modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    return {f"{layers[-1]}.weight", f"{layers[-1]}.bias"} if layers else set()


def _overlap(mine: Tensor, theirs: Tensor | None) -> int:
    """How many numbers of a tensor another can give; those of other dimensions give none."""
    if theirs is None or theirs.ndim != mine.ndim or not theirs.is_floating_point():
        return 0
    return int(torch.tensor([min(a, b) for a, b in zip(mine.shape, theirs.shape, strict=True)]).prod())


def _windows(mine: Sequence[int], theirs: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """What two tensors have in common: their first channels, and of kernels of different sizes the middle."""
    here, there = [], []
    for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        both = min(a, b)
        middle = len(mine) == 4 and k >= 2
        here.append(slice(s := (a - both) // 2 if middle else 0, s + both))
        there.append(slice(s := (b - both) // 2 if middle else 0, s + both))
    return tuple(here), tuple(there)
