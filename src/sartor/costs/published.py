"""Published networks: HardCoRe-NAS (HC) and BINAS (BI) of the mobile space and its two extremes, and published cells.

A mobile network is five stages; a block is its kernel, its expansion and ``s`` for squeeze-excitation, so
``53s`` is a 5x5 depthwise convolution at expansion 3 with squeeze-excitation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.cells.genotype import PUBLISHED
from sartor.spaces.mobile.frame import CONFIGS, DEPTHS
from sartor.spaces.mobile.space import Mobile

IMAGENET = Task(1000, 224)


@dataclass(frozen=True, slots=True)
class Published:
    """Blocks, and what the authors report: ImageNet top-1 in percent, and milliseconds on their CPU."""

    blocks: str
    top1: float | None = None
    cpu_ms: float | None = None


_NETWORKS = {
    "HC-A": Published("53 53s|53 56s|56s 56s|56s 56s|56s 56s", 75.3, 38),
    "HC-B": Published("53 53s 33|53 53 53|53 53 33 33|53 33 33 33|56s 56s 33s", 75.8, 40),
    "HC-C": Published("53 53s|53 53 53 53|54 56s 33 33|56s 33 33 33|56s 56s 33s", 76.4, 44),
    "HC-D": Published("53s 53s|53s 54s 33s|54s 33s 33s 33s|34s 54s 33s 53s|56s 56s 56s 36s", 77.1, 50),
    "HC-E": Published("53s 53s|56s 54s 54s 33s|54s 36s|56s 56s 56s 53s|56s 56s 56s 36s", 77.6, 55),
    "HC-F": Published("53s 53s|56s 56s|56s 56s 33s 33s|36s 56s 56s 33s|56s 56s 36s 36s", 78.0, 60),
    "BI-A": Published("53 33s|53s 54s|53 53s 54s|54s 54s|54s 54s 34s 53s", 75.9, 37),
    "BI-B": Published("53 53s|53s 54s|54s 54s 54s|34s 54s 54s|34s 54s 34s 54s", 76.5, 41),
    "BI-C": Published("53 53s|53s 54s|54s 54s 54s|34s 56s 54s|36s 56s 36s 54s", 77.0, 45),
    "BI-D": Published("53 53s|53s 54s|53 56s 34s 53s|36s 56s 54s 34s|36s 54s 56s 54s", 77.6, 50),
    "BI-E": Published("53 33 33s|53 34s 34s 56s|53 53s 34s 56s|34s 56s 36s 54s|36s 34s 56s 56s", 77.8, 56),
    "BI-F": Published("53 33 33s|53 54 34s 56s|53 36s 56s 56s|56s 56s 36s 36s|36s 34s 56s 56s", 78.0, 59),
    "smallest": Published("33 33|33 33|33 33|33 33|33 33"),
    "heaviest": Published("|".join(["56s 56s 56s 56s"] * 5)),
}


def names() -> tuple[str, ...]:
    """Every mobile network of the zoo."""
    return tuple(_NETWORKS)


def cells() -> tuple[str, ...]:
    """Every pair of cells of the zoo: networks of any width."""
    return tuple(PUBLISHED)


def space() -> Mobile:
    """The space that the zoo's networks belong to, with the paper's widths and strides."""
    return Mobile(preset="paper")


def arch(name: str) -> Arch:
    """The architecture of a published network; capital letters do not matter."""
    return _read(_published(name)[1].blocks)


def entry(name: str, task: Task = IMAGENET) -> dict[str, Any]:
    """What is known of a network, its parameters and multiply-accumulates counted for `task`.

    Published accuracy and time are the authors' own, on ImageNet and on their machine.
    """
    import torch

    from sartor.costs.macs import Macs
    from sartor.costs.params import Params

    if task.classes < 1 or task.channels < 1 or task.image < 4:
        raise BadInput(f"classes and channels must be at least 1 and the image's side at least 4, but got {task}.")
    name, published = _published(name)
    found, home = _read(published.blocks), space()
    shape = (task.channels, task.image, task.image)
    with torch.device("meta"):
        net = home.network(found, task)
    return {
        "name": name,
        "classes": task.classes,
        "image": task.image,
        "channels": task.channels,
        "params": int(Params().of(net, shape)),
        "macs": int(Macs().of(net, shape)),
        "architecture": home.describe(found),
        "choices": found.named(home.choices),
        "published_top1": published.top1,
        "published_cpu_ms": published.cpu_ms,
    }


def cell_entry(name: str, width: int | None = None, classes: int | None = None, image: int = 32) -> dict[str, Any]:
    """The network that stacks published cells, as its authors evaluate them, at any width.

    Below 64 pixels that is CIFAR's: 20 cells. From there on ImageNet's: 14 cells behind a strided stem, with XNAS's
    squeeze-excitation, which its paper does not mention and its parameters show. The auxiliary head is left out.
    BayesNAS has a network of its own (`sartor.spaces.cells.bayes_nets`).
    """
    import torch

    from sartor.costs.macs import Macs
    from sartor.costs.params import Params
    from sartor.spaces.cells.bayes_nets import BayesNet
    from sartor.spaces.cells.nets import CellNet, Frame

    name = next((known for known in PUBLISHED if known.lower() == name.lower()), name)
    if name not in PUBLISHED:
        raise BadInput(f"there are no published cells named {name!r}; available: {', '.join(PUBLISHED)}.")
    large = image >= 64
    task = Task(classes or (1000 if large else 10), image)
    own = large and name == "XNAS"
    frame = Frame(
        width or (46 if own else 48 if large else 36), 14 if large else 20, large, 56 if own else None, squeeze=own
    )
    if task.classes < 1 or task.image < 4 or frame.channels < 2:
        raise BadInput(f"classes >= 1, image >= 4 and channels >= 2 must hold, but got {task} and {frame.channels}.")
    shape, genotype = (task.channels, image, image), PUBLISHED[name]
    with torch.device("meta"):
        net = (BayesNet if name.startswith("BayesNAS") else CellNet)(genotype, frame, task)
    return {
        "name": name, "classes": task.classes, "image": image, "channels": frame.channels, "cells": frame.cells,
        "params": int(Params().of(net, shape)), "macs": int(Macs().of(net, shape)),
        "depth": genotype.normal.depth, "architecture": genotype.to_text(), "genotype": genotype.to_json(),
    }  # fmt: skip


def _published(name: str) -> tuple[str, Published]:
    """The table's own spelling of the name, and its row."""
    for known, row in _NETWORKS.items():
        if known.lower() == name.lower():
            return known, row
    raise BadInput(f"there is no published network named {name!r}; available: {', '.join((*names(), *cells()))}.")


def _read(blocks: str) -> Arch:
    """Tokens to picks; blocks that do not run are at their first option, so equal networks compare equal."""
    picks: list[int] = []
    for stage in blocks.split("|"):
        tokens = stage.split()
        configs = [CONFIGS.index((int(t[1]), int(t[0]), t.endswith("s"))) for t in tokens]
        picks += [DEPTHS.index(len(tokens)), *configs, *[0] * (max(DEPTHS) - len(tokens))]
    return Arch(tuple(picks))
