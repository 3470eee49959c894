"""Weights learnt elsewhere, and what of them a network takes: whatever matches, sliced where widths differ.

A run brings all that it left: the exported network, the supernet, the teacher, the networks of its last trials. Of
these a network takes from the one that has most for it: by the names of tensors, or, of an exported network, stage by
stage and block by block, so that one with other depths has as much of it as there is (`translation`, which also knows
the names of timm's). Its head, the last layer with an output a class, stays new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn

from sartor.core.arch import Arch
from sartor.core.errors import BadInput, SartorError
from sartor.core.registry import SPACES
from sartor.deploy.export import read_safetensors
from sartor.engine import checkpoint
from sartor.engine.translation import KNOWN, Body, Theirs, download, give, parts, put, timms, windows
from sartor.runs.directory import Run
from sartor.runs.schema import ModelFile

_TIMM = "timm:"
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
    """A run directory, a safetensors file, or the name of one of timm's networks."""

    path: str

    def __post_init__(self) -> None:
        path = Path(self.path)
        if self.timm is not None:
            assert self.networks  # downloaded now: not after a search that would be in vain
        elif not (path / _EXPORTED).is_file() and not path.is_file():
            raise BadInput(
                f"--start {self.path} must be a finished run, a safetensors file or timm:NAME, but there is none."
            )

    @staticmethod
    def there(path: str | None) -> str | None:
        """The path, where it still leads to weights."""
        try:
            return None if path is None else Origin(path).path
        except SartorError:
            return None

    @property
    def timm(self) -> str | None:
        """The name of timm's network."""
        return self.path.removeprefix(_TIMM) if self.path.startswith(_TIMM) else None

    @cached_property
    def networks(self) -> dict[str, Mapping[str, Tensor]]:
        """The tensors of every network by its file."""
        path = Path(self.path)
        if self.timm is not None:
            return {f"timm's {self.timm}": download(self.timm)}
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

    @cached_property
    def body(self) -> Body[Theirs] | None:
        """The parts of the network that a run exported, where its space is one of Sartor's whose networks have some."""
        if self.timm is not None or Path(self.path).is_file():
            return None
        known = Run(Path(self.path)).load(ModelFile)
        if known.space is None:
            return None
        options = dict(known.space)
        try:
            space = SPACES.make(options.pop("name", None), options, trusted=False)
            with torch.device("meta"):
                return parts(space.network(Arch(known.picks), known.task), self.networks[_EXPORTED])
        except (SartorError, KeyError):  # a space from elsewhere, which is code; or a network that its files misstate
            return None

    def into(self, net: nn.Module, classes: int) -> Taken:
        """Put into a network what it can take, and say how much that was."""
        total = sum(p.numel() for p in net.parameters())
        first, held = next(iter(self.networks.items()))
        if timms(held):
            weights, sliced = put(net, held)
            return Taken(weights, total, sliced, first)
        own = net.state_dict()
        names = [n for n, t in own.items() if t.is_floating_point() and n not in _head(net, classes)]
        best = max(self.networks, key=lambda file: sum(_overlap(own[n], self.networks[file].get(n)) for n in names))
        held, weights, sliced = self.networks[best], 0, 0
        trained = dict(net.named_parameters())
        by_part = give(net, self.body, counted=True)[0] if self.body is not None else 0
        by_name = sum(_overlap(own[n], held.get(n)) for n in names if n in trained)
        # Names mean the same in both only where both have the same layers: a block more moves all that follow.
        if self.body is not None and by_part and (own.keys() != held.keys() or by_part > by_name):
            weights, sliced = give(net, self.body)
            return Taken(weights, total, sliced, _EXPORTED)
        with torch.no_grad():
            for name in names:
                many = _overlap(own[name], held.get(name))
                if many:
                    here, there = windows(own[name].shape, held[name].shape)
                    own[name][here] = held[name][there].to(own[name])
                    weights += many * (name in trained)
                    sliced += many < own[name].numel()
        return Taken(weights, total, sliced, best)

    @property
    def told(self) -> Sequence[Mapping[str, str]]:
        """The network itself by its choices, as one space or another names them; nothing where that is not known."""
        if self.timm is not None:
            return KNOWN.get(self.timm.partition(".")[0], ())
        return () if Path(self.path).is_file() else (Run(Path(self.path)).load(ModelFile).architecture,)


def _head(net: nn.Module, classes: int) -> set[str]:
    """The parameters of the last layer with an output for every class."""
    layers = [n for n, m in net.named_modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    return {f"{layers[-1]}.weight", f"{layers[-1]}.bias"} if layers else set()


def _overlap(mine: Tensor, theirs: Tensor | None) -> int:
    """How many numbers of a tensor another can give; those of other dimensions give none."""
    if theirs is None or theirs.ndim != mine.ndim or not theirs.is_floating_point():
        return 0
    return int(torch.tensor([min(a, b) for a, b in zip(mine.shape, theirs.shape, strict=True)]).prod())
