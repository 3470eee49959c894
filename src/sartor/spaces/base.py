"""The contract of a search space.

Who runs in a supernet is said in one of three ways:

- an `Arch`: one path for the whole batch;
- `Picks`, a (B, choices) integer array on the CPU: a path of its own for every image ("multi-path");
- `Gates`, a weight vector a choice: a mixture of all the options.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sartor.core.arch import Arch, Choice, canonical
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.spaces import drawing
from sartor.spaces.draw import Drawn
from sartor.spaces.switches import Circuit, Switch

if TYPE_CHECKING:
    from torch import Tensor, nn

Shape = tuple[int, int, int]
Picks = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Gates:
    """One weight an option for every choice: `weights[i]` has as many entries as choice i has options."""

    weights: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the network that a cost can price on its own.

    It is present when all the ``(choice, option)`` pairs of `when` (at most two) are picked. Parts
    with the same `key` are the same module at the same input shape, so one price serves them all.
    """

    key: str
    build: Callable[[], nn.Module]
    in_shape: Shape
    when: tuple[tuple[int, int], ...] = ()


class Supernet(ABC):
    """All networks of a space in one set of shared weights; every implementation is also an `nn.Module`."""

    @abstractmethod
    def trace(self, x: Tensor, who: Arch | Picks | Gates) -> tuple[list[Tensor], Tensor]:
        """The features after every stage (for distillation) and the logits."""

    @abstractmethod
    def extract(self, arch: Arch) -> nn.Module:
        """The stand-alone network with the inherited weights: in evaluation mode, the same logits."""

    def prepared(self, picks: Picks, device: Any) -> Picks | Drawn:
        """The paths in a form that `trace` takes as well, and that may be drawn anew for a replayed step; optional."""
        return picks

    def sort_channels(self) -> None:  # noqa: B027 - optional by design
        """Reorder shared channels by the importance that gradients in `.grad` give; optional."""

    def inherit(self) -> None:  # noqa: B027 - optional by design
        """Start what the heaviest network never ran from what it learnt; optional."""

    def wipe(self, gone: Iterable[tuple[int, int]]) -> None:  # noqa: B027 - optional by design
        """Options ``(choice, option)`` that no mixture uses any more may leave the computation; optional."""


class Space(ABC):
    """A frozen dataclass whose fields are its options."""

    rules: ClassVar[tuple[Limit, ...]] = ()
    # The space with the same options in which every operation is on or off by itself, where there is one.
    free: ClassVar[str | None] = None

    @property
    @abstractmethod
    def choices(self) -> tuple[Choice, ...]:
        """The decisions, in the order of `Arch.picks`."""

    @property
    @abstractmethod
    def heaviest(self) -> Arch:
        """The largest network: it is trained first and teaches the others."""

    @abstractmethod
    def fitted(self, task: Task) -> Space:
        """The same space with whatever depends on the image size (strides, widths) settled for `task`."""

    @abstractmethod
    def supernet(self, task: Task) -> Any:
        """A new `Supernet`, initialised from torch's random state."""

    @abstractmethod
    def network(self, arch: Arch, task: Task) -> nn.Module:
        """A new stand-alone network."""

    @abstractmethod
    def parts(self, task: Task) -> Iterator[Part]:
        """Every part of every network of the space."""

    @abstractmethod
    def describe(self, arch: Arch) -> str:
        """The architecture in the notation customary for this space."""

    def draw(self, arch: Arch) -> drawing.Drawing:
        """How the network is drawn; by default what the choices' names and dependencies tell."""
        return drawing.default(self.choices)

    def read(self, text: str) -> Arch:
        """The architecture that `describe`'s notation names; for spaces whose networks are listed by it in tables."""
        raise BadInput(f"the {type(self).__name__} space does not read architectures from strings; give their choices.")

    def sketch(self) -> Space:
        """The same choices in a smaller network, for methods that judge networks without training; optional."""
        return self

    def relaxed(self) -> Space:
        """The space that search at initialisation draws from, where it is another; `lift` brings its score back."""
        return self

    def lift(self, score: Quadratic) -> Quadratic:
        """A score over the choices of `relaxed` as one over this space's; where they are the same, itself."""
        return score

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of options of every choice."""
        return tuple(len(c.options) for c in self.choices)

    def forecasters(self, task: Task) -> dict[int, int]:
        """The choices whose options compete in a mixture, and in how many places of the search network each does."""
        return dict.fromkeys(range(len(self.choices)), 1)

    def mixture(self, weights: Mapping[int, Tensor]) -> Gates:
        """Gates with the given weights for every choice of `forecasters`, and what leaves them alone for the others."""
        return Gates(tuple(weights[i] for i in range(len(self.choices))))

    def circuit(self, task: Task) -> Circuit:
        """The switches of the search network and their dependencies (`sartor.spaces.switches`).

        By default one switch for every option of every choice that is mixed, each in all of its places at once.
        """
        made, nodes = [], []
        for choice in self.forecasters(task):
            name, options = self.choices[choice].name, self.choices[choice].options
            nodes.append(name)
            made += [Switch(f"{name}.{o}", "input", name, (choice, n)) for n, o in enumerate(options)]
        return Circuit(tuple(made), frozenset({"input"}), frozenset(nodes), tuple(frozenset({n}) for n in nodes))

    def switched(self, net: Any, x: Tensor, w: Tensor) -> Tensor:
        """The logits of the supernet `net` when the weights `w` of all switches multiply what their operations give."""
        sizes, start, weights = self.sizes, 0, {}
        for choice in self.forecasters(net.task):
            weights[choice] = w[start : start + sizes[choice]]
            start += sizes[choice]
        logits: Tensor = net(x, self.mixture(weights))
        return logits

    def sample(self, rng: np.random.Generator) -> Arch:
        """A uniformly random option for every choice."""
        return canonical(self.choices, Arch(tuple(int(rng.integers(n)) for n in self.sizes)))

    def sample_picks(self, rng: np.random.Generator, count: int) -> Picks:
        """Uniformly random options for `count` images at once, dealt like cards rather than thrown like dice.

        Every image's path is uniform; over the images, each option of a choice occurs equally often (up to a
        remainder dealt at random), counted among the images for which the choice is active. Less variance, and the
        groups that share an option have the same size at every step, which a GPU's convolution plans depend on: with
        a multiple of 36 images the mobile space meets one set of shapes only.
        """
        picks = np.zeros((count, len(self.choices)), np.int64)
        for i, choice in enumerate(self.choices):
            on = np.ones(count, bool)
            for other, allowed in choice.needs:
                on &= np.isin(picks[:, other], allowed)
            for group in (np.flatnonzero(on), np.flatnonzero(~on)):
                hand = (np.arange(len(group)) + rng.integers(len(choice.options))) % len(choice.options)
                picks[rng.permutation(group), i] = hand
        return picks
