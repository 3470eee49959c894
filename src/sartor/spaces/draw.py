"""What a training step draws at random, in a form that can be drawn anew for a step that is replayed."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from torch import Tensor


@final
@dataclass(frozen=True, eq=False, slots=True)
class Drawn:
    """Tensors on the device, and in `same` all else that the computation depends on.

    Two steps with equal `same` and tensors of equal shapes launch the same kernels, so that one's recording serves
    the other (`engine.graphs`).
    """

    tensors: tuple[Tensor, ...] = ()
    same: Hashable = None
