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
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray

from sartor.core.arch import Arch, Choice
from sartor.core.quadratic import Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Gates, Part, Picks
from sartor.spaces.cells.base import CellSpace, When, frame_parts, operation_part
from sartor.spaces.cells.genotype import EDGES, INPUTS, KINDS, OPERATIONS, OWN
from sartor.spaces.cells.nets import Frame

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
class DartsReduced(CellSpace):
    """Cells whose nodes choose inputs and operations independently: what NASI searches (NASI, appendix B.2)."""

    single: bool = False  # one input and one operation a node: what is drawn during the search
    sketch_cells: int = 3  # of the small network that training-free methods look at
    sketch_channels: int = 8

    @cached_property
    def nodes(self) -> tuple[tuple[Node, ...], ...]:
        """Of a normal and of a reduction cell."""
        kinds, free = [], 0
        for _ in KINDS:
            made = []
            for number in OWN:
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

    def table(self, picks: Picks, kind: int) -> NDArray[np.bool_]:
        """(rows, 14, 7): which operation every row's cell has on every edge that its node reads."""
        found = np.zeros((len(picks), len(EDGES), len(OPERATIONS)), bool)
        for edge, (number, source) in enumerate(EDGES):
            node = self.nodes[kind][number - INPUTS]
            for kept, given in self._ways(node, source):
                here = np.ones(len(picks), bool) if node.inputs is None else np.isin(picks[:, node.inputs], kept)
                found[here, edge, given[picks[here, node.operations]]] = True
        return found

    def edge_weights(self, kind: int, weights: Sequence[Any]) -> list[Any]:
        """The weight of every operation on every edge of a cell in a mixture: of the input times of the operation."""
        found = []
        for number, source in EDGES:
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

    def frame(self, task: Task, search: bool = False) -> Frame:
        """Sizes of the network; the one that is drawn during the search has no strides but poolings."""
        return replace(super().frame(task), pooled=self.single)

    def forecasters(self, task: Task) -> dict[int, int]:
        """Every choice's options compete, in all cells of its type at once."""
        found = {}
        for nodes, replicas in zip(self.nodes, self.counts(task), strict=True):
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
            for number, source in EDGES:
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
