"""Compression of a given network to a budget: BayesNAS's structural compression (arXiv:1905.04919, Algorithm 3)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


def rebuild(path: str | Path, module: nn.Module | None = None) -> nn.Module:
    """The compressed network of a finished run: the given one made anew, cut by the plan, with the trained weights.

    `module` is the given network, where it was a module rather than a factory or a run directory.
    """
    from sartor.compression.given import open_network
    from sartor.compression.surgery import Plan, apply
    from sartor.export import load_weights
    from sartor.run import read_json
    from sartor.task import Task

    folder = Path(path) / "model"
    described = read_json(folder / "arch.json")
    net = module if module is not None else open_network(described["given"], Task(**described["task"]))
    net = apply(net, Plan.from_json(read_json(folder / "plan.json")))
    load_weights(net, folder / "weights.safetensors")
    return net.eval()
