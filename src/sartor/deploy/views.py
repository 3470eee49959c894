"""A network that looks at several views of an image in one call and averages its logits over them.

What it learnt from moved and mirrored images it has learnt roughly; the average over such images is right more often
than any one of them. Where a budget leaves room for that, it costs no training.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from sartor.core.errors import BadInput
from sartor.core.views import VIEWS


@final
class Views(nn.Module):
    """A network behind so many views of images of one side: (B, C, S, S) to the mean of their logits.

    A view is picked row by row and column by column, what is missing at a border reflected: exact copies of pixels, in
    operators that every runtime has. All views of a batch are one batch to the network.
    """

    def __init__(self, net: nn.Module, count: int, side: int) -> None:
        super().__init__()
        if count not in VIEWS:
            raise BadInput(f"views must be one of {', '.join(map(str, VIEWS))}, but got {count}.")
        self.net, self.count = net, count
        for n, view in enumerate(VIEWS[count]):
            at = _moved(side, view.moved)
            self.register_buffer(f"rows{n}", torch.tensor(at))
            self.register_buffer(f"columns{n}", torch.tensor(at[::-1] if view.mirrored else at))
        weights = torch.tensor([view.weight for view in VIEWS[count]])
        self.register_buffer("weights", weights.reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """The weighted mean of the views' logits."""
        taken = [
            x.index_select(2, self.get_buffer(f"rows{n}")).index_select(3, self.get_buffer(f"columns{n}"))
            for n in range(self.count)
        ]
        logits: Tensor = self.net(torch.cat(taken))
        return (logits.reshape(self.count, -1, logits.shape[-1]) * self.get_buffer("weights")).sum(0)


def viewed(net: nn.Module, count: int, side: int) -> nn.Module:
    """The network behind so many views; itself where there is one."""
    return net if count == 1 else Views(net, count, side)


def _moved(side: int, by: int) -> Sequence[int]:
    """Which pixel stands at each place of a row that is moved by so many, reflected at the border."""
    last = side - 1
    places = [at + by for at in range(side)]
    return [min(max(-at if at < 0 else 2 * last - at if at > last else at, 0), last) for at in places]
