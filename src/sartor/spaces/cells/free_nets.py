"""The search network of cells with any operations on any edges: as every space's, and switches cell by cell."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.cells import bayes_nets
from sartor.spaces.cells.genotype import EDGES, INPUTS, OPERATIONS, OWN, Genotype
from sartor.spaces.cells.nets import Cells, CellSupernet, Frame, MixedCell, Mixture, Slot, Stack
from sartor.spaces.cells.ops import Classifier

# E edges, O operations, P cells of a kind
_WITH_ZERO = 1 + len(OPERATIONS)  # switches an edge


class FreeSupernet(CellSupernet):
    """All cells of the space in one set of weights."""

    def __init__(self, space: Cells, frame: Frame, task: Task) -> None:
        super().__init__(space, frame, task)
        self.grouped = True  # mixtures by few large kernels; else edge by edge, which is the same
        self._scales: dict[tuple[int, int, torch.device], Tensor] = {}

    def make_stem(self) -> nn.Module:
        """Without a batch-norm where one comes before the next convolution."""
        return bayes_nets.stem(self.frame, self.task.channels) if self.frame.preactivated else super().make_stem()

    def make_cell(self, slot: Slot) -> MixedCell:
        """In the order of the frame."""
        if not self.frame.preactivated:
            return super().make_cell(slot)
        inputs = (bayes_nets.preprocess(slot, number, affine=False) for number in range(INPUTS))
        return MixedCell(slot, inputs, partial(bayes_nets.operation, affine=False))

    def make_classifier(self, inputs: int) -> nn.Module:
        """With a batch-norm where none came before."""
        made = bayes_nets.NormedClassifier if self.frame.preactivated else Classifier
        return made(inputs, self.task.classes)

    def stand_alone(self, genotype: Genotype) -> Stack:
        """A new network of these cells; in BN-ReLU-Conv order of cells all of whose nodes live."""
        if not self.frame.preactivated:
            return super().stand_alone(genotype)
        if any(len(cell.concat) < len(OWN) for cell in (genotype.normal, genotype.reduce)):
            raise BadInput(
                'networks with space.order = "bn_relu_conv" cannot take over weights of the search network where nodes '
                "have left, because a convolution mixes all nodes' channels there. Train them from scratch, as "
                'bayesnas does, or use space.order = "relu_conv_bn".'
            )
        return bayes_nets.BayesNet(genotype, self.frame, self.task)

    def groups(self, x: Tensor) -> bool:
        """In evaluation every pooling has statistics of its own, unless only mixtures were ever trained."""
        return bool(self.grouped) and self.training and not self.frame.preactivated

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
