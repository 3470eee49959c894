"""The cell space of DARTS and XNAS: a normal and a reduction cell of four nodes, fourteen edges, seven operations.

A node keeps two of its inputs. That rule is a choice of its own, which pair, on which the operations of the
node's edges depend, as a stage's blocks depend on its depth in the mobile space: so every architecture of the
space is a valid cell, sampling is uniform over cells, and the exact frontier works node by node.
(7^2 * 3 * 7^2 * 6 * 7^2 * 10 * 7^2)^2 = 1.1e18 pairs of cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Gates, Part, Picks
from sartor.spaces.cells import ops
from sartor.spaces.cells.genotype import INPUTS, OPERATIONS, Cell, Genotype, read
from sartor.spaces.cells.nets import CellNet, DartsSupernet, Frame, Slot
from sartor.spaces.drawing import Drawing
from sartor.spaces.supernet import SharedSpace

When = tuple[tuple[int, int], ...]
NODES = 4
KINDS = ("normal", "reduce")
# Image side from which a preset applies: (cells, channels, stem). 32 pixels get the paper's search network.
PRESETS = {64: (8, 16, "large"), 20: (8, 16, "small"), 1: (5, 8, "small")}


def _pairs(node: int) -> list[tuple[int, int]]:
    """The pairs of inputs that node `node` (2, 3, ...) can keep."""
    return list(combinations(range(node), 2))


@final
@dataclass(frozen=True)
class Darts(SharedSpace):
    """Cells of separable convolutions, poolings and identities, stacked (DARTS, XNAS)."""

    free: ClassVar[str] = "freecells"  # with the same options, but every operation is on or off by itself

    cells: int | None = None
    channels: int | None = None
    stem: Literal["auto", "small", "large"] = "auto"
    pool_norm: bool = True  # a batch-norm without parameters after poolings, as in the search network
    search_cells: int | None = None  # size of the search network, where it differs
    search_channels: int | None = None
    only: str = ""  # a published cell's name, or a genotype's file: the space is that network alone

    def __post_init__(self) -> None:
        for name in ("cells", "channels", "search_cells", "search_channels"):
            value = getattr(self, name)
            if value is not None and value < 2:
                raise BadInput(f"space.{name} must be at least 2, but got {value}.")

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Per cell and node: which two inputs (from the second node on), then the operation on every input."""
        made: list[Choice] = []
        for kind in KINDS:
            for node in range(INPUTS, INPUTS + NODES):
                name, hub, pairs = f"{kind}.node{node - INPUTS + 1}", len(made), _pairs(node)
                if len(pairs) > 1:
                    made.append(Choice(f"{name}.inputs", tuple(f"{a}+{b}" for a, b in pairs)))
                for source in range(node):
                    kept = tuple(i for i, pair in enumerate(pairs) if source in pair)
                    needs = ((hub, kept),) if len(pairs) > 1 else ()
                    made.append(Choice(f"{name}.from{source}", OPERATIONS, needs))
        return tuple(made)

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(node, source) of a cell's fourteen edges."""
        return tuple((node, source) for node in range(INPUTS, INPUTS + NODES) for source in range(node))

    @cached_property
    def _index(self) -> list[list[int]]:
        """The choice of every edge of a normal and of a reduction cell."""
        edges = [[i for i, c in enumerate(self.choices) if c.name.startswith(k) and ".from" in c.name] for k in KINDS]
        assert all(len(e) == len(self.edges) for e in edges)
        return edges

    def choice_of(self, kind: int, edge: int) -> int:
        """The choice that decides an edge's operation."""
        return self._index[kind][edge]

    def openness(self, kind: int, edge: int, weights: Sequence[Any]) -> Any:
        """The weight that its node's gate gives an edge: that of all pairs with it; None for the first node's."""
        needs = self.choices[self.choice_of(kind, edge)].needs
        return sum(weights[needs[0][0]][pair] for pair in needs[0][1]) if needs else None

    def edge_weights(self, kind: int, weights: Sequence[Any]) -> list[Any]:
        """The weight of every operation on every edge of a cell in a mixture."""
        found = []
        for edge in range(len(self.edges)):
            weight, share = weights[self.choice_of(kind, edge)], self.openness(kind, edge, weights)
            found.append(weight if share is None else weight * share)
        return found

    def reads(self, picks: Picks, kind: int) -> Picks:
        """The operation on every edge of every row's cell, (rows, 14); -1 where the node does not keep the edge."""
        columns = []
        for choice in self._index[kind]:
            column = picks[:, choice].copy()
            for hub, kept in self.choices[choice].needs:
                column[~np.isin(picks[:, hub], kept)] = -1
            columns.append(column)
        return np.stack(columns, axis=1)

    @cached_property
    def rules(self) -> tuple[Limit, ...]:  # type: ignore[override]
        """None, but where only one cell is wanted: transfer of a cell to other images is a search over it alone."""
        if not self.only:
            return ()
        arch = self.arch_of(read(self.only))
        made = []
        for i, (choice, pick) in enumerate(zip(self.choices, arch.picks, strict=True)):
            form = Quadratic(self.sizes, 0.0, {i: np.eye(len(choice.options))[pick]})
            made.append(Limit(f"{choice.name} of {self.only}", form, low=1.0))
        return tuple(made)

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
        reads = {0, 1}
        picks = []
        for choice in self.choices:
            source = choice.name.rpartition(".from")[2]
            picks.append(OPERATIONS.index(operation) if source.isdigit() and int(source) in reads else 0)
        return Arch(tuple(picks))

    def genotype(self, arch: Arch) -> Genotype:
        """The two cells, inputs in increasing order."""
        return Genotype(*(self._cell(arch, kind) for kind in range(len(KINDS))))

    def _cell(self, arch: Arch, kind: int) -> Cell:
        nodes: list[list[tuple[str, int]]] = [[] for _ in range(NODES)]
        for (node, source), option in zip(self.edges, self.reads(np.asarray(arch.picks)[None], kind)[0], strict=True):
            if option >= 0:
                nodes[node - INPUTS].append((OPERATIONS[option], source))
        return Cell(tuple(map(tuple, nodes)), tuple(range(INPUTS, INPUTS + NODES)))

    def arch_of(self, genotype: Genotype) -> Arch:
        """The architecture of a genotype with two different inputs a node and all four nodes concatenated."""
        picks = [0] * len(self.choices)
        for kind, cell in enumerate((genotype.normal, genotype.reduce)):
            whole = tuple(range(INPUTS, INPUTS + NODES))
            if len(cell.nodes) != NODES or tuple(sorted(cell.concat)) != whole:
                raise BadInput("cells of this space have four nodes, all of which are concatenated.")
            for node, reads in enumerate(cell.nodes, start=INPUTS):
                sources = tuple(sorted(source for _, source in reads))
                if sources not in _pairs(node) or not all(op in OPERATIONS for op, _ in reads):
                    raise BadInput(f"nodes of this space read two different sources, but node {node} reads {reads}.")
                for operation, source in reads:
                    choice = self.choice_of(kind, self.edges.index((node, source)))
                    picks[choice] = OPERATIONS.index(operation)
                    for hub, _ in self.choices[choice].needs:
                        picks[hub] = _pairs(node).index(sources)
        return Arch(tuple(picks))

    def describe(self, arch: Arch) -> str:
        """The customary ``Genotype(normal=[...], ...)``."""
        return self.genotype(arch).to_text()

    def draw(self, arch: Arch) -> Drawing:
        """The two cells."""
        return self.genotype(arch).draw()

    # networks ------------------------------------------------------------------------------------

    def fitted(self, task: Task) -> Darts:
        """Choose cells, channels and stem by the image's side unless they were given."""
        if task.image < 4:
            raise BadInput(f"images must have at least 4 pixels a side for the cell space, but have {task.image}.")
        cells, channels, stem = next(v for side, v in PRESETS.items() if task.image >= side)
        chosen: Any = stem if self.stem == "auto" else self.stem
        return replace(self, cells=self.cells or cells, channels=self.channels or channels, stem=chosen)

    def frame(self, task: Task, search: bool = False) -> Frame:
        """Sizes of the stand-alone network, or of the search network."""
        space = self.fitted(task)
        assert space.cells is not None and space.channels is not None
        channels = (self.search_channels if search else None) or space.channels
        cells = (self.search_cells if search else None) or space.cells
        return Frame(channels, cells, space.stem == "large", pool_norm=self.pool_norm)

    def supernet(self, task: Task) -> DartsSupernet:
        """The search network."""
        return DartsSupernet(self.fitted(task), self.frame(task, search=True), task)

    def network(self, arch: Arch, task: Task) -> CellNet:
        """A stand-alone network with fresh weights."""
        return CellNet(self.genotype(arch), self.frame(task), task)

    def forecasters(self, task: Task) -> dict[int, int]:
        """Every edge's operations compete, in all cells of its type at once; pairs of inputs are not mixed."""
        slots = self.frame(task, search=True).slots(task.image)
        counts = [sum(s.reduces == bool(kind) for s in slots) for kind in range(len(KINDS))]
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
            for edge, (_, source) in enumerate(self.edges):
                choice = self.choice_of(int(slot.reduces), edge)
                needs = self.choices[choice].needs
                for option, name in enumerate(OPERATIONS):
                    mine = (choice, option)
                    whens = [((hub, pair), mine) for hub, kept in needs for pair in kept] if needs else [(mine,)]
                    for when in whens:
                        yield from operation_part(slot, source, name, self.pool_norm, when)


def frame_parts(frame: Frame, task: Task) -> Iterator[Part]:
    """What every network of stacked cells has: stem, head and the layers that bring a cell's inputs to its width."""
    name, stem = ("large", ops.LargeStem) if frame.large else ("small", ops.SmallStem)
    key = f"stem_{name}_i{task.channels}_o{frame.stem_width()}_r{task.image}"
    yield Part(key, partial(stem, task.channels, frame.stem_width()), (task.channels, task.image, task.image))
    slots = frame.slots(task.image)
    for slot in slots:
        for number, (inputs, side) in enumerate(((slot.before, slot.side_before), (slot.last, slot.side))):
            kind = "reduce" if number == 0 and slot.shrinks else "input"
            kind = f"pooled_{kind}" if slot.reduces and slot.pooled else kind
            key = f"{kind}_i{inputs}_o{slot.width}_r{side}"
            yield Part(key, partial(slot.preprocess, number), (inputs, side, side))
    last, side = 4 * slots[-1].width, slots[-1].out_side
    key = f"head_i{last}_o{task.classes}_r{side}"
    yield Part(key, partial(ops.Classifier, last, task.classes), (last, side, side))


def operation_part(slot: Slot, source: int, name: str, pool_norm: bool, when: When) -> Iterator[Part]:
    """An operation on one of a cell's nodes; an identity of stride 1 computes nothing and is none."""
    stride, side, width = slot.stride(source), slot.side_of(source), slot.width
    if name == "skip_connect" and stride == 1:
        return
    kind = "reduce" if name == "skip_connect" else name
    key = f"{kind}_i{width}_o{width}_r{side}" + ("" if kind == "reduce" else f"_s{stride}")
    yield Part(key, partial(ops.operation, name, width, stride, pool_norm=pool_norm), (width, side, side), when)


PLUGIN = Darts
