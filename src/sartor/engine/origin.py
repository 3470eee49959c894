"""Weights learnt elsewhere, and what of them a network takes: whatever matches, sliced where widths differ.

A run brings all that it left: the exported network, the supernet, the teacher, the networks of its last trials. Of
these a network takes from the one that has most for it: by the names of tensors, or, of an exported network, stage by
stage and block by block, so that one with other depths has as much of it as there is (`translation`, which also knows
the names of timm's). Its head, the last layer with an output a class, stays new.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sartor.core.arch import Arch
from sartor.core.errors import BadInput, SartorError
from sartor.core.registry import SPACES
from sartor.deploy.export import read_safetensors
from sartor.engine import checkpoint
from sartor.engine.translation import (
    KNOWN,
    Body,
    Theirs,
    by_parts,
    common,
    download,
    fitting,
    give,
    parts,
    timms,
    windows,
)
from sartor.runs.directory import Run, read_file, search_of, sha256
from sartor.runs.schema import ModelFile, SplitsFile

_TIMM = "timm:"
_EXPORTED = "model/weights.safetensors"
_PICKLES = (".pth", ".pt", ".bin", ".ckpt", ".pkl")


@dataclass(frozen=True)
class Taken:
    """How many of a network's weights came from elsewhere, of how many, and from which file."""

    weights: int
    of: int
    sliced: int  # tensors of which a part fitted
    source: str

    @property
    def share(self) -> float:
        """Of the network's weights."""
        return self.weights / max(1, self.of)

    def __str__(self) -> str:
        part = f", {self.sliced} tensors in part" if self.sliced else ""
        percent = math.floor(1000 * self.share) / 10  # never rounded up to all of them: the head is new
        return f"{percent:.1f} % of {self.of:,} weights from {self.source}{part}"


@final
@dataclass(frozen=True)
class Origin:
    """A run directory, a safetensors file, or the name of one of timm's networks.

    It is read when it is made: what cannot be used is refused before any search.
    """

    path: str

    def __post_init__(self) -> None:
        path = Path(self.path)
        if self.timm is None and not self.is_run and not path.is_file():
            raise BadInput(
                f"--start {self.path} must be a finished run, a safetensors file or timm:NAME, but there is none."
            )
        self._read()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process reads the files itself; what timm gave is sent."""
        if self.timm is None:
            return Origin, (self.path,)
        return _sent, (
            self.path,
            {file: {n: t.numpy() for n, t in held.items()} for file, held in self.networks.items()},
        )

    @classmethod
    def found(cls, path: str | None) -> Origin | None:
        """The origin, where the path still leads to weights."""
        try:
            return None if path is None else cls(path)
        except SartorError:
            return None

    def _read(self) -> None:
        if Path(self.path).suffix.lower() in _PICKLES and not self.is_run:
            raise BadInput(
                f"--start {self.path} is a pickle, which is not loaded because unpickling can run any code. Save its "
                "tensors with safetensors.torch.save_file(torch.load(path, weights_only=True), 'weights.safetensors')."
            )
        assert self.networks
        try:
            assert self.body is None or self.body.stages is not None
        except BadInput as error:
            raise BadInput(f"--start {self.path}: {error}") from error

    @property
    def is_run(self) -> bool:
        """Whether it is a finished run."""
        return self.timm is None and (Path(self.path) / _EXPORTED).is_file()

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
        if not self.is_run:
            return {path.name: read_safetensors(path)[0]}
        found: dict[str, Mapping[str, Tensor]] = {_EXPORTED: read_safetensors(path / _EXPORTED)[0]}
        search = path / "search"
        for file in (search / "supernet.safetensors", search / "teacher.safetensors",
                     *sorted(search.glob("starts/*.safetensors"))):  # fmt: skip
            if file.is_file():
                held = checkpoint.load(file)
                found[str(file.relative_to(path))] = {n: t for n, t in held.items() if isinstance(t, Tensor)}
        return found

    def identity(self) -> dict[str, str]:
        """The sha256 of every file; of timm's network that of its tensors."""
        if self.timm is None:
            whole = Path(self.path)
            return {file: sha256(whole / file if self.is_run else whole) for file in self.networks}
        return {file: _hash(held) for file, held in self.networks.items()}

    @cached_property
    def splits(self) -> SplitsFile | None:
        """Which images a run was trained on."""
        file = search_of(Path(self.path)) / SplitsFile.NAME
        return read_file(file, SplitsFile) if self.is_run and file.is_file() else None

    @cached_property
    def body(self) -> Body[Theirs] | None:
        """Its network by parts: timm's, or a run's, where its space is one of Sartor's and has some."""
        held = next(iter(self.networks.values()))
        if timms(held):
            return by_parts(held)
        if not self.is_run:
            return None
        known = Run(Path(self.path)).load(ModelFile)
        if known.space is None:
            return None
        options = dict(known.space)
        try:
            space = SPACES.make(options.pop("name", None), options, trusted=False)
            with torch.device("meta"):
                return parts(space.network(Arch(known.picks), known.task), held)
        except (SartorError, KeyError):  # a space from elsewhere, which is code; or a network that its files misstate
            return None

    def into(self, net: nn.Module, classes: int) -> Taken:
        """Put into a network what it can take, and say how much that was."""
        own, head = net.state_dict(), _head(net, classes)
        names = [n for n, t in own.items() if t.is_floating_point() and n not in head]
        best = max(self.networks, key=lambda file: sum(_overlap(own[n], self.networks[file].get(n)) for n in names))
        held, trained = self.networks[best], dict(net.named_parameters())
        total = sum(p.numel() for p in trained.values())
        by_part = 0 if self.body is None else fitting(net, self.body)
        by_name = sum(_overlap(own[n], held.get(n)) for n in names if n in trained)
        # Names mean the same in both only where both have the same layers: a block more moves all that follow.
        if self.body is not None and by_part and (own.keys() != held.keys() or by_part > by_name):
            weights, sliced = give(net, self.body)
            return Taken(weights, total, sliced, next(iter(self.networks)))
        return Taken(by_name, total, _put({n: own[n] for n in names}, held), best)

    @property
    def told(self) -> Sequence[Mapping[str, str]]:
        """The choices that make its network, as one space or another names them; none where they are not known."""
        if self.timm is not None:
            return KNOWN.get(self.timm.partition(".")[0], ())
        return (Run(Path(self.path)).load(ModelFile).architecture,) if self.is_run else ()


def _sent(path: str, networks: Mapping[str, Mapping[str, NDArray[Any]]]) -> Origin:
    origin = object.__new__(Origin)
    held = {file: {n: torch.from_numpy(a) for n, a in arrays.items()} for file, arrays in networks.items()}
    vars(origin).update(path=path, networks=held)
    return origin


def _hash(held: Mapping[str, Tensor]) -> str:
    sha = hashlib.sha256()
    for name, tensor in sorted(held.items()):
        sha.update(f"{name}\0{tuple(tensor.shape)}\0".encode())
        sha.update(np.ascontiguousarray(tensor.cpu().numpy()).tobytes())
    return sha.hexdigest()


def _head(net: nn.Module, classes: int) -> set[str]:
    """The parameters of the last layer with an output for every class."""
    layers = [n for n, m in net.named_modules() if isinstance(m, nn.Linear) and m.out_features == classes]
    return {f"{layers[-1]}.weight", f"{layers[-1]}.bias"} if layers else set()


def _overlap(mine: Tensor, theirs: Tensor | None) -> int:
    """How many numbers of a tensor another can give; those of other dimensions give none."""
    if theirs is None or theirs.ndim != mine.ndim or not theirs.is_floating_point():
        return 0
    return common(mine.shape, theirs.shape)


@torch.no_grad()
def _put(own: Mapping[str, Tensor], held: Mapping[str, Tensor]) -> int:
    """Put into tensors what those of the same name have for them; how many of them that fills only in part."""
    sliced = 0
    for name, mine in own.items():
        many = _overlap(mine, held.get(name))
        if many:
            here, there = windows(mine.shape, held[name].shape)
            mine[here] = held[name][there].to(mine)
            sliced += many < mine.numel()
    return sliced
