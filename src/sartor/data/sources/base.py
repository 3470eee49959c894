"""The contract of a data source: one kind of thing that labelled images are read from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from sartor.data.base import Images, Tick, silent

SIDES = (16, 24, 32, 48, 64, 96, 128, 160, 192, 224)  # what the automatic choice of a side chooses from


@dataclass(frozen=True, slots=True)
class Wish:
    """How a person wants the images: their side in pixels (None: what suits them, up to `largest` for photos)."""

    image: int | None = None
    largest: int = SIDES[-1]
    tick: Tick = silent
    whole: bool = False  # nothing will be split off: a class may have a single image, and there may be one class


class Source(ABC):
    """A kind of data. `accepts` says in words what it opens; `general` ones are asked after the special ones.

    What a person writes is offered as text first (names such as digits), then as a path; objects as they are.
    """

    accepts: ClassVar[str]
    general: ClassVar[bool] = False

    @abstractmethod
    def takes(self, given: object) -> bool:
        """Whether `given` is of this kind, from a look that costs little."""

    @abstractmethod
    def open(self, given: Any, wish: Wish) -> Images:
        """The images; `BadInput` says what is wrong with them."""
