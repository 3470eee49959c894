"""The search network of cells with any operations on any edges: as every space's, and switches cell by cell."""

from __future__ import annotations

import torch
from torch import Tensor

from sartor.core.task import Task
from sartor.spaces.cells.genotype import EDGES, INPUTS, OPERATIONS
from sartor.spaces.cells.nets import Cells, CellSupernet, Frame, Mixture

# E edges, O operations, P cells of a kind
_WITH_ZERO = 1 + len(OPERATIONS)  # switches an edge


class FreeSupernet(CellSupernet):
    """All cells of the space in one set of weights."""

    def __init__(self, space: Cells, frame: Frame, task: Task) -> None:
        super().__init__(space, frame, task)
        self.grouped = True  # mixtures by few large kernels; else edge by edge, which is the same
        self._scales: dict[tuple[int, int, torch.device], Tensor] = {}

    def groups(self, x: Tensor) -> bool:
        """In evaluation every pooling has statistics of its own, unless only mixtures were ever trained."""
        return bool(self.grouped) and self.training

    def switched(self, x: Tensor, w: Tensor) -> Tensor:
        """Equation 1 with a weight an operation and one an edge (the zero switch), cell by cell.

        The edge's weight multiplies what its operations give. Before them, where the paper draws it, it would do the
        same but for batch-norms, which undo any scale of their input. A node's sum is divided by the root of the number
        of its operations, so that with all of them on it is no larger than with one.
        """
        tables, start = {}, 0
        for kind, places in enumerate(self.space.counts(self.task)):
            size = len(EDGES) * _WITH_ZERO * places
            w_EOP = w[start : start + size].view(len(EDGES), _WITH_ZERO, places)
            each = w_EOP[:, :1] * w_EOP[:, 1:] * self._shares(kind, w.device)
            tables[kind], start = iter(each.unbind(2)), start + size
        kinds = [int(cell.slot.reduces) for cell in self.cells]
        return self.stacked(x, [Mixture(next(tables[kind]), self.freed[kind]) for kind in kinds])[1]

    def _shares(self, kind: int, device: torch.device) -> Tensor:
        """(E, 1, 1): one over the root of the number of operations that are left on all edges into an edge's node."""
        key = kind, len(self.freed[kind]), device
        if key not in self._scales:
            left = [0] * (2 * INPUTS + len(EDGES))
            for edge, (node, _) in enumerate(EDGES):
                left[node] += sum((edge, o) not in self.freed[kind] for o in range(len(OPERATIONS)))
            counts = [max(1, left[node]) for node, _ in EDGES]
            self._scales[key] = torch.tensor(counts, device=device).rsqrt()[:, None, None]
        return self._scales[key]
