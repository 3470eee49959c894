"""A network of one's own as a space: say which places of it have which options, and everything else follows.

`Slots` asks for two things: `module`, which makes the network, and `places`, which names some of its submodules and
what may stand there. The supernet holds every option in its slot, an architecture is one option for every place, and
its network is the given module itself with those options put in, under the names that it has anyway. The parts that
costs price are the options, each at the input that its place sees, and the module around them; so the options of one
place must give outputs of one shape, and every place must be used once in a forward pass.
"""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.base import Gates, Part, Shape
from sartor.spaces.drawing import Drawing, Stage
from sartor.spaces.supernet import SharedSpace, Supernet, Who

Options = Mapping[str, Callable[[], nn.Module]]
Group = tuple[int, Tensor]  # an option, and the images that picked it


class Slots(SharedSpace):
    """A module with searchable places; a subclass is a frozen dataclass whose fields, if any, are its options."""

    @abstractmethod
    def module(self, task: Task) -> nn.Module:
        """The network: images in, one logit for each class out. What stands at the searchable places is replaced."""

    @abstractmethod
    def places(self) -> Mapping[str, Options]:
        """For each searchable place, the path of a submodule such as ``body.1``, how its options are made."""

    @property
    def choices(self) -> tuple[Choice, ...]:
        """One for every place."""
        places = self.places()
        for place, options in places.items():
            inside = [other for other in places if other.startswith(f"{place}.")]
            if not options or inside:
                raise BadInput(f"a place needs options and no place inside, but {place} has {inside or 'no options'}.")
        return tuple(Choice(place, tuple(options)) for place, options in places.items())

    @property
    def heaviest(self) -> Arch:
        """The options with the most parameters; of those with as many, the last."""
        with torch.device("meta"):
            sizes = [
                [sum(p.numel() for p in make().parameters()) for make in o.values()] for o in self.places().values()
            ]
        return Arch(tuple(max(range(len(s)), key=lambda k: (s[k], k)) for s in sizes))

    def network(self, arch: Arch, task: Task) -> nn.Module:
        """The module with the picked options in their places."""
        picked = zip(self.places().values(), arch.picks, strict=True)
        return self.filled(task, [list(options.values())[p]() for options, p in picked])

    def supernet(self, task: Task) -> SlotSupernet:
        """The module with all options in their places."""
        slots = [Slot([make() for make in options.values()]) for options in self.places().values()]
        return SlotSupernet(self, self.filled(task, slots), slots, task)

    def filled(self, task: Task, modules: Sequence[nn.Module]) -> nn.Module:
        """The module with the given ones in its places."""
        net = self.module(task)
        for place, module in zip(self.places(), modules, strict=True):
            try:
                net.set_submodule(place, module, strict=True)
            except (AttributeError, ValueError) as error:
                names = [name for name, _ in net.named_modules() if name]
                raise BadInput(
                    f"a place must be a submodule of the network, but {place} is none of {', '.join(names)}."
                ) from error
        return net

    def parts(self, task: Task) -> Iterator[Part]:
        """The module around its places, and every option that computes something at the input of its place."""
        seen = _shapes(self, task)
        for i, (options, (into, _)) in enumerate(zip(self.places().values(), seen, strict=True)):
            for k, (name, make) in enumerate(options.items()):
                with torch.device("meta"):
                    module = make()
                if not isinstance(module, nn.Identity):
                    yield Part(_key(name, module, into), partial(_call, make), into, ((i, k),))
        image: Shape = (task.channels, task.image, task.image)
        around = partial(self.filled, task, tuple(StandIn(out) if into != out else nn.Identity() for into, out in seen))
        with torch.device("meta"):
            yield Part(_key(f"around_{type(self).__qualname__}", around(), image), around, image)

    def draw(self, arch: Arch) -> Drawing:
        """The places as one row of boxes."""
        return Drawing((Stage(type(self).__name__, tuple(range(len(arch.picks)))),))


def _key(name: str, module: nn.Module, into: Shape) -> str:
    """The name and a digest of all that is printed and stored of a module: what its cost depends on."""
    stored = [(n, tuple(t.shape)) for n, t in module.state_dict().items()]
    return f"{name}_{zlib.crc32(f'{module}{stored}'.encode()):08x}_i{'x'.join(map(str, into))}"


def _call(make: Callable[[], nn.Module]) -> nn.Module:
    return make()


class Slot(nn.Module):
    """All options of a place; `route` says for the pass at hand which of them run."""

    def __init__(self, options: Sequence[nn.Module]) -> None:
        super().__init__()
        self.options = nn.ModuleList(options)
        self.route: int | Tensor | list[Group] = 0

    def forward(self, x: Tensor) -> Tensor:
        """What the route gives."""
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
        """One number of every image, everywhere."""
        first = x.flatten(1)[:, :1]
        return first.view(-1, *(1 for _ in self.shape)).expand(-1, *self.shape)


def _shapes(space: Slots, task: Task) -> list[tuple[Shape, Shape]]:
    """The input and the output shape of every place, one image's; nothing is computed."""
    seen: list[list[tuple[Shape, Shape]]] = [[] for _ in space.places()]
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
