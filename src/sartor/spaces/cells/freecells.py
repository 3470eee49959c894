"""Cells of any wiring: every operation on every edge is on or off, as in BayesNAS (arXiv:1905.04919).

The cells of DARTS without its rule of two inputs and one operation each. Which nodes of a cell live is a choice of its
own on which the operations depend, so that a node that goes takes with it what reads it, and the cell becomes narrower;
the space's rules say that a node that lives reads something: every network inside them is connected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any, Literal, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sartor.core.arch import Arch, Choice, canonical
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Part, Picks
from sartor.spaces.cells.base import SearchedCells, When, head_part, input_part, operation_part, stem_part
from sartor.spaces.cells.bayes_nets import BayesNet
from sartor.spaces.cells.free_nets import FreeSupernet
from sartor.spaces.cells.genotype import EDGES, INPUTS, KINDS, OPERATIONS, OWN, ZERO, Cell, Genotype
from sartor.spaces.cells.nets import CellNet, Frame, Slot, Stack
from sartor.spaces.switches import Circuit, Switch

ON = 0  # the first option, so that the first option of every choice is the whole cell
SPAN = 1 + len(EDGES) * len(OPERATIONS)  # choices of one kind of cell
SUBSETS = tuple(nodes for count in range(len(OWN), 0, -1) for nodes in combinations(OWN, count))  # the whole one first


def _holding(*nodes: int) -> tuple[int, ...]:
    """The subsets in which all of a cell's own `nodes` live."""
    return tuple(i for i, alive in enumerate(SUBSETS) if all(n < INPUTS or n in alive for n in nodes))


@final
@dataclass(frozen=True)
class FreeCells(SearchedCells):
    """Cells with any operations on any edges, stacked (BayesNAS)."""

    order: Literal["relu_conv_bn", "bn_relu_conv"] = "relu_conv_bn"  # DARTS's, or BayesNAS's (D.1)

    @classmethod
    def papers_size(cls, task: Task) -> dict[str, Any]:
        """And with batch-norm and ReLU before every convolution."""
        return {**super().papers_size(task), "order": "bn_relu_conv"}

    def frame(self, task: Task, search: bool = False) -> Frame:
        """Sizes and order of the stand-alone network, or of the search network."""
        return replace(super().frame(task, search), preactivated=self.order == "bn_relu_conv")

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Per cell: which nodes live, then every operation of every edge."""
        made: list[Choice] = []
        for kind in KINDS:
            hub = len(made)
            made.append(Choice(f"{kind}.nodes", tuple("+".join(str(n - INPUTS + 1) for n in s) for s in SUBSETS)))
            for node, source in EDGES:
                needs = ((hub, _holding(node, source)),)
                name = f"{kind}.node{node - INPUTS + 1}.from{source}"
                made += [Choice(f"{name}.{operation}", ("on", "off"), needs) for operation in OPERATIONS]
        return tuple(made)

    def hub(self, kind: int) -> int:
        """The choice of the nodes that live."""
        return kind * SPAN

    def choice_of(self, kind: int, edge: int, operation: int) -> int:
        """The choice of one operation."""
        return self.hub(kind) + 1 + edge * len(OPERATIONS) + operation

    def table(self, picks: Picks, kind: int) -> NDArray[np.bool_]:
        """(rows, 14, 7): which operations every row's cell has."""
        start = self.hub(kind) + 1
        on = (picks[:, start : start + SPAN - 1] == ON).reshape(len(picks), len(EDGES), len(OPERATIONS))
        active = np.array([[s in _holding(*edge) for edge in EDGES] for s in range(len(SUBSETS))])
        return np.asarray(on & active[picks[:, self.hub(kind)]][:, :, None])

    def edge_weights(self, kind: int, weights: Sequence[Any]) -> list[Any]:
        """The weight of "on" times that of the subsets of nodes in which the operation has an effect."""
        found = []
        for edge, ends in enumerate(EDGES):
            first = self.choice_of(kind, edge, 0)
            share = weights[self.hub(kind)][list(_holding(*ends))].sum()
            found.append(share * torch.stack([weights[first + o][ON] for o in range(len(OPERATIONS))]))
        return found

    def alive(self, arch: Arch, kind: int) -> tuple[int, ...]:
        """Nodes that live are concatenated."""
        return SUBSETS[arch.picks[self.hub(kind)]]

    @cached_property
    def rules(self) -> tuple[Limit, ...]:  # type: ignore[override]
        """A node that lives reads something; and where only one network is wanted, that it is that one."""
        made = []
        for kind, name in enumerate(KINDS):
            hub = self.hub(kind)
            for node in OWN:
                pairs: dict[tuple[int, int], Any] = {}
                for edge, ends in enumerate(EDGES):
                    for operation in range(len(OPERATIONS) if ends[0] == node else 0):
                        table = np.zeros((len(SUBSETS), 2))
                        table[list(_holding(*ends)), ON] = 1.0
                        pairs[hub, self.choice_of(kind, edge, operation)] = table
                lives = -np.isin(np.arange(len(SUBSETS)), _holding(node)).astype(float)
                form = Quadratic(self.sizes, 0.0, {hub: lives}, pairs)
                made.append(Limit(f"{name}.node{node - INPUTS + 1} reads something", form, low=0.0))
        return (*made, *self.alone())

    # architectures -------------------------------------------------------------------------------

    @property
    def heaviest(self) -> Arch:
        """Everything on."""
        return Arch((ON,) * len(self.choices))

    @property
    def smallest(self) -> Arch:
        """One node that reads one max-pooling."""
        pool = ((("max_pool_3x3", 0),), (), (), ())
        return self.arch_of(Genotype(Cell(pool, (INPUTS,)), Cell(pool, (INPUTS,))))

    def arch_of(self, genotype: Genotype) -> Arch:
        """The architecture of a genotype with four nodes; those that are not concatenated must not be read either."""
        picks = [1 - ON] * len(self.choices)
        for kind, cell in enumerate((genotype.normal, genotype.reduce)):
            alive = tuple(sorted(cell.concat))
            if len(cell.nodes) != len(OWN) or alive not in SUBSETS:
                raise BadInput("cells of this space have four nodes; those that live are concatenated.")
            picks[self.hub(kind)] = SUBSETS.index(alive)
            for node, reads in enumerate(cell.nodes, start=INPUTS):
                if len(set(reads)) != len(reads) or (reads and node not in alive):
                    raise BadInput(f"a node of this space reads an operation once, and is concatenated: {reads}.")
                for operation, source in reads:
                    if operation != ZERO:
                        edge = EDGES.index((node, source))
                        picks[self.choice_of(kind, edge, OPERATIONS.index(operation))] = ON
        return canonical(self.choices, Arch(tuple(picks)))

    def sample(self, rng: np.random.Generator) -> Arch:
        """Nodes and operations at random; a node that lives and would read nothing reads one input."""
        return canonical(self.choices, Arch(tuple(self.sample_picks(rng, 1)[0].tolist())))

    def sample_picks(self, rng: np.random.Generator, count: int) -> Picks:
        """As every space, and mended where a living node would read nothing."""
        picks = super().sample_picks(rng, count)
        for kind in range(len(KINDS)):
            table = self.table(picks, kind)
            for node in OWN:
                here = [e for e, (n, _) in enumerate(EDGES) if n == node]
                lives = np.isin(picks[:, self.hub(kind)], _holding(node))
                for row in np.flatnonzero(lives & ~table[:, here].any((1, 2))):
                    edge, operation = here[int(rng.integers(INPUTS))], int(rng.integers(len(OPERATIONS)))
                    picks[row, self.choice_of(kind, edge, operation)] = ON
        return picks

    # networks ------------------------------------------------------------------------------------

    def network(self, arch: Arch, task: Task) -> Stack:
        """A stand-alone network with fresh weights."""
        frame, genotype = self.frame(task), self.genotype(arch)
        return BayesNet(genotype, frame, task) if frame.preactivated else CellNet(genotype, frame, task)

    def supernet(self, task: Task) -> FreeSupernet:
        """The search network."""
        return FreeSupernet(self.fitted(task), self.frame(task, search=True), task)

    def circuit(self, task: Task) -> Circuit:
        """A zero switch an edge and a switch an operation, one place a cell of its kind (appendix A.3).

        In the flat vector: per kind, per edge, zero switch and operations; `FreeSupernet.switched` relies on that.
        """
        made: list[Switch] = []
        scales: list[int] = []
        required = []
        for kind, places in enumerate(self.counts(task)):
            if not places:
                continue
            name, ahead = KINDS[kind], sum(self.counts(task)[:kind])
            for edge, (node, source) in enumerate(EDGES):
                reads, feeds = (f"{name}.{n}" for n in (source, node))
                label, zero = f"{name}.node{node - INPUTS + 1}.from{source}", len(made)
                made.append(Switch(f"{label}.zero", reads, None, None, places))
                for operation, op in enumerate(OPERATIONS):
                    pick = (self.choice_of(kind, edge, operation), ON)
                    made.append(Switch(f"{label}.{op}", reads, feeds, pick, places, zero))
            # Edges compete with edges and operations with operations: only their product counts, and on one sphere the
            # operations, which are more, would grow while every edge shrank.
            for _ in EDGES:
                scales += [2 * (ahead + p) + (n > 0) for n in range(1 + len(OPERATIONS)) for p in range(places)]
            required.append(frozenset(f"{name}.{n}" for n in OWN))
        inputs = frozenset(f"{name}.{n}" for name in KINDS for n in range(INPUTS))
        return Circuit(tuple(made), inputs, frozenset().union(*required), tuple(required), tuple(scales))

    def switched(self, net: Any, x: Tensor, w: Tensor) -> Tensor:
        """Every cell with weights of its own for every operation and every edge."""
        logits: Tensor = net.switched(x, w)
        return logits

    def parts(self, task: Task) -> Iterator[Part]:
        """Stem and head, the cells' input layers at every width that they can meet, every operation where it is on."""
        frame = self.frame(task)
        yield stem_part(frame, task)
        slots = frame.slots(task.image)
        for k, slot in enumerate(slots):
            yield from self._input_parts(slots, k, frame.preactivated)
            yield from self._operation_parts(slot, frame.preactivated)
        last = slots[-1]
        for s, alive in enumerate(SUBSETS):
            when = ((self.hub(int(last.reduces)), s),)
            yield head_part(len(alive) * last.width, last.out_side, task, when, frame.preactivated)

    def _input_parts(self, slots: list[Slot], k: int, preactivated: bool) -> Iterator[Part]:
        """What brings the outputs of the two cells before to this one's width: those may have one to four nodes."""
        slot = slots[k]
        for number, given in enumerate((slot.before, slot.last)):
            source = k - INPUTS + number
            widths: list[tuple[int, When]] = [(given, ())]
            if source >= 0:
                hub, width = self.hub(int(slots[source].reduces)), slots[source].width
                widths = [(width * len(alive), ((hub, s),)) for s, alive in enumerate(SUBSETS)]
            for inputs, when in widths:
                met = replace(slot, last=inputs) if number else replace(slot, before=inputs)
                yield input_part(met, number, when, preactivated)

    def _operation_parts(self, slot: Slot, preactivated: bool) -> Iterator[Part]:
        kind = int(slot.reduces)
        for edge, ends in enumerate(EDGES):
            for option, name in enumerate(OPERATIONS):
                mine = (self.choice_of(kind, edge, option), ON)
                for alive in _holding(*ends):
                    when = ((self.hub(kind), alive), mine)
                    yield from operation_part(slot, ends[1], name, self.pool_norm, when, preactivated)


PLUGIN = FreeCells
