"""PyramidNets whose 3x3 convolutions are tree cells, each free to differ: BayesNAS's proxyless space (section 6.2).

A cell keeps any of its nine paths, or none: then its block is the shortcut alone. Which of the tree's two branches live
is a choice, on which the choices of the paths in each depend; so every architecture is a valid network, the exact
frontier works block by block, and there are 512 cells. The paper's network has 54 of them: 2e146 networks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, final

from torch import Tensor

from sartor.core.arch import Arch, Choice, canonical
from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.base import Part
from sartor.spaces.drawing import Drawing, Grid
from sartor.spaces.supernet import SharedSpace, Supernet
from sartor.spaces.switches import Circuit, Switch
from sartor.spaces.treecell import nets
from sartor.spaces.treecell.tree import (
    BRANCHES,
    EDGES,
    HALVES,
    LIVE,
    PATHS,
    ROOTS,
    SUBSETS,
    Frame,
    Slot,
    cells_of,
    through,
    way,
)

STAGES = 3
PAPER = 18  # blocks a stage
# Image side from which a preset applies: (blocks a stage, channels of the stem, alpha). The paper's blocks are 18.
PRESETS = {20: (6, 16, 84), 1: (2, 16, 24)}
_LARGE = 64  # from this side on the stem is strided
_LEAST_SIDE = 4  # a map smaller than this is not reduced any more
_SKETCH = 8  # channels of every block in the network that training-free methods look at


@final
@dataclass(frozen=True)
class TreeCells(SharedSpace):
    """Bottlenecks with any of the nine paths of a tree cell, each block free to differ (BayesNAS, proxyless)."""

    blocks: int | None = None  # of each of the three stages; the paper's are 18
    channels: int | None = None  # of the stem
    alpha: int | None = None  # by how many channels the bottlenecks widen from the first to the last
    groups: int = 2  # of the 3x3 convolutions
    ratio: int = 4  # a block's output is this many times as wide as its bottleneck
    stem: Literal["auto", "small", "large"] = "auto"

    def __post_init__(self) -> None:
        check(self, "space.", blocks=">= 1", channels=">= 1", groups=">= 1", ratio=">= 1", alpha=">= 0")

    @classmethod
    def papers_size(cls, task: Task) -> dict[str, Any]:
        """Eighteen blocks a stage."""
        return {"blocks": PAPER}

    @classmethod
    def papers_search(cls, images: int) -> Mapping[str, Mapping[str, Any]]:
        """BayesNAS (6.2): batches of 32."""
        return {"bayesnas": {"batch": 32}}

    @property
    def count(self) -> int:
        """The number of blocks."""
        return STAGES * (self.blocks or PAPER)

    @property
    def ends(self) -> tuple[int, ...]:
        """The last block of every stage."""
        return tuple((self.count // STAGES) * (stage + 1) - 1 for stage in range(STAGES))

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Per block: which branches live, then the paths of each branch."""
        made: list[Choice] = []
        for number in range(self.count):
            name, hub = f"block{number + 1}", len(made)
            made.append(Choice(f"{name}.branches", BRANCHES))
            for branch, live, subsets in zip(("first", "second"), LIVE, SUBSETS, strict=True):
                made.append(Choice(f"{name}.{branch}", tuple(map("+".join, subsets)), ((hub, live),)))
        return tuple(made)

    # architectures -------------------------------------------------------------------------------

    @property
    def heaviest(self) -> Arch:
        """All paths everywhere."""
        return Arch((0,) * len(self.choices))

    @property
    def smallest(self) -> Arch:
        """Shortcuts alone."""
        return canonical(self.choices, Arch((BRANCHES.index("none"), 0, 0) * self.count))

    def arch_of(self, cells: Sequence[Collection[str]]) -> Arch:
        """The architecture with the given paths in every block."""
        if len(cells) != self.count or not all(set(paths) <= set(PATHS) for paths in cells):
            raise BadInput(
                f"a network of this space has {self.count} blocks, each with some of {', '.join(PATHS)}, but got "
                f"{' '.join('+'.join(paths) or '-' for paths in cells)!r}."
            )
        picks: list[int] = []
        for paths in cells:
            kept = [tuple(p for p in through(root) if p in paths) for root in ROOTS]
            live = tuple(bool(k) for k in kept)
            picks.append(((True, True), (True, False), (False, True), (False, False)).index(live))
            picks += [subsets.index(k) if k else 0 for subsets, k in zip(SUBSETS, kept, strict=True)]
        return Arch(tuple(picks))

    def describe(self, arch: Arch) -> str:
        """Blocks from the first to the last, the paths of each joined by ``+``; ``-`` is a shortcut alone."""
        return " ".join("+".join(paths) or "-" for paths in cells_of(arch))

    def draw(self, arch: Arch) -> Drawing:
        """Which of the nine paths every block keeps."""
        cells = cells_of(arch)
        rows = tuple(" → ".join(EDGES[e] for e in way(path)) for path in PATHS)
        filled = tuple((r, c) for r, path in enumerate(PATHS) for c, kept in enumerate(cells) if path in kept)
        columns = tuple(f"block {n + 1}" for n in range(len(cells)))
        return Drawing(grids=(Grid("paths of every block", rows, columns, filled),))

    def read(self, text: str) -> Arch:
        """The architecture that `describe` wrote."""
        return self.arch_of([() if word == "-" else word.split("+") for word in text.split()])

    # networks ------------------------------------------------------------------------------------

    def fitted(self, task: Task) -> TreeCells:
        """Choose depth, widths and stem by the image's side unless they were given."""
        if task.image < _LEAST_SIDE:
            raise BadInput(f"images must have at least {_LEAST_SIDE} pixels a side here, but have {task.image}.")
        blocks, channels, alpha = next(v for side, v in PRESETS.items() if task.image >= side)
        stem: Any = ("large" if task.image >= _LARGE else "small") if self.stem == "auto" else self.stem
        return replace(
            self,
            blocks=self.blocks or blocks,
            channels=self.channels or channels,
            stem=stem,
            alpha=alpha if self.alpha is None else self.alpha,
        )

    def sketch(self) -> TreeCells:
        """The same choices in narrow blocks of equal width."""
        return replace(self, channels=_SKETCH, alpha=0, ratio=1)

    def frame(self, task: Task) -> Frame:
        """Every block's place: PyramidNet's widths grow evenly, here in steps that the groups divide."""
        space = self.fitted(task)
        assert space.blocks is not None and space.channels is not None and space.alpha is not None
        step, side, made = math.lcm(2, self.groups), task.image, []
        side = -(-side // 4) if space.stem == "large" else side
        inputs = space.channels
        for number in range(space.count):
            width = step * max(1, round((space.channels + space.alpha * (number + 1) / space.count) / step))
            first = number > 0 and number % space.blocks == 0
            outputs = max(inputs, self.ratio * width)
            slot = Slot(inputs, width, outputs, 2 if first and side >= _LEAST_SIDE else 1, side)
            made.append(slot)
            inputs, side = outputs, slot.out_side
        return Frame(tuple(made), space.stem == "large", self.groups, space.ends)

    def supernet(self, task: Task) -> nets.TreeSupernet:
        """Every block with all of its paths."""
        return nets.TreeSupernet(self.frame(task), task)

    def network(self, arch: Arch, task: Task) -> nets.TreeNet:
        """A stand-alone network with fresh weights."""
        return nets.TreeNet(self.frame(task), cells_of(arch), task)

    def circuit(self, task: Task) -> Circuit:
        """A switch an edge, each block's its own (Algorithm 1); an edge depends on the one that it follows (6).

        No block is required, since its shortcut connects what stands around it.
        """
        made: list[Switch] = []
        for number in range(self.count):
            name = f"block{number + 1}"
            for e in EDGES:
                reads = f"{name}.{e[:-1] or 'in'}"
                feeds = f"{name}.out" if e in PATHS else f"{name}.{e}"
                pick, *also = self._options(number, e)
                made.append(Switch(f"{name}.{e}.{EDGES[e]}", reads, feeds, pick, also=tuple(also)))
        nodes = [f"block{number + 1}" for number in range(self.count)]
        scales = tuple(number for number in range(self.count) for _ in EDGES)
        inputs, outputs = (frozenset(f"{n}.{end}" for n in nodes) for end in ("in", "out"))
        return Circuit(tuple(made), inputs, outputs, (), scales)

    def _options(self, number: int, name: str) -> tuple[tuple[int, int], ...]:
        """The options that have an edge."""
        branch = ROOTS.index(name[0])
        if name in ROOTS:
            return tuple((3 * number, option) for option in LIVE[branch])
        return tuple(
            (3 * number + 1 + branch, option)
            for option, kept in enumerate(SUBSETS[branch])
            if set(kept) & set(through(name))
        )

    def switched(self, net: Supernet, x: Tensor, w: Tensor) -> Tensor:
        """Every edge of every block with a weight of its own."""
        assert isinstance(net, nets.TreeSupernet)
        return net.switched(x, w)

    def parts(self, task: Task) -> Iterator[Part]:
        """Stem, head and shortcuts always; a bottleneck where a branch lives; every edge where a path needs it."""
        frame = self.frame(task)
        slots, large = frame.slots, frame.large
        key = f"stem_i{task.channels}_o{slots[0].inputs}_r{task.image}" + ("_large" if large else "")
        stem = partial(nets.Stem, task.channels, slots[0].inputs, large)
        yield Part(key, stem, (task.channels, task.image, task.image))
        for number, slot in enumerate(slots):
            yield from self._block_parts(number, slot)
        last, side = slots[-1].outputs, slots[-1].out_side
        key = f"head_i{last}_o{task.classes}_r{side}"
        yield Part(key, partial(nets.Head, last, task.classes), (last, side, side))

    def _block_parts(self, number: int, slot: Slot) -> Iterator[Part]:
        hub = 3 * number
        outside = f"i{slot.inputs}_o{slot.outputs}_r{slot.side}_s{slot.stride}"
        inside, after = f"i{slot.inputs}_o{slot.width}_r{slot.side}", f"i{slot.width}_o{slot.outputs}_r{slot.out_side}"
        before, within = (slot.inputs, slot.side, slot.side), (slot.width, slot.out_side, slot.out_side)
        yield Part(f"shortcut_{outside}", partial(nets.Shortcut, slot.inputs, slot.outputs, slot.stride), before)
        for option in range(len(BRANCHES) - 1):
            yield Part(f"enter_{inside}", partial(nets.Enter, slot.inputs, slot.width), before, ((hub, option),))
            yield Part(f"leave_{after}", partial(nets.Leave, slot.width, slot.outputs), within, ((hub, option),))
        for e, op in EDGES.items():
            stride, side = (slot.stride, slot.side) if e in ROOTS else (1, slot.out_side)
            which = f"half{int(HALVES[e])}_{op}" if e in HALVES else op
            key = f"{which}_i{slot.width}_r{side}_s{stride}" + (f"_g{self.groups}" if op == "conv3" else "")
            part = partial(Part, key, partial(nets.edge, e, slot.width, stride, self.groups), (slot.width, side, side))
            for choice, option in self._options(number, e):
                for live in [()] if e in ROOTS else [((hub, live),) for live in LIVE[ROOTS.index(e[0])]]:
                    yield part((*live, (choice, option)))
