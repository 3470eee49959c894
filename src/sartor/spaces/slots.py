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
from typing import TYPE_CHECKING

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.base import Part, Shape, SharedSpace
from sartor.spaces.drawing import Drawing, Stage

if TYPE_CHECKING:
    from torch import nn

    from sartor.spaces.slot_nets import SlotSupernet

Options = Mapping[str, Callable[[], "nn.Module"]]


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
        import torch

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
        from sartor.spaces.slot_nets import Slot, SlotSupernet

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
        import torch
        from torch import nn

        from sartor.spaces.slot_nets import StandIn, shapes

        seen = shapes(self, task)
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
