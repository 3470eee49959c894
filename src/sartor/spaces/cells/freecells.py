"""Cells of any wiring: every operation on every edge is on or off, as in BayesNAS (arXiv:1905.04919).

The cells of DARTS without its rule of two inputs and one operation each. Which nodes of a cell live is a choice of its
own on which the operations depend, so that a node that goes takes with it what reads it, and the cell becomes narrower;
the space's rules say that a node that lives reads something: every network inside them is connected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Any, Literal, final

import numpy as np
from torch import Tensor

from sartor.core.arch import Arch, Choice, canonical
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Part, Picks
from sartor.spaces.cells import ops
from sartor.spaces.cells.darts import KINDS, NODES, Darts, operation_part
from sartor.spaces.cells.free_nets import FreeSupernet
from sartor.spaces.cells.genotype import INPUTS, OPERATIONS, ZERO, Cell, Genotype, read
from sartor.spaces.cells.nets import CellNet, Frame, Slot
from sartor.spaces.drawing import Drawing
from sartor.spaces.supernet import SharedSpace
from sartor.spaces.switches import Circuit, Switch

ON = 0  # the first option, so that the first option of every choice is the whole cell
OWN = tuple(range(INPUTS, INPUTS + NODES))
SUBSETS = tuple(nodes for count in range(NODES, 0, -1) for nodes in combinations(OWN, count))  # the whole one first


def _holding(*nodes: int) -> tuple[int, ...]:
    """The subsets in which all of a cell's own `nodes` live."""
    return tuple(i for i, alive in enumerate(SUBSETS) if all(n < INPUTS or n in alive for n in nodes))


@final
@dataclass(frozen=True)
class FreeCells(SharedSpace):
    """Cells with any operations on any edges, stacked (BayesNAS)."""

    cells: int | None = None
    channels: int | None = None
    stem: Literal["auto", "small", "large"] = "auto"
    pool_norm: bool = True
    search_cells: int | None = None
    search_channels: int | None = None
    only: str = ""  # a published cell's name, or a genotype's file: the space is that network alone

    def __post_init__(self) -> None:
        assert self._frame is not None  # refuses what cannot be built

    @cached_property
    def _frame(self) -> Darts:
        """What both spaces share: everything but the choices."""
        return Darts(
            self.cells, self.channels, self.stem, self.pool_norm, self.search_cells, self.search_channels
        )  # fmt: skip

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """(node, source) of a cell's fourteen edges."""
        return self._frame.edges

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Per cell: which nodes live, then every operation of every edge."""
        made: list[Choice] = []
        for kind in KINDS:
            hub = len(made)
            made.append(Choice(f"{kind}.nodes", tuple("+".join(str(n - INPUTS + 1) for n in s) for s in SUBSETS)))
            for node, source in self.edges:
                needs = ((hub, _holding(node, source)),)
                name = f"{kind}.node{node - INPUTS + 1}.from{source}"
                made += [Choice(f"{name}.{operation}", ("on", "off"), needs) for operation in OPERATIONS]
        return tuple(made)

    @cached_property
    def _span(self) -> int:
        """Choices of one kind of cell."""
        return 1 + len(self.edges) * len(OPERATIONS)

    def hub(self, kind: int) -> int:
        """The choice of the nodes that live."""
        return kind * self._span

    def choice_of(self, kind: int, edge: int, operation: int) -> int:
        """The choice of one operation."""
        return self.hub(kind) + 1 + edge * len(OPERATIONS) + operation

    def place_of(self, choice: int) -> tuple[int, int, int]:
        """The inverse of `choice_of`: (kind, edge, operation)."""
        kind, rest = divmod(choice, self._span)
        return kind, *divmod(rest - 1, len(OPERATIONS))

    def table(self, picks: Picks, kind: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(rows, 14, 7): which operations every row's cell has."""
        start = self.hub(kind) + 1
        on = (picks[:, start : start + self._span - 1] == ON).reshape(len(picks), len(self.edges), len(OPERATIONS))
        active = np.array([[s in _holding(*edge) for edge in self.edges] for s in range(len(SUBSETS))])
        return np.asarray(on & active[picks[:, self.hub(kind)]][:, :, None])

    @cached_property
    def rules(self) -> tuple[Limit, ...]:  # type: ignore[override]
        """A node that lives reads something; and where only one network is wanted, that it is that one."""
        made = []
        for kind, name in enumerate(KINDS):
            hub = self.hub(kind)
            for node in OWN:
                pairs: dict[tuple[int, int], Any] = {}
                for edge, ends in enumerate(self.edges):
                    for operation in range(len(OPERATIONS) if ends[0] == node else 0):
                        table = np.zeros((len(SUBSETS), 2))
                        table[list(_holding(*ends)), ON] = 1.0
                        pairs[hub, self.choice_of(kind, edge, operation)] = table
                lives = -np.isin(np.arange(len(SUBSETS)), _holding(node)).astype(float)
                form = Quadratic(self.sizes, 0.0, {hub: lives}, pairs)
                made.append(Limit(f"{name}.node{node - INPUTS + 1} reads something", form, low=0.0))
        return (*made, *self._alone())

    def _alone(self) -> Iterator[Limit]:
        if self.only:
            for i, (choice, pick) in enumerate(zip(self.choices, self.arch_of(read(self.only)).picks, strict=True)):
                form = Quadratic(self.sizes, 0.0, {i: np.eye(len(choice.options))[pick]})
                yield Limit(f"{choice.name} of {self.only}", form, low=1.0)

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

    def genotype(self, arch: Arch) -> Genotype:
        """The two cells; only nodes that live are concatenated."""
        cells = []
        for kind in range(len(KINDS)):
            table = self.table(np.asarray(arch.picks)[None], kind)[0]
            nodes: list[list[tuple[str, int]]] = [[] for _ in OWN]
            for edge, operation in np.argwhere(table).tolist():
                node, source = self.edges[edge]
                nodes[node - INPUTS].append((OPERATIONS[operation], source))
            cells.append(Cell(tuple(map(tuple, nodes)), SUBSETS[arch.picks[self.hub(kind)]]))
        return Genotype(*cells)

    def arch_of(self, genotype: Genotype) -> Arch:
        """The architecture of a genotype with four nodes; those that are not concatenated must not be read either."""
        picks = [1 - ON] * len(self.choices)
        for kind, cell in enumerate((genotype.normal, genotype.reduce)):
            alive = tuple(sorted(cell.concat))
            if len(cell.nodes) != NODES or alive not in SUBSETS:
                raise BadInput("cells of this space have four nodes; those that live are concatenated.")
            picks[self.hub(kind)] = SUBSETS.index(alive)
            for node, reads in enumerate(cell.nodes, start=INPUTS):
                if len(set(reads)) != len(reads) or (reads and node not in alive):
                    raise BadInput(f"a node of this space reads an operation once, and is concatenated: {reads}.")
                for operation, source in reads:
                    if operation != ZERO:
                        edge = self.edges.index((node, source))
                        picks[self.choice_of(kind, edge, OPERATIONS.index(operation))] = ON
        return canonical(self.choices, Arch(tuple(picks)))

    def describe(self, arch: Arch) -> str:
        """The customary ``Genotype(normal=[[...], ...], ...)``, one list a node."""
        return self.genotype(arch).to_text()

    def draw(self, arch: Arch) -> Drawing:
        """The two cells."""
        return self.genotype(arch).draw()

    def sample(self, rng: np.random.Generator) -> Arch:
        """Nodes and operations at random; a node that lives and would read nothing reads one input."""
        return canonical(self.choices, Arch(tuple(self.sample_picks(rng, 1)[0].tolist())))

    def sample_picks(self, rng: np.random.Generator, count: int) -> Picks:
        """As every space, and mended where a living node would read nothing."""
        picks = super().sample_picks(rng, count)
        for kind in range(len(KINDS)):
            table = self.table(picks, kind)
            for node in OWN:
                here = [e for e, (n, _) in enumerate(self.edges) if n == node]
                lives = np.isin(picks[:, self.hub(kind)], _holding(node))
                for row in np.flatnonzero(lives & ~table[:, here].any((1, 2))):
                    edge, operation = here[int(rng.integers(INPUTS))], int(rng.integers(len(OPERATIONS)))
                    picks[row, self.choice_of(kind, edge, operation)] = ON
        return picks

    # networks ------------------------------------------------------------------------------------

    def fitted(self, task: Task) -> FreeCells:
        """Choose cells, channels and stem by the image's side unless they were given."""
        frame = self._frame.fitted(task)
        return replace(self, cells=frame.cells, channels=frame.channels, stem=frame.stem)

    def frame(self, task: Task, search: bool = False) -> Frame:
        """Sizes of the stand-alone network, or of the search network."""
        return self._frame.frame(task, search)

    def supernet(self, task: Task) -> FreeSupernet:
        """The search network."""
        return FreeSupernet(self.fitted(task), self.frame(task, search=True), task)

    def network(self, arch: Arch, task: Task) -> CellNet:
        """A stand-alone network with fresh weights."""
        return CellNet(self.genotype(arch), self.frame(task), task)

    def counts(self, task: Task) -> tuple[int, int]:
        """Normal and reduction cells of the search network."""
        slots = self.frame(task, search=True).slots(task.image)
        return sum(not s.reduces for s in slots), sum(s.reduces for s in slots)

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
            for edge, (node, source) in enumerate(self.edges):
                reads, feeds = (f"{name}.{n}" for n in (source, node))
                label, zero = f"{name}.node{node - INPUTS + 1}.from{source}", len(made)
                made.append(Switch(f"{label}.zero", reads, None, None, places))
                for operation, op in enumerate(OPERATIONS):
                    pick = (self.choice_of(kind, edge, operation), ON)
                    made.append(Switch(f"{label}.{op}", reads, feeds, pick, places, zero))
            # Edges compete with edges and operations with operations: only their product counts, and on one sphere the
            # operations, which are more, would grow while every edge shrank.
            for _ in self.edges:
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
        frame, image = self.frame(task), (task.channels, task.image, task.image)
        name, stem = ("large", ops.LargeStem) if frame.large else ("small", ops.SmallStem)
        key = f"stem_{name}_i{task.channels}_o{frame.stem_width()}_r{task.image}"
        yield Part(key, partial(stem, task.channels, frame.stem_width()), image)
        slots = frame.slots(task.image)
        for k, slot in enumerate(slots):
            yield from self._input_parts(slots, k)
            yield from self._operation_parts(slot)
        last, side = slots[-1], slots[-1].out_side
        for s, alive in enumerate(SUBSETS):
            inputs, when = len(alive) * last.width, ((self.hub(int(last.reduces)), s),)
            key = f"head_i{inputs}_o{task.classes}_r{side}"
            yield Part(key, partial(ops.Classifier, inputs, task.classes), (inputs, side, side), when)

    def _input_parts(self, slots: list[Slot], k: int) -> Iterator[Part]:
        """What brings the outputs of the two cells before to this one's width: those may have one to four nodes."""
        slot = slots[k]
        for number, (given, side) in enumerate(((slot.before, slot.side_before), (slot.last, slot.side))):
            kind, source = "reduce" if number == 0 and slot.shrinks else "input", k - INPUTS + number
            widths: list[tuple[int, tuple[tuple[int, int], ...]]] = [(given, ())]
            if source >= 0:
                hub, width = self.hub(int(slots[source].reduces)), slots[source].width
                widths = [(width * len(alive), ((hub, s),)) for s, alive in enumerate(SUBSETS)]
            for inputs, when in widths:
                there = replace(slot, last=inputs) if number else replace(slot, before=inputs)
                build = partial(there.preprocess, number)
                yield Part(f"{kind}_i{inputs}_o{slot.width}_r{side}", build, (inputs, side, side), when)

    def _operation_parts(self, slot: Slot) -> Iterator[Part]:
        kind = int(slot.reduces)
        for edge, ends in enumerate(self.edges):
            for option, name in enumerate(OPERATIONS):
                mine = (self.choice_of(kind, edge, option), ON)
                for alive in _holding(*ends):
                    yield from operation_part(slot, ends[1], name, self.pool_norm, ((self.hub(kind), alive), mine))


PLUGIN = FreeCells
