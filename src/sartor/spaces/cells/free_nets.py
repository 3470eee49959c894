"""The search network of cells with any operations on any edges: mixtures, paths, and switches cell by cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sartor.core.arch import Arch, Choice
from sartor.core.task import Task
from sartor.spaces.base import Gates, Picks
from sartor.spaces.cells.genotype import INPUTS, OPERATIONS, Genotype
from sartor.spaces.cells.grouped import Source, mixed_cell, sources
from sartor.spaces.cells.nets import CellNet, Frame, MixedCell
from sartor.spaces.cells.ops import Classifier, LargeStem, SmallStem
from sartor.spaces.supernet import Supernet

# B images, E edges, O operations, P cells of a kind
_WITH_ZERO = 1 + len(OPERATIONS)  # switches an edge


class Free(Protocol):
    """What the search network asks of its space; `kind` is 0 for normal cells and 1 for reduction cells."""

    @property
    def choices(self) -> tuple[Choice, ...]: ...

    @property
    def edges(self) -> tuple[tuple[int, int], ...]: ...

    def counts(self, task: Task) -> tuple[int, int]: ...

    def hub(self, kind: int) -> int: ...

    def choice_of(self, kind: int, edge: int, operation: int) -> int: ...

    def place_of(self, choice: int) -> tuple[int, int, int]: ...

    def table(self, picks: Picks, kind: int) -> NDArray[np.bool_]: ...

    def genotype(self, arch: Arch) -> Genotype: ...


class FreeSupernet(Supernet):
    """All cells of the space in one set of weights; a cell type's decisions hold for all of its replicas."""

    def __init__(self, space: Free, frame: Frame, task: Task) -> None:
        super().__init__()
        self.space, self.frame, self.task = space, replace(frame, pool_norm=True), task
        slots = frame.slots(task.image)
        self.stem: Any = (LargeStem if frame.large else SmallStem)(task.channels, frame.stem_width())
        self.cells: Any = nn.ModuleList(MixedCell(s, space.edges) for s in slots)
        self.classifier = Classifier(4 * slots[-1].width, task.classes)
        self.wiped: set[tuple[int, int, int]] = set()  # (kind, edge, operation)
        self.grouped = True  # mixtures by few large kernels; else edge by edge, which is the same
        self._plans: dict[tuple[int, int, torch.device], list[Source]] = {}
        self._scales: dict[tuple[int, int, torch.device], Tensor] = {}

    def trace(self, x: Tensor, who: Arch | Picks | Gates) -> tuple[list[Tensor], Tensor]:
        """The features after the stem and after every cell, and the logits."""
        kinds = self._runs(who, x)
        return self._stacked(x, [kinds[cell.slot.reduces] for cell in self.cells])

    def switched(self, x: Tensor, w: Tensor) -> Tensor:
        """Equation 1 with a weight an operation and one an edge (the zero switch), cell by cell.

        The edge's weight multiplies what its operations give. Before them, where the paper draws it, it would do the
        same but for batch-norms, which undo any scale of their input. A node's sum is divided by the root of the number
        of its operations, so that with all of them on it is no larger than with one.
        """
        tables, start = {}, 0
        for kind, places in enumerate(self.space.counts(self.task)):
            size = len(self.space.edges) * _WITH_ZERO * places
            w_EOP = w[start : start + size].view(len(self.space.edges), _WITH_ZERO, places)
            each = w_EOP[:, :1] * w_EOP[:, 1:] * self._shares(kind, w.device)
            tables[kind], start = iter(each.unbind(2)), start + size
        return self._stacked(x, [_Weighted(next(tables[int(c.slot.reduces)])) for c in self.cells])[1]

    def _shares(self, kind: int, device: torch.device) -> Tensor:
        """(E, 1, 1): one over the root of the number of operations that are left on all edges into an edge's node."""
        key = kind, len(self.wiped), device
        if key not in self._scales:
            left = [0] * (2 * INPUTS + len(self.space.edges))
            for edge, (node, _) in enumerate(self.space.edges):
                left[node] += sum((kind, edge, o) not in self.wiped for o in range(len(OPERATIONS)))
            counts = [max(1, left[node]) for node, _ in self.space.edges]
            self._scales[key] = torch.tensor(counts, device=device).rsqrt()[:, None, None]
        return self._scales[key]

    def _stacked(self, x: Tensor, runs: Sequence[Any]) -> tuple[list[Tensor], Tensor]:
        stem = self.stem(x)
        before, last = stem if isinstance(stem, tuple) else (stem, stem)
        features = [last]
        for cell, run in zip(self.cells, runs, strict=True):
            kind = int(cell.slot.reduces)
            # In evaluation every pooling has statistics of its own, unless only mixtures were ever trained.
            if isinstance(run, _Weighted) and self.grouped and self.training:
                out = mixed_cell(cell, self._plan(kind, x.device), before, last, run.table_EO)
            else:
                gone = {(e, o) for k, e, o in self.wiped if k == kind}
                out = cell(before, last, lambda e, ops, x, run=run, gone=gone: run(e, ops, x, gone))
            before, last = last, out
            features.append(last)
        return features, self.classifier(last)

    def _plan(self, kind: int, device: torch.device) -> list[Source]:
        """The grouped form's plan, made once: options are only ever wiped, so their number says which."""
        gone = {(e, o) for k, e, o in self.wiped if k == kind}
        key = kind, len(gone), device
        if key not in self._plans:
            self._plans[key] = sources(self.space.edges, gone, bool(kind), device)
        return self._plans[key]

    def _runs(self, who: Arch | Picks | Gates, x: Tensor) -> list[Any]:
        """How an edge of a normal cell and one of a reduction cell is run."""
        if isinstance(who, Gates):
            return [_Weighted(self._mixture(who, kind)) for kind in (0, 1)]
        rows = np.asarray(who.picks)[None] if isinstance(who, Arch) else who
        return [_Paths(self.space.table(rows, kind), x) for kind in (0, 1)]

    def _mixture(self, gates: Gates, kind: int) -> Tensor:
        """(E, O): the weight of "on" times that of the subsets of nodes in which the operation has an effect."""
        alive = gates.weights[self.space.hub(kind)]
        rows = []
        for edge in range(len(self.space.edges)):
            first = self.space.choice_of(kind, edge, 0)
            share = alive[list(self.space.choices[first].needs[0][1])].sum()
            rows.append(share * torch.stack([gates.weights[first + o][0] for o in range(len(OPERATIONS))]))
        return torch.stack(rows)

    def extract(self, arch: Arch) -> CellNet:
        """The stand-alone network with this one's weights and statistics; dead nodes' channels are cut out."""
        genotype = self.space.genotype(arch)
        net, kinds = CellNet(genotype, self.frame, self.task), (genotype.normal, genotype.reduce)
        net.stem.load_state_dict(self.stem.state_dict())
        kept: list[Tensor | None] = [None, None]  # channels that are left of the last two cells' outputs
        for mine, theirs in zip(self.cells, net.cells, strict=True):
            kind, width = int(mine.slot.reduces), mine.slot.width
            table = self.space.table(np.asarray(arch.picks)[None], kind)[0]
            for source, target, channels in zip(mine.preprocess, theirs.preprocess, kept, strict=True):
                _load(target, source, channels)
            present = [mine.edges[e][o] for e, o in np.argwhere(table).tolist()]
            for source, target in zip(present, (op for node in theirs.nodes for op in node), strict=True):
                _load(target, source)
            alive = [torch.arange(width) + (n - INPUTS) * width for n in kinds[kind].concat]
            kept = [kept[1], torch.cat(alive)]
        _load(net.classifier, self.classifier, kept[1])
        weight = self.classifier.linear.weight
        return net.to(weight.device, weight.dtype).train(self.training)

    def wipe(self, gone: Iterable[tuple[int, int]]) -> None:
        """Options ``(choice, on)`` that no mixture uses any more leave the computation; their weights are freed."""
        for choice, option in gone:
            place = self.space.place_of(choice)
            if option != 0 or place in self.wiped:
                continue
            for cell in self.cells:
                if int(cell.slot.reduces) == place[0]:
                    cell.free(place[1], place[2])
            self.wiped.add(place)


def _load(target: nn.Module, source: nn.Module, channels: Tensor | None = None) -> None:
    """Copy what both have, of weights on a cell's output only the `channels` that are left.

    Scales and shifts are not in the search network: they stay 1 and 0.
    """
    state = dict(source.state_dict())
    if channels is not None:
        for name, tensor in state.items():
            if name.endswith("weight") and tensor.ndim > 1:
                state[name] = tensor[:, channels.to(tensor.device)]
    target.load_state_dict({**target.state_dict(), **state})


class _Weighted:
    """Equation 1: every operation of an edge times its weight."""

    def __init__(self, table_EO: Tensor) -> None:
        self.table_EO = table_EO

    def __call__(self, edge: int, operations: Any, x: Tensor, gone: set[tuple[int, int]]) -> Tensor | None:
        left = [o for o in range(len(OPERATIONS)) if (edge, o) not in gone]
        return _sum([self.table_EO[edge, o] * operations[o](x) for o in left])


class _Paths:
    """Every image through the operations that its own cell has: images are gathered by operation."""

    def __init__(self, table_BEO: np.ndarray[Any, np.dtype[np.bool_]], x: Tensor) -> None:
        one = len(table_BEO) == 1
        self.groups: dict[tuple[int, int], Tensor | None] = {}  # None: all of them
        for edge, operation in np.argwhere(table_BEO.any(0)).tolist():
            images = np.flatnonzero(table_BEO[:, edge, operation])
            whole = one or len(images) == len(x)
            self.groups[edge, operation] = None if whole else torch.from_numpy(images).to(x.device)

    def __call__(self, edge: int, operations: Any, x: Tensor, gone: set[tuple[int, int]]) -> Tensor | None:
        found = []
        for operation in range(len(OPERATIONS)):
            if (edge, operation) not in self.groups:
                continue
            images = self.groups[edge, operation]
            if images is None:
                found.append(operations[operation](x))
            else:
                some = operations[operation](x.index_select(0, images))
                found.append(some.new_zeros(len(x), *some.shape[1:]).index_copy(0, images, some))
        return _sum(found)


def _sum(terms: Sequence[Tensor]) -> Tensor | None:
    if not terms:
        return None
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total
