"""Spaces of one choice: which of a list of whole networks. Each is one part, so every cost prices it exactly."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

from sartor.core.arch import Arch, Choice
from sartor.core.task import Task
from sartor.spaces.base import Part, Space

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Entry:
    """A network by name, and what makes it."""

    name: str
    build: Callable[[Task], nn.Module] = field(repr=False, compare=False)

    def key(self, task: Task) -> str:
        """What its price goes by."""
        return f"{self.name}_i{task.channels}_r{task.image}_o{task.classes}"


class WholeNetworks(Space):
    """A space that is a list of networks."""

    @property
    @abstractmethod
    def entries(self) -> tuple[Entry, ...]:
        """The networks."""

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Their names."""
        return (Choice("network", tuple(e.name for e in self.entries)),)

    def network(self, arch: Arch, task: Task) -> nn.Module:
        """The network with fresh weights."""
        return self.entries[arch.picks[0]].build(task)

    def parts(self, task: Task) -> Iterator[Part]:
        """Every network is one part."""
        for n, e in enumerate(self.entries):
            yield Part(e.key(task), partial(e.build, task), (task.channels, task.image, task.image), ((0, n),))

    def describe(self, arch: Arch) -> str:
        """The network's name."""
        return self.entries[arch.picks[0]].name
