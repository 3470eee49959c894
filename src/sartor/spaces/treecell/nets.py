"""Tree cells in a PyramidNet: the stand-alone network and the one that is searched (BayesNAS, section 6.2).

The cell is TreeCell-A of the path-level transformations paper (arXiv:1806.02639), which has nine paths (`_tree`). What
they give is added up. Convolutions come after batch-norm and ReLU.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from sartor.core.arch import Arch
from sartor.core.task import Task
from sartor.spaces.base import Gates, Picks
from sartor.spaces.ops import free
from sartor.spaces.pooling import AvgPool2d
from sartor.spaces.supernet import Supernet
from sartor.spaces.treecell.tree import (
    BRANCHES,
    EDGES,
    HALVES,
    LIVE,
    PATHS,
    ROOTS,
    SUBSETS,
    TABLES,
    Frame,
    Slot,
    cells_of,
    children,
    paths_of,
    through,
    way,
)

# B images, N blocks, P paths, E edges
Mask = NDArray[np.bool_]
_TABLES = ("first_OP", "second_OP")  # which paths an option of a branch has


class Half(nn.Module):
    """An operation on one half of the channels; the other half of its output is zero.

    Two of them added up are the split and the concatenation of the original cell.
    """

    def __init__(self, op: nn.Module, width: int, second: bool) -> None:
        super().__init__()
        self.op, self.width, self.second = op, width, second

    def forward(self, x: Tensor) -> Tensor:
        half = self.width // 2
        y = self.op(x[:, half:] if self.second else x[:, :half])
        return F.pad(y, (0, 0, 0, 0, half, 0) if self.second else (0, 0, 0, 0, 0, half))


def operation(name: str, width: int, stride: int = 1, groups: int = 1) -> nn.Module:
    """``conv3`` (grouped), ``conv1``, separable ``sep3`` to ``sep7``, and the poolings ``max3`` and ``avg3``."""
    kind, kernel = name[:-1], int(name[-1])
    if kind == "max":
        return nn.MaxPool2d(kernel, stride, kernel // 2)
    if kind == "avg":
        return AvgPool2d(kernel, stride, kernel // 2, count_include_pad=False)
    before = [nn.BatchNorm2d(width), nn.ReLU()]
    if kind == "sep":
        depthwise = nn.Conv2d(width, width, kernel, stride, kernel // 2, groups=width, bias=False)
        return nn.Sequential(*before, depthwise, nn.Conv2d(width, width, 1, bias=False))
    used = groups if kernel > 1 else 1
    return nn.Sequential(*before, nn.Conv2d(width, width, kernel, stride, kernel // 2, groups=used, bias=False))


def edge(name: str, width: int, stride: int, groups: int) -> nn.Module:
    """What an edge of the tree computes; only those that leave the input have a stride."""
    if name in HALVES:
        return Half(operation(EDGES[name], width // 2), width, HALVES[name])
    return operation(EDGES[name], width, stride if name in ROOTS else 1, groups)


class TreeCell(nn.Module):
    """The edges on the way of the given paths; `gone` are those that were wiped."""

    def __init__(self, paths: Collection[str], width: int, stride: int, groups: int) -> None:
        super().__init__()
        self.edges = nn.ModuleDict({e: edge(e, width, stride, groups) for e in EDGES if set(through(e)) & set(paths)})
        self.gone: set[str] = set()

    def forward(self, x: Tensor, paths: Collection[str] = PATHS, weights: Tensor | None = None) -> Tensor | None:
        """The sum of the paths of `paths` that there are, each times its weight: one a path, as `PATHS` lists them."""
        found: list[Tensor] = []

        def walk(name: str, x: Tensor) -> None:
            if name not in self.edges or name in self.gone or not any(p in paths for p in through(name)):
                return
            y: Tensor = self.edges[name](x)
            for child in children(name):
                walk(child, y)
            if name in PATHS:
                found.append(y if weights is None else y * weights[PATHS.index(name)])

        for root in ROOTS:
            walk(root, x)
        return _sum(found) if found else None

    def many(self, x: Tensor, on: Mask, shape: Sequence[int]) -> Tensor:
        """Every image through the paths of its own, (images, paths): images are gathered edge by edge."""
        total = x.new_zeros(len(x), *shape)

        def walk(name: str, x: Tensor, rows: NDArray[np.int64]) -> None:
            nonlocal total
            here = np.flatnonzero(on[rows][:, [PATHS.index(p) for p in through(name)]].any(1))
            if not len(here):
                return
            y = self.edges[name](x.index_select(0, torch.from_numpy(here).to(x.device)))
            for child in children(name):
                walk(child, y, rows[here])
            if name in PATHS:
                total = total.index_add(0, torch.from_numpy(rows[here]).to(x.device), y.to(total.dtype))

        for root in ROOTS:
            walk(root, x, np.arange(len(x)))
        return total


class Enter(nn.Sequential):
    """The bottleneck's first pointwise convolution."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__(nn.BatchNorm2d(inputs), nn.Conv2d(inputs, width, 1, bias=False))


class Leave(nn.Sequential):
    """The bottleneck's last pointwise convolution, which ends with a batch-norm (PyramidNet)."""

    def __init__(self, width: int, outputs: int) -> None:
        conv = nn.Conv2d(width, outputs, 1, bias=False)
        super().__init__(nn.BatchNorm2d(width), nn.ReLU(), conv, nn.BatchNorm2d(outputs))


class Shortcut(nn.Module):
    """The input itself: averaged where the block halves the side, with zeros for the channels that it adds."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(2, 2, ceil_mode=True) if stride == 2 else nn.Identity()
        self.more = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(self.pool(x), (0, 0, 0, 0, 0, self.more))


class Block(nn.Module):
    """A bottleneck of PyramidNet whose 3x3 convolution is a tree cell; without paths only its shortcut is left."""

    def __init__(self, slot: Slot, paths: Collection[str], groups: int) -> None:
        super().__init__()
        self.slot, self.shortcut = slot, Shortcut(slot.inputs, slot.outputs, slot.stride)
        self.enter: Any = Enter(slot.inputs, slot.width) if paths else None
        self.cell: Any = TreeCell(paths, slot.width, slot.stride, groups) if paths else None
        self.leave: Any = Leave(slot.width, slot.outputs) if paths else None

    def forward(
        self, x: Tensor, paths: Collection[str] = PATHS, weights: Tensor | None = None, share: Tensor | None = None
    ) -> Tensor:
        """`weights` are the paths', `share` is that of all of them together beside the shortcut."""
        out: Tensor = self.shortcut(x)
        if self.cell is None or not paths:
            return out
        inside = self.cell(self.enter(x), paths, weights)
        if inside is None:
            return out
        found: Tensor = self.leave(inside)
        return out + (found if share is None else share * found)

    def many(self, x: Tensor, on: Mask) -> Tensor:
        """Every image through paths of its own; those without any take the shortcut alone."""
        out: Tensor = self.shortcut(x)
        rows = np.flatnonzero(on.any(1))
        if not len(rows):
            return out
        index = torch.from_numpy(rows).to(x.device)
        shape = self.slot.width, self.slot.out_side, self.slot.out_side
        inside = self.leave(self.cell.many(self.enter(x.index_select(0, index)), on[rows], shape))
        return out.index_add(0, index, inside.to(out.dtype))


class Stem(nn.Sequential):
    """A 3x3 convolution; two strided ones for large images, which leave a quarter of the side."""

    def __init__(self, inputs: int, outputs: int, large: bool) -> None:
        step = 2 if large else 1
        layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, step, 1, bias=False), nn.BatchNorm2d(outputs)]
        if large:
            layers += [nn.ReLU(), nn.Conv2d(outputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs)]
        super().__init__(*layers)


class Head(nn.Module):
    """Batch-norm, ReLU, the global average, and a linear classifier."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.act = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        self.dropout = nn.Dropout(0.0)
        self.linear = nn.Linear(inputs, classes)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(self.dropout(F.adaptive_avg_pool2d(self.act(x), 1).flatten(1)))
        return y


class TreeNet(nn.Module):
    """A network of the space; `cells` holds the paths of every block."""

    def __init__(self, frame: Frame, cells: Sequence[Collection[str]], task: Task) -> None:
        super().__init__()
        slots = frame.slots
        self.stem = Stem(task.channels, slots[0].inputs, frame.large)
        self.blocks: Any = nn.ModuleList(Block(s, paths, frame.groups) for s, paths in zip(slots, cells, strict=True))
        self.head = Head(slots[-1].outputs, task.classes)
        self.ends = frame.ends

    def trace(self, x: Tensor) -> tuple[list[Tensor], Tensor]:
        """The features after the stem and after every stage, and the logits."""
        x = self.stem(x)
        features = [x]
        for number, block in enumerate(self.blocks):
            x = block(x)
            if number in self.ends:
                features.append(x)
        return features, self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.trace(x)[1]


class TreeSupernet(Supernet):
    """All networks of the space in one set of weights: every block with its nine paths."""

    ways_PE: Tensor

    def __init__(self, frame: Frame, task: Task) -> None:
        super().__init__()
        self.frame, self.task = frame, task
        whole = TreeNet(frame, [PATHS] * len(frame.slots), task)
        self.stem, self.blocks, self.head = whole.stem, whole.blocks, whole.head
        self.wiped: set[tuple[int, int]] = set()  # (choice, option)
        # Kept on the device: a step that copies from the host cannot be recorded.
        edges = list(EDGES)
        self.register_buffer("ways_PE", torch.tensor([[edges.index(e) for e in way(p)] for p in PATHS]), False)
        for name, table in zip(_TABLES, TABLES, strict=True):
            self.register_buffer(name, torch.from_numpy(table).float(), False)

    def trace(self, x: Tensor, who: Arch | Picks | Gates) -> tuple[list[Tensor], Tensor]:
        """The features after the stem and after every stage, and the logits."""
        if isinstance(who, Gates):
            return self._run(x, lambda n, block, x: block(x, PATHS, *self.path_weights(n, who.weights)))
        if isinstance(who, Arch):
            cells = cells_of(who)
            return self._run(x, lambda n, block, x: block(x, cells[n]))
        on = paths_of(who)
        return self._run(x, lambda n, block, x: block.many(x, on[:, n]))

    def path_weights(self, number: int, weights: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """In a mixture: the weight of each of a block's paths, and that of all of them beside the shortcut."""
        hub, *branches = weights[3 * number : 3 * number + 3]
        total: Any = 0.0
        for mine, live, name in zip(branches, LIVE, _TABLES, strict=True):
            share = sum(hub[option] for option in live)
            total = total + share * (mine @ getattr(self, name).to(mine.dtype))
        return total, hub[:-1].sum()

    def switched(self, x: Tensor, w: Tensor) -> Tensor:
        """Every edge with a weight of its own: a path's is the product of those on its way.

        They multiply what the path gives. Edge by edge they would do the same but for the batch-norms between them,
        which undo any scale of their input.
        """
        w_NE = w.view(len(self.blocks), len(EDGES))
        first, second, third = (w_NE.index_select(1, edges) for edges in self.ways_PE.unbind(1))
        paths_NP = first * second * third
        return self._run(x, lambda n, block, x: block(x, PATHS, paths_NP[n]))[1]

    def _run(self, x: Tensor, run: Any) -> tuple[list[Tensor], Tensor]:
        x = self.stem(x)
        features = [x]
        for number, block in enumerate(self.blocks):
            x = run(number, block, x)
            if number in self.frame.ends:
                features.append(x)
        return features, self.head(x)

    def extract(self, arch: Arch) -> TreeNet:
        """The stand-alone network with this one's weights and statistics."""
        net = TreeNet(self.frame, cells_of(arch), self.task)
        mine = self.state_dict()
        net.load_state_dict({name: mine[name] for name in net.state_dict()})
        weight = self.head.linear.weight
        return net.to(weight.device, weight.dtype).train(self.training)

    def wipe(self, gone: Iterable[tuple[int, int]]) -> None:
        """Edges that no option in use needs any more leave the computation; their weights are freed."""
        self.wiped |= set(gone)
        alive = [
            torch.ones(n, device=self.ways_PE.device) for _ in self.blocks for n in (len(BRANCHES), *map(len, SUBSETS))
        ]
        for choice, option in self.wiped:
            alive[choice][option] = 0.0
        for number, block in enumerate(self.blocks):
            used, _ = self.path_weights(number, alive)
            left = {path for path, weight in zip(PATHS, used.tolist(), strict=True) if weight > 0}
            unused = {name for name in EDGES if not set(through(name)) & left}
            for name in unused - block.cell.gone:
                free(block.cell.edges[name])
            block.cell.gone |= unused


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
