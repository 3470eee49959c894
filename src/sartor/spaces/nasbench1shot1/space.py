"""The three spaces of NAS-Bench-1Shot1: a cell whose nodes each choose an operation and a set of inputs.

Node j of a cell (node 0 is the cell's input) chooses one of three operations and, among the nodes before it, a fixed
number of inputs that are summed; the output chooses which nodes it keeps. Spaces S1, S2 and S3 differ by the numbers
of nodes and of inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from sartor.core.arch import Arch, Choice
from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Part, Shape
from sartor.spaces.drawing import Drawing, Edge, Graph
from sartor.spaces.nasbench1shot1.nets import (
    OPERATIONS,
    ConvBnRelu,
    Frame,
    Head,
    OneShotNet,
    OneShotSupernet,
    operation,
    pool,
)
from sartor.spaces.supernet import SharedSpace

INPUTS = {"S1": (1, 2, 2, 2, 2), "S2": (1, 1, 2, 2, 3), "S3": (1, 1, 1, 2, 2, 2)}  # of node 1, 2, ..., the output


def subsets(before: int, count: int) -> tuple[tuple[int, ...], ...]:
    """The ways to choose `count` of the nodes 0 to `before` - 1."""
    return tuple(combinations(range(before), count))


@final
@dataclass(frozen=True)
class NasBench1Shot1(SharedSpace):
    """Cells whose nodes choose an operation and their inputs (NAS-Bench-1Shot1, spaces S1, S2, S3)."""

    least_side: ClassVar[int] = 8  # for two reductions

    variant: Literal["S1", "S2", "S3"] = "S1"
    cells: int = 9  # in three equal stages
    channels: int = 16  # of a node in the first stage; they double at every max-pool
    sketch_cells: int = 3
    sketch_channels: int = 8
    unread: bool = False  # whether a cell may be chosen of which nodes compute for nobody: smaller than it looks

    def __post_init__(self) -> None:
        if self.variant not in INPUTS:
            raise BadInput(f"space.variant must be one of {', '.join(INPUTS)}, but got {self.variant!r}.")
        for name in ("cells", "sketch_cells"):
            if getattr(self, name) < 3 or getattr(self, name) % 3:
                raise BadInput(f"space.{name} must be a multiple of 3, but got {getattr(self, name)}.")
        check(self, "space.", channels=">= 1", sketch_channels=">= 1")

    @classmethod
    def papers_search(cls, images: int) -> Mapping[str, Mapping[str, Any]]:
        """NASI (5.1): one epoch, mu 1, an adaptive nu from 1000, ten times the fixed one of its large space."""
        return {"nasi": {"mu": 1.0, "nu": "adaptive", "nu_scale": 10.0, "steps": max(1, images // 64)}}

    @property
    def counts(self) -> tuple[int, ...]:
        """How many inputs every node has; the last entry is the output's."""
        return INPUTS[self.variant]

    @property
    def nodes(self) -> int:
        """Nodes with an operation."""
        return len(self.counts) - 1

    @cached_property
    def inputs(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The possible inputs of every node; the output chooses among all of them, the cell's input too."""
        return tuple(subsets(node, count) for node, count in enumerate(self.counts, start=1))

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Operations of the nodes, then inputs of the nodes and of the output."""
        ops = tuple(Choice(f"node{j}.op", OPERATIONS) for j in range(1, self.nodes + 1))
        names = (*(f"node{j}" for j in range(1, self.nodes + 1)), "output")
        sources = (tuple("+".join(map(str, s)) for s in options) for options in self.inputs)
        return (*ops, *(Choice(f"{n}.inputs", s) for n, s in zip(names, sources, strict=True)))

    @property
    def rules(self) -> tuple[Limit, ...]:  # type: ignore[override]
        """Somebody reads every node; what a score says of a node's operation is void where nobody does."""
        if self.unread:
            return ()
        readers = {
            node: {
                self.nodes + j: np.array([float(node in o) for o in self.inputs[j]])
                for j in range(node, self.nodes + 1)
            }
            for node in range(1, self.nodes + 1)
        }
        return tuple(Limit(f"node{n} is read", Quadratic(self.sizes, 0.0, r), low=1.0) for n, r in readers.items())

    @property
    def heaviest(self) -> Arch:
        """3x3 convolutions; every node reads the cell's input, which takes a projection."""
        return Arch((len(OPERATIONS) - 1,) * self.nodes + (0,) * (self.nodes + 1))

    @property
    def smallest(self) -> Arch:
        """Max-pooling, and nodes that read other nodes where they can."""
        return Arch((0,) * self.nodes + tuple(len(options) - 1 for options in self.inputs))

    def sketch(self) -> NasBench1Shot1:
        """The same cells in a network of fewer and narrower ones."""
        return replace(self, cells=self.sketch_cells, channels=self.sketch_channels)

    def supernet(self, task: Task) -> OneShotSupernet:
        """All cells in one set of weights."""
        return OneShotSupernet(self.frame(task), task)

    def network(self, arch: Arch, task: Task) -> OneShotNet:
        """A stand-alone network with fresh weights."""
        return OneShotNet(self.frame(task), arch, task)

    def frame(self, task: Task) -> Frame:
        """Who may read whom, and the sizes of every cell."""
        inputs, channels, side, cells = self.channels, self.channels, task.image, []
        for cell in range(self.cells):
            if cell and cell % (self.cells // 3) == 0:
                channels, side = 2 * channels, -(-side // 2)
            cells.append((inputs, channels, side))
            inputs = self.nodes * channels + channels
        return Frame(self.inputs, self.channels, tuple(cells))

    def parts(self, task: Task) -> Iterator[Part]:
        """Stem, pools and head; operations of nodes; projections of a cell's input, for whoever reads it."""
        image: Shape = (task.channels, task.image, task.image)
        stem = partial(ConvBnRelu, task.channels, self.channels, 3)
        yield Part(_key(3, task.channels, self.channels, task.image), stem, image)
        before = task.image
        for inputs, channels, side in self.frame(task).cells:
            if side != before:
                shape = (inputs, before, before)
                yield Part(f"pool_c{inputs}_r{before}", partial(pool, before % 2 == 1), shape)
                before = side
            project = partial(ConvBnRelu, inputs, channels, 1)
            for j, options in enumerate(self.inputs):
                for a, sources in enumerate(options):
                    if 0 in sources:
                        key = _key(1, inputs, channels, side)
                        yield Part(key, project, (inputs, side, side), ((self.nodes + j, a),))
            for j in range(self.nodes):
                yield from _operations(j, channels, side)
        width = self.nodes * channels + channels
        head = partial(Head, width, task.classes)
        yield Part(f"head_i{width}_o{task.classes}_r{side}", head, (width, side, side))

    @property
    def labels(self) -> tuple[int, ...]:
        """NAS-Bench-101's number of every operation."""
        theirs = ("conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3")
        return tuple(theirs.index(name) for name in OPERATIONS)

    def wiring(self, inputs: Sequence[int]) -> NDArray[np.int64]:
        """Adjacency of input, nodes and output, as NAS-Bench-101 has it, for picks of the inputs."""
        matrix = np.zeros((self.nodes + 2, self.nodes + 2), np.int64)
        for node, (options, p) in enumerate(zip(self.inputs, inputs, strict=True), start=1):
            matrix[list(options[p]), node] = 1
        return matrix

    def describe(self, arch: Arch) -> str:
        """Every node as ``operation(inputs)``, the output as ``output(inputs)``."""
        names = [OPERATIONS[p] for p in arch.picks[: self.nodes]] + ["output"]
        picked = (options[p] for options, p in zip(self.inputs, arch.picks[self.nodes :], strict=True))
        return " ".join(f"{n}({','.join(map(str, s))})" for n, s in zip(names, picked, strict=True))

    def draw(self, arch: Arch) -> Drawing:
        """The cell: a node is its operation on the sum of what it reads."""
        names = ("input", *(f"{OPERATIONS[p]} {j}" for j, p in enumerate(arch.picks[: self.nodes], start=1)), "output")
        sources, targets = np.nonzero(self.wiring(arch.picks[self.nodes :]))
        edges = tuple(Edge(s, t) for s, t in zip(sources.tolist(), targets.tolist(), strict=True))
        return Drawing(graphs=(Graph("cell", names, edges),))

    def read(self, text: str) -> Arch:
        """The architecture that `describe` wrote."""
        found = re.findall(r"(\S+)\(([\d,]+)\)", text)
        try:
            ops = tuple(OPERATIONS.index(name) for name, _ in found[:-1])
            sources = [tuple(int(i) for i in inputs.split(",")) for _, inputs in found]
            inputs = tuple(o.index(s) for o, s in zip(self.inputs, sources, strict=True))
        except (ValueError, IndexError) as error:
            raise BadInput(
                f"a cell of {self.variant} must be written as `describe` writes it, e.g. "
                f"{self.describe(self.heaviest)!r}, but got {text!r}."
            ) from error
        return Arch(ops + inputs)


def _key(kernel: int, inputs: int, outputs: int, side: int) -> str:
    """A convolution is the same part wherever it stands."""
    return f"conv{kernel}_i{inputs}_o{outputs}_r{side}"


def _operations(node: int, channels: int, side: int) -> Iterator[Part]:
    for k, name in enumerate(OPERATIONS):
        build, kernel = partial(operation, name, channels), 3 if "3x3" in name else 1
        key = f"{name}_c{channels}_r{side}" if name.startswith("maxpool") else _key(kernel, channels, channels, side)
        yield Part(key, build, (channels, side, side), ((node, k),))
