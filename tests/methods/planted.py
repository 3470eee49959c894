"""A space whose data come from one of its own networks: fixed operations between four nodes, of which few are used.

Every operation is a fixed random rotation followed by tanh; only the switches' weights and the classifier are learnt.
So the labels can be explained by the planted operations and by no others.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from sartor.core.arch import Arch, Choice
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.data.open import open_data
from sartor.data.split import split
from sartor.engine.device import Engine
from sartor.engine.feed import Feed
from sartor.methods.base import Job
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.spaces.supernet import SharedSpace
from sartor.spaces.switches import Circuit, Switch

SIDE, CLASSES, OPERATIONS = 8, 4, 3
WIDTH = 9  # the pixels that are looked at
EDGES = (("in", "b"), ("in", "a"), ("b", "a"), ("in", "c"), ("a", "c"), ("b", "c"))  # b is the node 2 of figure 1


def names():
    return [f"{source}-{node}.{o}" for source, node in EDGES for o in range(OPERATIONS)]


class Net(nn.Module):
    """All operations on all edges; the class is read off node c."""

    def __init__(self, task, zeros, norms=False):
        super().__init__()
        self.task, self.zeros = task, zeros
        self.norms = nn.ModuleDict({n: nn.BatchNorm1d(WIDTH, affine=False) for n in "abc"}) if norms else None
        generator = torch.Generator().manual_seed(11)
        rotations = torch.randn(len(EDGES), OPERATIONS, WIDTH, WIDTH, generator=generator)
        self.register_buffer("rotations", torch.linalg.qr(rotations)[0] * 1.5)
        self.head = nn.Linear(WIDTH, CLASSES)

    def switched(self, x, w):
        rows = w.view(len(EDGES), -1)
        if self.zeros:
            rows = rows[:, :1] * rows[:, 1:]
        nodes = {"in": x.flatten(1)[:, :WIDTH]}
        for e, (source, node) in enumerate(EDGES):
            given = torch.tanh(self._normed(nodes, source) @ self.rotations[e])  # (operations, B, width)
            nodes[node] = nodes.get(node, 0) + (rows[e][:, None, None] * given).sum(0)
        return self.head(self._normed(nodes, "c"))

    def _normed(self, nodes, name):
        """What reads a node: with norms, at a scale that no weight decides."""
        return nodes[name] if self.norms is None or name == "in" else self.norms[name](nodes[name])

    def wipe(self, gone):
        pass


@dataclass(frozen=True)
class Planted(SharedSpace):
    """On or off for every operation."""

    zeros: bool = False  # with a zero switch an edge
    required: bool = True
    norms: bool = False  # nodes are batch-normed

    @property
    def choices(self):
        return tuple(Choice(name, ("on", "off")) for name in names())

    @property
    def heaviest(self):
        return Arch((0,) * len(self.choices))

    def fitted(self, task):
        return self

    def supernet(self, task):
        return Net(task, self.zeros, self.norms)

    def network(self, arch, task):
        raise NotImplementedError

    def parts(self, task):
        return iter(())

    def describe(self, arch):
        return " ".join(c.name for c, p in zip(self.choices, arch.picks, strict=True) if p == 0)

    def circuit(self, task):
        made = []
        for e, (source, node) in enumerate(EDGES):
            zero = len(made) if self.zeros else None
            if self.zeros:
                made.append(Switch(f"{source}-{node}.zero", source, None, None))
            for o in range(OPERATIONS):
                made.append(Switch(f"{source}-{node}.{o}", source, node, (e * OPERATIONS + o, 0), 1, zero))
        required = (frozenset({"c"}),) if self.required else ()
        return Circuit(tuple(made), frozenset({"in"}), frozenset({"c"}), required, (0,) * len(made))

    def switched(self, net, x, w):
        return net.switched(x, w)


def teacher(planted, norms=False):
    torch.manual_seed(5)
    net = Net(Task(CLASSES, SIDE, 1), zeros=False, norms=norms)
    net.head.weight.data.normal_(generator=torch.Generator().manual_seed(3))
    net.head.bias.data.zero_()
    w = torch.tensor([float(name in planted) for name in names()])
    return net, w


def job(folder: Path, planted, space=Planted(), count=3000, seed=0) -> Job:  # noqa: B008
    """Random pixels, and the classes that the planted network gives them."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (count, SIDE, SIDE)).astype(np.uint8)
    x = torch.from_numpy((pixels - pixels.mean()) / pixels.std()).float()
    net, w = teacher(planted, space.norms)
    with torch.no_grad():
        y = net.switched(x, w).argmax(1).numpy()
    images, seeds, engine = open_data((pixels, y)), Seeds(seed), Engine()
    splits = replace(split(images, seeds.rng("split")))
    feed = Feed(images, (float(pixels.mean()),), (float(pixels.std()),), seeds, engine)
    return Job(space, images.task, feed, splits, seeds, Run(folder, Reporter(silent=True)))
