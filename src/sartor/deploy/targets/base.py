"""The contract of a target: the machine that a network is cut for."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from sartor.core.errors import BadInput
from sartor.core.registry import TARGETS
from sartor.deploy.timing import Stopwatch

if TYPE_CHECKING:
    from torch import nn

    from sartor.deploy.runtimes.base import Runtime

Build = tuple[Callable[[], "nn.Module | Path"], Sequence[int]]  # what makes a network, and the shape of its input


def unheard(done: int, total: int) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True, kw_only=True)
class Target(ABC):
    """A frozen dataclass whose fields say which machine."""

    here: ClassVar[bool] = False  # whether it is the machine that Sartor runs on
    live: ClassVar[bool] = True  # whether networks can be timed on it now

    @classmethod
    def at(cls, address: str) -> Self:
        """The target of an address, where addresses of this kind are ``NAME://...``."""
        raise BadInput(f"a target must be local or ssh://user@host, but got {address!r}.")

    def prices(self, precision: str) -> Mapping[str, Any] | None:
        """The price book of networks in a precision, where that is all there is of the machine."""
        return None

    def priced(self, precision: str) -> bool:
        """Whether networks in a precision have prices there, or can be given some."""
        return True

    def weight_bits(self, runtime: Runtime) -> int:
        """Of int8 weights, so that no product overflows on its processor; 7 are safe on any."""
        return 7

    @abstractmethod
    def identity(self, runtime: Runtime) -> dict[str, Any]:
        """What the machine is; refused where it cannot run the runtime."""

    @abstractmethod
    def stopwatch(
        self, runtime: Runtime, builds: Mapping[str, Build], tick: Callable[[int, int], None] = unheard
    ) -> AbstractContextManager[Stopwatch]:
        """Times these networks there, each built when it is first visited; `tick` hears how many are."""


def target_of(given: str) -> Target:
    """A target by its name, its address such as ``ssh://user@host``, or its profile, a JSON file."""
    if given.endswith(".json"):
        given, options = "profile", {"path": given}
    else:
        options = {}
    address = re.match(r"([a-z]+)://", given)
    if not address and not options and ":" not in given and given not in TARGETS.names():
        raise BadInput(
            f"a target must be local, ssh://user@host, a profile FILE.json or package.module:Class, but got {given!r}."
        )
    found: Target = TARGETS[address[1]].at(given) if address else TARGETS.make(given, options)
    return found
