"""NASI's reduced form of the cell space: a node's inputs and its operations are chosen independently (appendix B.2).

While it searches, a node is one operation on one input, each drawn from a categorical distribution of its own
(`single`), and reduction cells max-pool their inputs. The network that is selected has, at every node, the two best
inputs and the two best operations. Which operation reads which input the paper does not say: here the better one reads
the better one. (42 * 42 * 3 * 42 * 6 * 42 * 10)^2 = 3.1e17 pairs of cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations, permutations
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Gates, Part, Picks
from sartor.spaces.cells.darts import KINDS, NODES, Darts, When, frame_parts, operation_part
from sartor.spaces.cells.genotype import INPUTS, OPERATIONS, Cell, Genotype
from sartor.spaces.cells.nets import CellNet, DartsSupernet, Frame
from sartor.spaces.drawing import Drawing
from sartor.spaces.supernet import SharedSpace

# The operations on a node's lower and on its higher input: the two best are never the same.
BOTH = tuple(permutations(range(len(OPERATIONS)), 2))


@dataclass(frozen=True, slots=True)
class Node:
    """Where a node's decisions stand among the choices; without `inputs` there is only one pair to read."""

    number: int
    inputs: int | None
    operations: int

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of inputs that it can keep."""
        return list(combinations(range(self.number), 2))


@final
@dataclass(frozen=True)
class DartsReduced(SharedSpace):
    """Cells whose nodes choose inputs and operations independently: what NASI searches (NASI, appendix B.2)."""

    cells: int | None = None
    channels: int | None = None
    stem: Literal["auto", "small", "large"] = "auto"
    pool_norm: bool = True  # a batch-norm without parameters after poolings, as in the search network
    single: bool = False  # one input and one operation a node: what is drawn during the search
    sketch_cells: int = 3  # of the small network that training-free methods look at
    sketch_channels: int = 8

    def __post_init__(self) -> None:
        for name in ("cells", "channels", "sketch_cells", "sketch_channels"):
            value = getattr(self, name)
            if value is not None and value < 2:
                raise BadInput(f"space.{name} must be at least 2, but got {value}.")

    @cached_property
    def nodes(self) -> tuple[tuple[Node, ...], ...]:
        """Of a normal and of a reduction cell."""
        kinds, free = [], 0
        for _ in KINDS:
            made = []
            for number in range(INPUTS, INPUTS + NODES):
                chosen = self.single or number > INPUTS  # the first node has one pair of inputs only
                made.append(Node(number, free if chosen else None, free + chosen))
                free += 1 + chosen
            kinds.append(tuple(made))
        return tuple(kinds)

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Per cell and node: its inputs, then its operations; none depends on another."""
        made = []
        for kind, nodes in zip(KINDS, self.nodes, strict=True):
            for node in nodes:
                name = f"{kind}.node{node.number - INPUTS + 1}"
                if self.single:
                    made.append(Choice(f"{name}.input", tuple(map(str, range(node.number)))))
                    made.append(Choice(f"{name}.operation", OPERATIONS))
                    continue
                if node.inputs is not None:
                    made.append(Choice(f"{name}.inputs", tuple(f"{a}+{b}" for a, b in node.pairs)))
                both = tuple(f"{OPERATIONS[a]}+{OPERATIONS[b]}" for a, b in BOTH)
                made.append(Choice(f"{name}.operations", both))
        return tuple(made)

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(node, source) of a cell's fourteen edges."""
        return Darts().edges

    def _ways(self, node: Node, source: int) -> list[tuple[list[int], NDArray[np.int64]]]:
        """How a node can read a source: options of its inputs, and the operation that each of its options then gives.

        One way if a node has one input; else two, for the source can be the lower or the higher of the pair.
        """
        if self.single:
            return [([source], np.arange(len(OPERATIONS)))]
        return [
            (kept, np.array([both[place] for both in BOTH]))
            for place in (0, 1)
            if (kept := [k for k, pair in enumerate(node.pairs) if pair[place] == source])
        ]

    def reads(self, picks: Picks, kind: int) -> Picks:
        """The operation on every edge of every row's cell, (rows, 14); -1 where the node does not read the source."""
        found = np.full((len(picks), len(self.edges)), -1, np.int64)
        for edge, (number, source) in enumerate(self.edges):
            node = self.nodes[kind][number - INPUTS]
            for kept, given in self._ways(node, source):
                here = np.ones(len(picks), bool) if node.inputs is None else np.isin(picks[:, node.inputs], kept)
                found[here, edge] = given[picks[here, node.operations]]
        return found

    def edge_weights(self, kind: int, weights: Sequence[Any]) -> list[Any]:
        """The weight of every operation on every edge of a cell in a mixture: of the input times of the operation."""
        found = []
        for number, source in self.edges:
            node = self.nodes[kind][number - INPUTS]
            mine, total = weights[node.operations], 0.0
            for kept, given in self._ways(node, source):
                index = _on(tuple(given.tolist()), mine.device)
                weight = mine.new_zeros(len(OPERATIONS)).index_add(0, index, mine)
                share = 1.0 if node.inputs is None else sum(weights[node.inputs][k] for k in kept)
                total = total + share * weight
            found.append(total)
        return found

    # architectures -------------------------------------------------------------------------------

    @property
    def heaviest(self) -> Arch:
        """Separable convolutions everywhere, of 5x5 and of 3x3 where a node has two."""
        return self._uniform("sep_conv_5x5", "sep_conv_3x3")

    @property
    def smallest(self) -> Arch:
        """Poolings everywhere: the operations without parameters at any stride."""
        return self._uniform("max_pool_3x3", "avg_pool_3x3")

    def _uniform(self, first: str, second: str) -> Arch:
        picks = [0] * len(self.choices)
        both = OPERATIONS.index(first), OPERATIONS.index(second)
        for node in (node for nodes in self.nodes for node in nodes):
            picks[node.operations] = both[0] if self.single else BOTH.index(both)
        return Arch(tuple(picks))

    def genotype(self, arch: Arch) -> Genotype:
        """The two cells, inputs in increasing order."""
        cells = []
        for kind in range(len(KINDS)):
            nodes: list[list[tuple[str, int]]] = [[] for _ in range(NODES)]
            for (number, source), option in zip(
                self.edges, self.reads(np.asarray(arch.picks)[None], kind)[0], strict=True
            ):
                if option >= 0:
                    nodes[number - INPUTS].append((OPERATIONS[option], source))
            cells.append(Cell(tuple(map(tuple, nodes)), tuple(range(INPUTS, INPUTS + NODES))))
        return Genotype(*cells)

    def describe(self, arch: Arch) -> str:
        """The customary ``Genotype(normal=[...], ...)``."""
        return self.genotype(arch).to_text()

    def draw(self, arch: Arch) -> Drawing:
        """The two cells."""
        return self.genotype(arch).draw()

    # what NASI searches --------------------------------------------------------------------------

    def relaxed(self) -> DartsReduced:
        """One input and one operation a node."""
        return replace(self, single=True)

    def lift(self, score: Quadratic) -> Quadratic:
        """The two best inputs and the two best operations of every node; the better operation on the better input.

        The last is worth less than half of the least difference among a node's scores, so it never overrules the rest.
        """
        if self.single:
            return score
        linear: dict[int, Any] = {}
        pairs: dict[tuple[int, int], Any] = {}
        drawn = replace(self, single=True).nodes
        for node, one in zip((n for k in self.nodes for n in k), (n for k in drawn for n in k), strict=True):
            assert one.inputs is not None
            x, o = (np.asarray(score.linear[c], dtype=float) for c in (one.inputs, one.operations))
            gaps = np.concatenate([np.diff(np.sort(x)), np.diff(np.sort(o))])
            bonus = 0.5 * float(gaps[gaps > 0].min(initial=np.inf)) if (gaps > 0).any() else 0.0
            first, second = np.array(BOTH).T
            lower, higher = np.array(node.pairs).T
            matched = (x[lower] > x[higher])[:, None] == (o[first] > o[second])[None]
            linear[node.operations] = o[first] + o[second]
            if node.inputs is None:
                linear[node.operations] = linear[node.operations] + bonus * matched[0]
            else:
                linear[node.inputs] = x[lower] + x[higher]
                pairs[node.inputs, node.operations] = bonus * matched
        return Quadratic(self.sizes, score.constant, linear, pairs)

    def sketch(self) -> DartsReduced:
        """The same choices in a network of few narrow cells."""
        return replace(self, cells=self.sketch_cells, channels=self.sketch_channels)

    # networks ------------------------------------------------------------------------------------

    def fitted(self, task: Task) -> DartsReduced:
        """Choose cells, channels and stem by the image's side unless they were given, as the `darts` space does."""
        like = Darts(self.cells, self.channels, self.stem).fitted(task)
        return replace(self, cells=like.cells, channels=like.channels, stem=like.stem)

    def frame(self, task: Task) -> Frame:
        """Sizes of the network; the one that is drawn during the search has no strides but poolings."""
        space = self.fitted(task)
        assert space.cells is not None and space.channels is not None
        large = space.stem == "large"
        return Frame(space.channels, space.cells, large, pool_norm=self.pool_norm, pooled=self.single)

    def supernet(self, task: Task) -> DartsSupernet:
        """The search network: every operation on every edge."""
        return DartsSupernet(self.fitted(task), self.frame(task), task)

    def network(self, arch: Arch, task: Task) -> CellNet:
        """A stand-alone network with fresh weights."""
        return CellNet(self.genotype(arch), self.frame(task), task)

    def forecasters(self, task: Task) -> dict[int, int]:
        """Every choice's options compete, in all cells of its type at once."""
        slots = self.frame(task).slots(task.image)
        found = {}
        for kind, nodes in enumerate(self.nodes):
            replicas = sum(s.reduces == bool(kind) for s in slots)
            for choice in (c for node in nodes for c in (node.inputs, node.operations)):
                if choice is not None and replicas:
                    found[choice] = replicas
        return found

    def mixture(self, weights: Any) -> Gates:
        """The given weights; cells that the network does not have weigh nothing."""
        like = next(iter(weights.values()))
        none = {i: torch.zeros(n, dtype=like.dtype, device=like.device) for i, n in enumerate(self.sizes)}
        return Gates(tuple((none | dict(weights)).values()))

    def parts(self, task: Task) -> Iterator[Part]:
        """Stem, head and the cells' input layers, always there; every operation where its source is read."""
        frame = self.frame(task)
        yield from frame_parts(frame, task)
        for slot in frame.slots(task.image):
            for number, source in self.edges:
                node = self.nodes[int(slot.reduces)][number - INPUTS]
                for option, when in self._whens(node, source):
                    yield from operation_part(slot, source, OPERATIONS[option], self.pool_norm, when)

    def _whens(self, node: Node, source: int) -> Iterator[tuple[int, When]]:
        """The operation on an edge, and every pair of decisions that puts it there."""
        for kept, given in self._ways(node, source):
            for pick, operation in enumerate(given.tolist()):
                mine = (node.operations, pick)
                if node.inputs is None:
                    yield operation, (mine,)
                else:
                    yield from ((operation, ((node.inputs, pair), mine)) for pair in kept)


@cache
def _on(index: tuple[int, ...], device: Any) -> Any:
    """Kept on the device: a step that copies from the host cannot be recorded."""
    return torch.tensor(index, device=device)


PLUGIN = DartsReduced
