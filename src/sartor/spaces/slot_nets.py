"""The supernet of a module with slots, and what is found out about the slots by running it without memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.base import Gates
from sartor.spaces.supernet import Supernet, Who

if TYPE_CHECKING:
    from sartor.spaces.slots import Slots

Group = tuple[int, Tensor]  # an option, and the images that picked it


class Slot(nn.Module):
    """All options of a place; `route` says for the pass at hand which of them run."""

    def __init__(self, options: Sequence[nn.Module]) -> None:
        super().__init__()
        self.options = nn.ModuleList(options)
        self.route: int | Tensor | list[Group] = 0

    def forward(self, x: Tensor) -> Tensor:
        route = self.route
        out: Tensor | None = None
        if isinstance(route, int):
            one: Tensor = self.options[route](x)
            return one
        if isinstance(route, Tensor):
            for weight, option in zip(route.unbind(), self.options, strict=True):
                out = weight * option(x) if out is None else out + weight * option(x)
            assert out is not None
            return out
        for number, images in route:
            some = self.options[number](x.index_select(0, images))
            out = some.new_zeros(len(x), *some.shape[1:]) if out is None else out
            out = out.index_copy(0, images, some)
        assert out is not None
        return out


class SlotSupernet(Supernet):
    """The module with a `Slot` at every place."""

    def __init__(self, space: Slots, net: nn.Module, slots: Sequence[Slot], task: Task) -> None:
        super().__init__()
        self.space, self.net, self.task = space, net, task
        self._slots = tuple(slots)  # the same modules as inside `net`: not registered again

    def trace(self, x: Tensor, who: Who) -> tuple[list[Tensor], Tensor]:
        """The logits; there are no stages whose features could be told."""
        for i, slot in enumerate(self._slots):
            if isinstance(who, Arch):
                slot.route = who.picks[i]
            elif isinstance(who, Gates):
                slot.route = who.weights[i]
            else:
                groups = ((k, np.flatnonzero(who[:, i] == k)) for k in range(len(slot.options)))
                slot.route = [(k, torch.from_numpy(rows).to(x.device)) for k, rows in groups if len(rows)]
        try:
            return [], self.net(x)
        finally:
            for slot in self._slots:
                slot.route = 0  # a route that is kept would keep the step's graph

    def extract(self, arch: Arch) -> nn.Module:
        """The module with copies of the picked options."""
        child, mine = self.space.network(arch, self.task), self.net.state_dict()
        picked = dict(zip(self.space.places(), arch.picks, strict=True))

        def source(name: str) -> str:
            place = next((p for p in picked if name.startswith(f"{p}.")), None)
            return name if place is None else f"{place}.options.{picked[place]}.{name[len(place) + 1 :]}"

        child.load_state_dict({name: mine[source(name)] for name in child.state_dict()})
        like = next(self.parameters())
        return child.to(like.device, like.dtype).train(self.training)


class StandIn(nn.Module):
    """Something of the right shape that costs next to nothing: what a network is priced around."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        first = x.flatten(1)[:, :1]
        return first.view(-1, *(1 for _ in self.shape)).expand(-1, *self.shape)


def shapes(space: Slots, task: Task) -> list[tuple[Any, Any]]:
    """The input and the output shape of every place, one image's; nothing is computed."""
    seen: list[list[tuple[Any, Any]]] = [[] for _ in space.places()]
    with torch.device("meta"):
        net = space.supernet(task).eval()
        for at, slot in zip(seen, net._slots, strict=True):
            slot.register_forward_hook(lambda _, x, y, at=at: at.append((tuple(x[0].shape[1:]), tuple(y.shape[1:]))))
        picks = [Arch(tuple(min(k, n - 1) for n in space.sizes)) for k in range(max(space.sizes))]
        for arch in picks:
            _run(net, arch, task)
    for place, found in zip(space.places(), seen, strict=True):
        if len(found) != len(picks):
            raise BadInput(
                f"{place} must be used once in a forward pass, but is used {len(found) // len(picks)} times."
            )
        if len(set(found)) > 1:
            raise BadInput(f"all options of {place} must give outputs of one shape, but give {sorted(set(found))}.")
    return [found[0] for found in seen]


def _run(net: SlotSupernet, arch: Arch, task: Task) -> None:
    try:
        out = net(torch.empty(2, task.channels, task.image, task.image), arch)
    except Exception as error:  # the module is the user's code: whatever it raises is about the input
        options = net.space.describe(arch)
        raise BadInput(f"the network with {options} must take images of {task.image} pixels, but: {error}") from error
    if tuple(out.shape) != (2, task.classes):
        raise BadInput(f"the network must give {task.classes} logits for each image, but gives {tuple(out.shape[1:])}.")
