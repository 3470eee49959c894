"""A batch in several hands: on a CPU each thread takes its part through the whole network, and back.

The operations of a small network are too short for cores to share one: a second thread inside every operation makes a
training step 1.0 to 1.4 times as fast, a second one with half of the batch 1.7 to 1.9 times (`benchmarks/hands.py`).
The parts meet as those of data-parallel processes do: batch-norms see their own part, running statistics become the
mean, gradients the sum. All of that in a fixed order, so that a step stays a function of its seed.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from sartor.engine.device import Engine
from sartor.engine.recipe import Recipe


@final
class Hands:
    """A network that as many threads train as the engine says; whatever is no training step goes through itself."""

    def __init__(self, net: nn.Module, engine: Engine) -> None:
        self.net, self.engine = net, engine
        self.nets: list[nn.Module] = []  # itself, and twins that share its parameters and have buffers of their own

    def __call__(self, x: Tensor) -> Any:
        """The network's answer to a batch."""
        if self.engine.hands == 1 or not self.net.training or not torch.is_grad_enabled():
            return self.net(x)
        if len(self.nets) != self.engine.hands:
            self.nets = [self.net, *(_twin(self.net) for _ in range(1, self.engine.hands))]
        trained = [p for p in self.net.parameters() if p.requires_grad]
        return _Shared.apply(self, trained, x, *trained)  # type: ignore[no-untyped-call]

    def forward(self, x: Tensor) -> list[Tensor]:
        """Every part's answer, with its graph."""
        told = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

        def ahead(net: nn.Module, part: Tensor) -> Tensor:
            # A thread begins without either; a cache of converted weights would be shared by all threads.
            with torch.enable_grad(), torch.autocast("cpu", told[1], told[0], cache_enabled=False):
                answer: Tensor = net(part)
            return answer

        return list(self.engine.pool.map(ahead, self.nets, x.tensor_split(len(self.nets))))

    def backward(
        self, answers: Sequence[Tensor], slopes: Tensor, trained: Sequence[nn.Parameter]
    ) -> list[Tensor | None]:
        """The parameters' gradients, summed over the parts; None for one that has none.

        The graphs hold the running statistics, so only now do all nets get the same.
        """

        def back(answer: Tensor, slope: Tensor) -> tuple[Tensor | None, ...]:
            return torch.autograd.grad(answer, trained, slope, allow_unused=True)

        found = list(self.engine.pool.map(back, answers, slopes.tensor_split(len(answers))))
        statistics = [[b for b in net.buffers() if b.is_floating_point()] for net in self.nets]
        if statistics[0]:
            mean = torch._foreach_div(_sum(statistics), float(len(self.nets)))
            for own in statistics:
                torch._foreach_copy_(own, mean)
        used = [n for n, slope in enumerate(found[0]) if slope is not None]
        total = dict(zip(used, _sum([[slope for slope in own if slope is not None] for own in found]), strict=True))
        return [total.get(n) for n in range(len(trained))]


class _Shared(torch.autograd.Function):
    """The parts' graphs as one step of the graph that the loss is computed in."""

    @staticmethod
    def forward(ctx: Any, hands: Hands, trained: Sequence[nn.Parameter], x: Tensor, *_: Tensor) -> Tensor:
        """All parts' answers."""
        ctx.hands, ctx.trained, ctx.answers = hands, trained, hands.forward(x)
        return torch.cat([answer.detach() for answer in ctx.answers])

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> Any:
        """The gradients of the parameters; images get none."""
        return (None, None, None, *ctx.hands.backward(ctx.answers, slopes, ctx.trained))


def suited(recipe: Recipe) -> bool:
    """Whether threads may share a training: nothing in it is drawn, or left behind, on the way through the network."""
    return not (recipe.dropout or recipe.drop_path or recipe.auxiliary)


def _twin(net: nn.Module) -> nn.Module:
    """A copy with the same parameters: what a thread has for itself are the buffers."""
    return copy.deepcopy(net, {id(p): p for p in net.parameters()})


def _sum(lists: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Element by element, from the first list to the last."""
    total = list(lists[0])
    for others in lists[1:]:
        total = list(torch._foreach_add(total, list(others)))
    return total
