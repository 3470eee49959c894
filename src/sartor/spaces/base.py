"""The contract of a search space: choices, rules, parts, and the network of every architecture.

A `SharedSpace` (`sartor.spaces.supernet`) also makes supernets, which most methods train; what a single method needs
beyond that is a capability that it asks for (`sartor.spaces.capabilities`), with a default for every space.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sartor.core.arch import Arch, Choice, canonical
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit
from sartor.core.task import Task
from sartor.spaces import drawing

if TYPE_CHECKING:
    from torch import Tensor, nn

Shape = tuple[int, int, int]
Picks = NDArray[np.int64]  # (B, choices), on the CPU: a path of its own for every image


@dataclass(frozen=True, slots=True)
class Gates:
    """One weight an option for every choice: `weights[i]` has as many entries as choice i has options."""

    weights: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of the network that a cost can price on its own.

    It is present when all the ``(choice, option)`` pairs of `when` are picked: at most two, or three where one of them
    is of choice 0, the *frame* of the space (the side of the images, say), in each of which the space is solved by
    itself. Parts with the same `key` are the same module at the same input shape, so one price serves them all.
    Parts of one `kind` differ in widths and sides only: a cost that is measured may measure some and infer the others.
    """

    key: str
    build: Callable[[], nn.Module]
    in_shape: Shape
    when: tuple[tuple[int, int], ...] = ()
    kind: str = ""


class Space(ABC):
    """A frozen dataclass whose fields are its options."""

    rules: ClassVar[tuple[Limit, ...]] = ()
    least_side: ClassVar[int] = 1  # of the images, in pixels

    @property
    @abstractmethod
    def choices(self) -> tuple[Choice, ...]:
        """The decisions, in the order of `Arch.picks`."""

    @abstractmethod
    def network(self, arch: Arch, task: Task) -> nn.Module:
        """A new stand-alone network."""

    @abstractmethod
    def parts(self, task: Task) -> Iterator[Part]:
        """Every part of every network of the space."""

    @property
    def heaviest(self) -> Arch:
        """The largest network, trained first to teach the others; by default the last option of every choice."""
        return canonical(self.choices, Arch(tuple(n - 1 for n in self.sizes)))

    def fitted(self, task: Task) -> Self:
        """The same space with whatever depends on the image size (strides, widths) settled for `task`."""
        if task.image < self.least_side:
            raise BadInput(
                f"images must have at least {self.least_side} pixels a side for the {type(self).__name__} space, but "
                f"have {task.image}. Use --image {self.least_side}."
            )
        return self

    @classmethod
    def papers_size(cls, task: Task) -> dict[str, Any]:
        """The options at which papers train the networks that come out, where those differ from the defaults."""
        return {}

    @classmethod
    def papers_search(cls, images: int) -> Mapping[str, Mapping[str, Any]]:
        """By a method's name, the options with which its paper searches this very space on so many training images.

        Only those that differ from what the paper says of other spaces (`Method.preset_on`).
        """
        return {}

    def describe(self, arch: Arch) -> str:
        """The architecture in the notation customary for this space; by default every decision that matters."""
        return " ".join(f"{name}={option}" for name, option in arch.named(self.choices).items())

    def draw(self, arch: Arch) -> drawing.Drawing:
        """How the network is drawn; by default what the choices' names and dependencies tell."""
        return drawing.default(self.choices)

    @property
    def apart(self) -> str | None:
        """The choice that sets networks apart most: a sample has some of each of its options. None: no such choice."""
        return None

    def whole(self, task: Task) -> Limit | None:
        """A rule under which networks see all detail of images that have little; None: no such rule.

        For searches that are too short to tell what less of it costs in the end.
        """
        return None

    def landmarks(self, task: Task) -> Mapping[str, Arch]:
        """Networks known by name that are points of the space, as fitted to `task`; by default none."""
        return {}

    def alike(self, named: Mapping[str, str]) -> Sequence[Arch]:
        """Networks that have all weights of one which is named by its choices, the most promising first.

        By default that one, if it has these choices and no others; of a choice that it does not name, the first option.
        """
        if set(named) - {c.name for c in self.choices}:
            return ()
        if any(named.get(c.name, c.options[0]) not in c.options for c in self.choices):
            return ()
        return (Arch(tuple(c.options.index(named.get(c.name, c.options[0])) for c in self.choices)),)

    def read(self, text: str) -> Arch:
        """The architecture that `describe`'s notation names; for spaces whose networks are listed by it in tables."""
        raise BadInput(f"the {type(self).__name__} space does not read architectures from strings; give their choices.")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of options of every choice."""
        return tuple(len(c.options) for c in self.choices)

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
        sizes = self.sizes
        picks = np.zeros((count, len(sizes)), np.int64)
        for i, choice in enumerate(self.choices):
            on = np.ones(count, bool)
            for other, allowed in choice.needs:
                fits = np.zeros(sizes[other], bool)
                fits[list(allowed)] = True
                on &= fits[picks[:, other]]
            for group in (np.flatnonzero(on), np.flatnonzero(~on)):
                first = rng.integers(sizes[i])
                rng.shuffle(group)
                picks[group, i] = np.arange(first, first + len(group)) % sizes[i]
        return picks
