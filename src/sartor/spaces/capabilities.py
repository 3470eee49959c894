"""What a single method needs of a space or of its supernet, beyond the contract that every method relies on.

A method asks for a capability: ``mixable(space)`` is the space itself where it has the methods of `Mixable`, else a
default that works for every space with shared weights. So a space says more than its contract only where it is special.
Of a supernet a method asks ``isinstance(net, Wipeable)`` and does without where it is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from sartor.core.quadratic import Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Gates, Picks, Space
from sartor.spaces.switches import Circuit, Switch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from sartor.spaces.supernet import StepDraw, Supernet


@runtime_checkable
class Mixable(Protocol):
    """For methods that weigh all options at once (xnas, darts, random_sharing)."""

    def forecasters(self, task: Task) -> dict[int, int]:
        """The choices whose options compete in a mixture, and in how many places of the search network each does."""
        ...

    def mixture(self, weights: Mapping[int, Tensor]) -> Gates:
        """Gates with the given weights for every choice of `forecasters`, and what leaves them alone for the others."""
        ...


class _EveryChoice:
    """Every choice's options compete, in one place."""

    def __init__(self, space: Space) -> None:
        self.space = space

    def forecasters(self, task: Task) -> dict[int, int]:
        """All choices."""
        return dict.fromkeys(range(len(self.space.choices)), 1)

    def mixture(self, weights: Mapping[int, Tensor]) -> Gates:
        """The weights as they are."""
        return Gates(tuple(weights[i] for i in range(len(self.space.choices))))


def mixable(space: Space) -> Mixable:
    """How the space's options are mixed."""
    return space if isinstance(space, Mixable) else _EveryChoice(space)


@runtime_checkable
class Switchable(Protocol):
    """For methods that switch every operation by itself (bayesnas, see `sartor.spaces.switches`)."""

    def circuit(self, task: Task) -> Circuit:
        """The switches of the search network and their dependencies."""
        ...

    def switched(self, net: Supernet, x: Tensor, w: Tensor) -> Tensor:
        """The logits of the supernet `net` when the weights `w` of all switches multiply what their operations give."""
        ...


class _EveryOption:
    """One switch for every option of every choice that is mixed, each in all of its places at once."""

    def __init__(self, space: Space) -> None:
        self.space, self.mixed = space, mixable(space)

    def circuit(self, task: Task) -> Circuit:
        """No switch depends on another; every choice must keep one."""
        made, nodes = [], []
        for choice in self.mixed.forecasters(task):
            name, options = self.space.choices[choice].name, self.space.choices[choice].options
            nodes.append(name)
            made += [Switch(f"{name}.{o}", "input", name, (choice, n)) for n, o in enumerate(options)]
        return Circuit(tuple(made), frozenset({"input"}), frozenset(nodes), tuple(frozenset({n}) for n in nodes))

    def switched(self, net: Supernet, x: Tensor, w: Tensor) -> Tensor:
        """The mixture with these weights."""
        sizes, start, weights = self.space.sizes, 0, {}
        for choice in self.mixed.forecasters(net.task):
            weights[choice] = w[start : start + sizes[choice]]
            start += sizes[choice]
        logits: Tensor = net(x, self.mixed.mixture(weights))
        return logits


def switchable(space: Space) -> Switchable:
    """How the space's operations are switched."""
    return space if isinstance(space, Switchable) else _EveryOption(space)


@runtime_checkable
class Relaxable(Protocol):
    """For search at initialisation (nasi), where it draws from another space than it decides on."""

    def relaxed(self) -> Space:
        """The space that is drawn from."""
        ...

    def lift(self, score: Quadratic) -> Quadratic:
        """A score over the choices of `relaxed` as one over this space's."""
        ...


@runtime_checkable
class Sketchable(Protocol):
    """For methods that judge networks without training."""

    def sketch(self) -> Space:
        """The same choices in a smaller network."""
        ...


def sketch(space: Space) -> Space:
    """The space's sketch, or the space itself where it has none."""
    return space.sketch() if isinstance(space, Sketchable) else space


@runtime_checkable
class Wipeable(Protocol):
    """A supernet that becomes smaller while it is searched."""

    def wipe(self, gone: Iterable[tuple[int, int]]) -> None:
        """Options ``(choice, option)`` that no mixture uses any more leave the computation."""
        ...


@runtime_checkable
class Elastic(Protocol):
    """A supernet whose options are slices of one another (binas)."""

    def sort_channels(self) -> None:
        """Reorder shared channels by the importance that gradients in `.grad` give."""
        ...

    def inherit(self) -> None:
        """Start what the heaviest network never ran from what it learnt."""
        ...


@runtime_checkable
class Replayable(Protocol):
    """A supernet whose steps on many paths can be recorded once and replayed."""

    def prepared(self, picks: Picks, device: torch.device) -> StepDraw:
        """The paths in a form that `trace` takes as well, and that may be drawn anew for a replayed step."""
        ...


def prepared(net: Supernet, picks: Picks, device: torch.device) -> Picks | StepDraw:
    """The paths as the supernet likes them best."""
    return net.prepared(picks, device) if isinstance(net, Replayable) else picks
