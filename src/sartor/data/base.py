"""The contract of a data source: labelled images of one shape, handed out by index.

Images are uint8 tensors (B, C, S, S) with values 0..255. Sources that fit in memory keep them
there (`Arrays`); larger folders are decoded batch by batch.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sartor.core.task import Labels, Task
from sartor.data.alike import Alike, Prints, alike

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Index = NDArray[np.int64]
Tick = Callable[[str, int, int], None]  # what is being done, how many are done, of how many


def shown(name: str | os.PathLike[str]) -> str:
    """A file name as text that can be printed: bytes that are no UTF-8 are written out, so that names stay apart."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def silent(what: str, done: int, total: int) -> None:
    """The progress callback that tells nobody."""


@dataclass(frozen=True)
class Skipped:
    """A file that could not be used, and why; it is counted and named in the report."""

    name: str
    reason: str


class Images(ABC):
    """Labelled images, all of shape ``task.channels x task.image x task.image``."""

    name: str
    task: Task
    class_names: tuple[str, ...]
    labels: Labels  # as the task says
    test: Index | None  # where the source brings its own test images (MNIST, CIFAR); else None
    val: Index | None = None  # likewise for validation
    skipped: Sequence[Skipped]
    native: int | None = None  # the images' own shorter side (the median), where a source knows it
    files: Sequence[str] = ()  # the images' names, where they have any
    sizes: NDArray[np.int32] | None = None  # (N, 2), width and height before they were made one size, where known
    kept_in: Path | None = None  # where the decoded images lie for the next run
    notes: Sequence[str] = ()  # what a person should know of how they were opened
    digest_of: str = "pixels"  # or "files": what `digest` covers, which a reader of the certificate wants to know

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def is_smaller(self) -> bool:
        """Whether images were made smaller than they are: detail that no training can bring back."""
        return self.native is not None and self.native > self.task.image

    @abstractmethod
    def pixels(self, index: Index) -> Tensor:
        """The images at `index`, uint8 (B, C, S, S) on the CPU."""

    def prints(self) -> Prints:
        """What is kept of every image to find those that are the same."""
        starts = range(0, len(self), 2048)
        return Prints.joined([Prints.of(self.pixels(np.arange(n, min(n + 2048, len(self)))).numpy()) for n in starts])

    @cached_property
    def alike(self) -> Alike:
        """Which images are the same, and which nearly; those that were tiny before they were scaled only the first."""
        return alike(self.prints(), min(self.task.image, self.native or self.task.image))

    def resident(self, device: str | torch.device) -> Tensor | None:
        """All pixels as one tensor on `device`, made once and shared; None where `pixels` must be asked."""
        return None

    @abstractmethod
    def digest(self) -> str:
        """A sha256 over pixels (or files) and labels: the data's identity in the certificate."""


@dataclass(frozen=True, eq=False)
class Splits:
    """Disjoint indices into one source. The search sees train and val; test is looked at once, at the end."""

    train: Index
    val: Index
    test: Index

    def to_json(self) -> dict[str, Any]:
        """For splits.json."""
        return {"train": self.train.tolist(), "val": self.val.tolist(), "test": self.test.tolist()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Splits:
        """Read what `to_json` wrote."""
        return cls(*(np.asarray(data[k], np.int64) for k in ("train", "val", "test")))
