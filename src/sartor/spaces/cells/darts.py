"""The cell space of DARTS and XNAS: a normal and a reduction cell of four nodes, fourteen edges, seven operations.

A node keeps two of its inputs. That rule is a choice of its own, which pair, on which the operations of the
node's edges depend, as a stage's blocks depend on its depth in the mobile space: so every architecture of the
space is a valid cell, sampling is uniform over cells, and the exact frontier works node by node.
(7^2 * 3 * 7^2 * 6 * 7^2 * 10 * 7^2)^2 = 1.1e18 pairs of cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar, final

import numpy as np
import torch
from numpy.typing import NDArray

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit
from sartor.core.task import Task
from sartor.spaces.base import Gates, Part, Picks
from sartor.spaces.cells.base import SearchedCells, frame_parts, operation_part
from sartor.spaces.cells.genotype import EDGES, INPUTS, KINDS, OPERATIONS, OWN, Genotype
from sartor.spaces.cells.nets import Frame


def _pairs(node: int) -> list[tuple[int, int]]:
    """The pairs of inputs that node `node` (2, 3, ...) can keep."""
    return list(combinations(range(node), 2))


@final
@dataclass(frozen=True)
class Darts(SearchedCells):
    """Cells of separable convolutions, poolings and identities, stacked (DARTS, XNAS)."""

    free: ClassVar[str] = "freecells"  # with the same options, but every operation is on or off by itself

    stem_width: int | None = None  # of the stand-alone network's stem, where it differs from the cells'
    squeeze: bool = False  # squeeze-excitation on the first two thirds of its cells; XNAS's for ImageNet: with 56

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Per cell and node: which two inputs (from the second node on), then the operation on every input."""
        made: list[Choice] = []
        for kind in KINDS:
            for node in OWN:
                name, hub, pairs = f"{kind}.node{node - INPUTS + 1}", len(made), _pairs(node)
                if len(pairs) > 1:
                    made.append(Choice(f"{name}.inputs", tuple(f"{a}+{b}" for a, b in pairs)))
                for source in range(node):
                    kept = tuple(i for i, pair in enumerate(pairs) if source in pair)
                    needs = ((hub, kept),) if len(pairs) > 1 else ()
                    made.append(Choice(f"{name}.from{source}", OPERATIONS, needs))
        return tuple(made)

    def frame(self, task: Task, search: bool = False) -> Frame:
        """Sizes of the stand-alone network, or of the search network."""
        frame = super().frame(task, search)
        return frame if search else replace(frame, stem=self.stem_width, squeeze=self.squeeze)

    @cached_property
    def _index(self) -> list[list[int]]:
        """The choice of every edge's operation in a normal and in a reduction cell."""
        return [[i for i, c in enumerate(self.choices) if c.name.startswith(k) and ".from" in c.name] for k in KINDS]

    def openness(self, kind: int, edge: int, weights: Sequence[Any]) -> Any:
        """The weight that its node's gate gives an edge: that of all pairs with it; None for the first node's."""
        needs = self.choices[self._index[kind][edge]].needs
        return sum(weights[needs[0][0]][pair] for pair in needs[0][1]) if needs else None

    def edge_weights(self, kind: int, weights: Sequence[Any]) -> list[Any]:
        """The weight of every operation on every edge of a cell in a mixture."""
        found = []
        for edge, choice in enumerate(self._index[kind]):
            share = self.openness(kind, edge, weights)
            found.append(weights[choice] if share is None else weights[choice] * share)
        return found

    def table(self, picks: Picks, kind: int) -> NDArray[np.bool_]:
        """(rows, 14, 7): which operation every row's cell has on every edge that its node keeps."""
        found = np.zeros((len(picks), len(EDGES), len(OPERATIONS)), bool)
        for edge, choice in enumerate(self._index[kind]):
            kept = np.ones(len(picks), bool)
            for hub, pairs in self.choices[choice].needs:
                kept = np.isin(picks[:, hub], pairs)
            found[kept, edge, picks[kept, choice]] = True
        return found

    @cached_property
    def rules(self) -> tuple[Limit, ...]:  # type: ignore[override]
        """None, but where only one cell is wanted."""
        return tuple(self.alone())

    # architectures -------------------------------------------------------------------------------

    @property
    def heaviest(self) -> Arch:
        """Separable 5x5 convolutions everywhere."""
        return self._uniform("sep_conv_5x5")

    @property
    def smallest(self) -> Arch:
        """Max-poolings everywhere: the operation without parameters at any stride."""
        return self._uniform("max_pool_3x3")

    def _uniform(self, operation: str) -> Arch:
        # Only the first pair's edges are kept: the others are inactive, and at their first option.
        kept = {choice for row in self._index for (_, source), choice in zip(EDGES, row, strict=True) if source < 2}
        return Arch(tuple(OPERATIONS.index(operation) if i in kept else 0 for i in range(len(self.choices))))

    def arch_of(self, genotype: Genotype) -> Arch:
        """The architecture of a genotype with two different inputs a node and all four nodes concatenated."""
        picks = [0] * len(self.choices)
        for kind, cell in enumerate((genotype.normal, genotype.reduce)):
            if len(cell.nodes) != len(OWN) or tuple(sorted(cell.concat)) != OWN:
                raise BadInput("cells of this space have four nodes, all of which are concatenated.")
            for node, reads in enumerate(cell.nodes, start=INPUTS):
                sources = tuple(sorted(source for _, source in reads))
                if sources not in _pairs(node) or not all(op in OPERATIONS for op, _ in reads):
                    raise BadInput(f"nodes of this space read two different sources, but node {node} reads {reads}.")
                for operation, source in reads:
                    choice = self._index[kind][EDGES.index((node, source))]
                    picks[choice] = OPERATIONS.index(operation)
                    for hub, _ in self.choices[choice].needs:
                        picks[hub] = _pairs(node).index(sources)
        return Arch(tuple(picks))

    # networks ------------------------------------------------------------------------------------

    def forecasters(self, task: Task) -> dict[int, int]:
        """Every edge's operations compete, in all cells of its type at once; pairs of inputs are not mixed."""
        counts = self.counts(task)
        return {choice: counts[kind] for kind, row in enumerate(self._index) for choice in row if counts[kind]}

    def mixture(self, weights: Mapping[int, Any]) -> Gates:
        """Every edge is open: the pairs with a given input weigh 1 together."""
        like = next(iter(weights.values()))
        gates = []
        for i, choice in enumerate(self.choices):
            if i in weights:
                gates.append(weights[i])
            else:  # pairs of k inputs: each input is in k - 1 of them; operations that no cell uses weigh nothing
                inputs = max((int(o.split("+")[1]) + 1 for o in choice.options if "+" in o), default=0)
                weight = 1.0 / (inputs - 1) if inputs else 0.0
                gates.append(torch.full((len(choice.options),), weight, dtype=like.dtype, device=like.device))
        return Gates(tuple(gates))

    def parts(self, task: Task) -> Iterator[Part]:
        """Stem, head and the cells' input layers, always there; every operation where its edge is kept."""
        frame = self.frame(task)
        yield from frame_parts(frame, task)
        for slot in frame.slots(task.image):
            for (_, source), choice in zip(EDGES, self._index[int(slot.reduces)], strict=True):
                needs = self.choices[choice].needs
                for option, name in enumerate(OPERATIONS):
                    mine = (choice, option)
                    whens = [((hub, pair), mine) for hub, kept in needs for pair in kept] if needs else [(mine,)]
                    for when in whens:
                        yield from operation_part(slot, source, name, self.pool_norm, when)


PLUGIN = Darts
