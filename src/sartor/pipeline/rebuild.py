"""The network of a finished fit, made anew from its files."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from sartor.core.arch import Arch
from sartor.core.errors import RunError
from sartor.core.registry import SPACES
from sartor.deploy.export import load_weights, matching
from sartor.pipeline.options import Plug
from sartor.runs.directory import read_file
from sartor.runs.schema import ModelFile
from sartor.spaces.base import Space


def rebuild(path: Path, trusted: bool = False) -> nn.Module:
    """The trained PyTorch network that `path`'s model folder describes, in evaluation mode.

    A space from outside Sartor is code that the files name: it is imported only where they are `trusted`. A network
    that its weights do not fit is refused before it takes any memory.
    """
    described, weights = read_file(path / ModelFile.NAME, ModelFile), path / "model/weights.safetensors"
    space, arch = space_of(described, trusted), Arch(described.picks)
    arch.check(space.sizes, str(path / ModelFile.NAME))
    with torch.device("meta"):
        matching(space.network(arch, described.task), weights)
    net = space.network(arch, described.task)
    load_weights(net, weights)
    return net.eval()


def space_of(described: ModelFile, trusted: bool = False) -> Space:
    """The space that a fit's network is from."""
    if described.space is None:
        raise RunError(f"{ModelFile.NAME} must name the space of the network, but does not. Restore it.")
    made: Space = Plug.of(described.space, None, trusted).make(SPACES)
    return made
