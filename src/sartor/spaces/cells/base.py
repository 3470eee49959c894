"""What all spaces of cells share: two kinds of cells of four nodes, sizes, networks; everything but the choices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from sartor.core.arch import Arch
from sartor.core.config import check
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Part, Picks
from sartor.spaces.cells import bayes_nets, ops
from sartor.spaces.cells.genotype import EDGES, INPUTS, KINDS, OPERATIONS, OWN, Cell, Genotype, read
from sartor.spaces.cells.nets import CellNet, CellSupernet, Frame, Slot, Stack
from sartor.spaces.drawing import Drawing
from sartor.spaces.supernet import SharedSpace

When = tuple[tuple[int, int], ...]
# Image side from which a preset applies: (cells, channels, stem). 32 pixels get the paper's search network.
PRESETS = {64: (8, 16, "large"), 20: (8, 16, "small"), 1: (5, 8, "small")}


@dataclass(frozen=True)
class CellSpace(SharedSpace):
    """Cells, stacked; `kind` is 0 for normal cells and 1 for reduction cells."""

    least_side: ClassVar[int] = 4

    cells: int | None = None
    channels: int | None = None
    stem: Literal["auto", "small", "large"] = "auto"
    pool_norm: bool = True  # a batch-norm without parameters after poolings, as in the search network

    def __post_init__(self) -> None:
        check(self, "space.", **{f.name: ">= 2" for f in fields(self) if f.name.endswith(("cells", "channels"))})

    @abstractmethod
    def table(self, picks: Picks, kind: int) -> NDArray[np.bool_]:
        """(rows, 14, 7): which operations every row's cell has on every edge."""

    @abstractmethod
    def edge_weights(self, kind: int, weights: Sequence[Any]) -> list[Any]:
        """The weight of every operation on every edge of a cell in a mixture."""

    def alive(self, arch: Arch, kind: int) -> tuple[int, ...]:
        """The nodes that a cell concatenates."""
        return OWN

    def genotype(self, arch: Arch) -> Genotype:
        """The two cells, inputs in increasing order."""
        cells = []
        for kind in range(len(KINDS)):
            nodes: list[list[tuple[str, int]]] = [[] for _ in OWN]
            for edge, operation in np.argwhere(self.table(np.asarray(arch.picks)[None], kind)[0]).tolist():
                node, source = EDGES[edge]
                nodes[node - INPUTS].append((OPERATIONS[operation], source))
            cells.append(Cell(tuple(map(tuple, nodes)), self.alive(arch, kind)))
        return Genotype(*cells)

    def describe(self, arch: Arch) -> str:
        """The customary ``Genotype(normal=[...], ...)``."""
        return self.genotype(arch).to_text()

    def draw(self, arch: Arch) -> Drawing:
        """The two cells."""
        return self.genotype(arch).draw()

    def fitted(self, task: Task) -> Self:
        """Choose cells, channels and stem by the image's side unless they were given."""
        super().fitted(task)
        cells, channels, stem = next(v for side, v in PRESETS.items() if task.image >= side)
        chosen: Any = stem if self.stem == "auto" else self.stem
        return replace(self, cells=self.cells or cells, channels=self.channels or channels, stem=chosen)

    @classmethod
    def papers_size(cls, task: Task) -> dict[str, Any]:
        """In which XNAS (4.2, 9.3), NASI (B.4) and BayesNAS (6.1) train the cells that they found."""
        return {"cells": 14, "channels": 46} if task.image >= max(PRESETS) else {"cells": 20, "channels": 36}

    def frame(self, task: Task, search: bool = False) -> Frame:
        """Sizes of the stand-alone network, or of the search network."""
        space = self.fitted(task)
        assert space.cells is not None and space.channels is not None
        return Frame(space.channels, space.cells, space.stem == "large", pool_norm=self.pool_norm)

    def counts(self, task: Task) -> tuple[int, int]:
        """Normal and reduction cells of the search network."""
        slots = self.frame(task, search=True).slots(task.image)
        return sum(not s.reduces for s in slots), sum(s.reduces for s in slots)

    def supernet(self, task: Task) -> CellSupernet:
        """The search network: every operation on every edge."""
        return CellSupernet(self.fitted(task), self.frame(task, search=True), task)

    def network(self, arch: Arch, task: Task) -> Stack:
        """A stand-alone network with fresh weights."""
        return CellNet(self.genotype(arch), self.frame(task), task)


@dataclass(frozen=True)
class SearchedCells(CellSpace):
    """Cells whose search network has sizes of its own, and that can be held to one given pair of cells."""

    search_cells: int | None = None  # size of the search network, where it differs
    search_channels: int | None = None
    only: str = ""  # a published cell's name, or a genotype's file: the space is that network alone

    @abstractmethod
    def arch_of(self, genotype: Genotype) -> Arch:
        """The architecture with these cells."""

    @classmethod
    def papers_size(cls, task: Task) -> dict[str, Any]:
        """Searched in 8 cells of 16 channels."""
        return {**super().papers_size(task), "search_cells": 8, "search_channels": 16}

    def frame(self, task: Task, search: bool = False) -> Frame:
        """Sizes of the stand-alone network, or of the search network."""
        frame = super().frame(task)
        if not search:
            return frame
        return replace(frame, channels=self.search_channels or frame.channels, cells=self.search_cells or frame.cells)

    def alone(self) -> Iterator[Limit]:
        """Where only one cell is wanted, that it is that one: a transfer to other images is a search over it alone."""
        if self.only:
            for i, (choice, pick) in enumerate(zip(self.choices, self.arch_of(read(self.only)).picks, strict=True)):
                form = Quadratic(self.sizes, 0.0, {i: np.eye(len(choice.options))[pick]})
                yield Limit(f"{choice.name} of {self.only}", form, low=1.0)


def stem_part(frame: Frame, task: Task) -> Part:
    """What every network of stacked cells begins with."""
    if frame.preactivated and not frame.large:
        key = f"stem_bare_i{task.channels}_o{frame.stem_width()}_r{task.image}"
        return Part(key, partial(bayes_nets.stem, frame, task.channels), (task.channels, task.image, task.image))
    name, stem = ("large", ops.LargeStem) if frame.large else ("small", ops.SmallStem)
    key = f"stem_{name}_i{task.channels}_o{frame.stem_width()}_r{task.image}"
    return Part(key, partial(stem, task.channels, frame.stem_width()), (task.channels, task.image, task.image))


def head_part(inputs: int, side: int, task: Task, when: When = (), preactivated: bool = False) -> Part:
    """What every network of stacked cells ends with."""
    name, head = ("normed_head", bayes_nets.NormedClassifier) if preactivated else ("head", ops.Classifier)
    key = f"{name}_i{inputs}_o{task.classes}_r{side}"
    return Part(key, partial(head, inputs, task.classes), (inputs, side, side), when)


def input_part(slot: Slot, number: int, when: When = (), preactivated: bool = False) -> Part:
    """The layer that brings one of a cell's two inputs to its width."""
    inputs, side = ((slot.before, slot.side_before), (slot.last, slot.side))[number]
    kind = "reduce" if number == 0 and slot.shrinks else "input"
    kind = f"pooled_{kind}" if slot.reduces and slot.pooled else kind
    key = f"{kind}_i{inputs}_o{slot.width}_r{side}"
    if preactivated:
        return Part(f"pre_{key}", partial(bayes_nets.preprocess, slot, number), (inputs, side, side), when)
    return Part(key, partial(slot.preprocess, number), (inputs, side, side), when)


def frame_parts(frame: Frame, task: Task) -> Iterator[Part]:
    """Stem, head and input layers where all four nodes of every cell are concatenated."""
    slots = frame.slots(task.image)
    yield stem_part(frame, task)
    yield from (input_part(slot, number) for slot in slots for number in range(INPUTS))
    for width, reduction, slot in frame.squeezed(slots, [len(OWN) * slot.width for slot in slots]):
        key, side = f"se_i{width}_d{reduction}_r{slot.out_side}", slot.out_side
        yield Part(key, partial(ops.SqueezeExcite, width, reduction), (width, side, side))
    yield head_part(len(OWN) * slots[-1].width, slots[-1].out_side, task)


def operation_part(
    slot: Slot, source: int, name: str, pool_norm: bool, when: When, preactivated: bool = False
) -> Iterator[Part]:
    """An operation on one of a cell's nodes; an identity of stride 1 computes nothing and is none."""
    stride, side, width = slot.stride(source), slot.side_of(source), slot.width
    if name == "skip_connect" and stride == 1:
        return
    size = f"i{width}_o{width}_r{side}"
    if preactivated:
        key, build = f"pre_{name}_{size}_s{stride}", partial(bayes_nets.operation, name, width, stride)
    else:
        key = f"reduce_{size}" if name == "skip_connect" else f"{name}_{size}_s{stride}"
        build = partial(ops.operation, name, width, stride, pool_norm=pool_norm)
    yield Part(key, build, (width, side, side), when)
