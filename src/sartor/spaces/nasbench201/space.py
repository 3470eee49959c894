"""The space of NAS-Bench-201: one cell of six edges, five operations an edge, 15,625 networks.

A cell has four nodes; node j is the sum over all i < j of an operation on node i. Choices are the
edges in the order of the customary string ``|op~0|+|op~0|op~1|+|op~0|op~1|op~2|``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, final

from sartor.core.arch import Arch, Choice
from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.base import Part, Shape
from sartor.spaces.drawing import Drawing, Edge, Graph
from sartor.spaces.nasbench201.nets import EDGES, OPERATIONS, CellNet, CellSupernet, Head, Reduction, Stem, operation
from sartor.spaces.supernet import SharedSpace


@final
@dataclass(frozen=True)
class NasBench201(SharedSpace):
    """One cell of six edges and five operations, repeated in three stages (NAS-Bench-201)."""

    least_side: ClassVar[int] = 8  # for two reductions

    cells: int = 5  # of every stage
    channels: int = 16  # of the first stage; they double at every reduction
    sketch_cells: int = 1  # of every stage in the small network that training-free methods look at
    sketch_channels: int = 8

    def __post_init__(self) -> None:
        check(self, "space.", cells=">= 1", channels=">= 1", sketch_cells=">= 1", sketch_channels=">= 1")

    @classmethod
    def papers_search(cls, images: int) -> Mapping[str, Mapping[str, Any]]:
        """NASI (B.1): mu is 1 where networks are small; what else it had here is not said."""
        return {"nasi": {"mu": 1.0}}

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """The operation of every edge."""
        return tuple(Choice(f"{source}->{node}", OPERATIONS) for source, node in EDGES)

    @property
    def heaviest(self) -> Arch:
        """A 3x3 convolution on every edge."""
        return Arch((OPERATIONS.index("nor_conv_3x3"),) * len(EDGES))

    @property
    def smallest(self) -> Arch:
        """Nothing on any edge."""
        return Arch((OPERATIONS.index("none"),) * len(EDGES))

    def sketch(self) -> NasBench201:
        """The same cells in a network of fewer of them."""
        return replace(self, cells=self.sketch_cells, channels=self.sketch_channels)

    def supernet(self, task: Task) -> CellSupernet:
        """All cells in one set of weights: every operation on every edge of every cell."""
        return CellSupernet(self.cells, self.channels, task)

    def network(self, arch: Arch, task: Task) -> CellNet:
        """A stand-alone network with fresh weights."""
        return CellNet(tuple(OPERATIONS[p] for p in arch.picks), self.cells, self.channels, task)

    def parts(self, task: Task) -> Iterator[Part]:
        """Stem, reductions and head, always there; every operation that computes, once an edge of every cell."""
        c, side = self.channels, task.image
        image: Shape = (task.channels, side, side)
        yield Part(f"stem_i{task.channels}_o{c}_r{side}", partial(Stem, task.channels, c), image)
        for stage in range(3):
            if stage:
                odd = side % 2 == 1
                yield Part(f"reduction_i{c}_o{2 * c}_r{side}", partial(Reduction, c, 2 * c, odd), (c, side, side))
                c, side = 2 * c, -(-side // 2)
            for k, name in enumerate(OPERATIONS):
                if name in ("none", "skip_connect"):  # nothing is computed
                    continue
                part = partial(Part, f"{name}_c{c}_r{side}", partial(operation, name, c), (c, side, side))
                for edge in range(len(EDGES)):
                    for _ in range(self.cells):
                        yield part(((edge, k),))
        yield Part(f"head_i{c}_o{task.classes}_r{side}", partial(Head, c, task.classes), (c, side, side))

    def describe(self, arch: Arch) -> str:
        """The customary string, e.g. ``|nor_conv_3x3~0|+|skip_connect~0|none~1|+|...~0|...~1|...~2|``."""
        ops = iter(arch.picks)
        nodes = ("".join(f"|{OPERATIONS[next(ops)]}~{source}" for source in range(node)) for node in (1, 2, 3))
        return "+".join(f"{node}|" for node in nodes)

    def draw(self, arch: Arch) -> Drawing:
        """The cell; edges that carry nothing are left out."""
        kept = ((e, OPERATIONS[p]) for e, p in zip(EDGES, arch.picks, strict=True) if OPERATIONS[p] != "none")
        edges = tuple(Edge(source, node, name) for (source, node), name in kept)
        return Drawing(graphs=(Graph("cell", ("input", "node 1", "node 2", "output"), edges),))

    def read(self, text: str) -> Arch:
        """The architecture that the customary string describes."""
        found = re.findall(r"\|?([a-z0-9_]+)~(\d)", text)
        wrong = [op for op, _ in found if op not in OPERATIONS]
        if wrong or [int(source) for _, source in found] != [source for source, _ in EDGES]:
            raise BadInput(
                "a NAS-Bench-201 cell must be written |op~0|+|op~0|op~1|+|op~0|op~1|op~2| with op one of "
                f"{', '.join(OPERATIONS)}, but got {text!r}."
            )
        return Arch(tuple(OPERATIONS.index(op) for op, _ in found))
