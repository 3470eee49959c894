"""The network of a finished fit, made anew from its files."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from sartor.core.arch import Arch
from sartor.core.registry import SPACES
from sartor.core.task import Task
from sartor.deploy.export import load_weights
from sartor.pipeline.options import Plug
from sartor.runs.codec import decode
from sartor.runs.directory import read_json


def rebuild(path: Path, trusted: bool = False) -> nn.Module:
    """The trained PyTorch network that `path`'s model folder describes, in evaluation mode.

    A space from outside Sartor is code that the files name: it is imported only where they are `trusted`.
    """
    described = read_json(path / "model/arch.json")
    space = Plug.of(described["space"], None, trusted).make(SPACES)
    net: nn.Module = space.network(Arch(tuple(described["picks"])), decode(Task, described["task"], "arch.json: "))
    load_weights(net, path / "model/weights.safetensors")
    return net.eval()
