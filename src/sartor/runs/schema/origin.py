"""Where weights came from that were learnt elsewhere, and which of a run's images these had been trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from sartor.runs.codec import RunFile
from sartor.runs.schema.shapes import Ints


@dataclass(frozen=True)
class OriginFile(RunFile):
    """What `--start` named, and the images of this run that it had been trained on."""

    NAME: ClassVar[str] = "origin.json"
    given: str
    weights: Mapping[str, str]  # the sha256 of every file of it; of a network by name that of its tensors
    data: str | None  # the images that it learnt from, where it says so
    complete: bool  # whether all images are known that it learnt from
    test: Ints  # the test images that equal, or nearly, one of those
    val: Ints  # likewise of the validation images


@dataclass(frozen=True)
class Started:
    """What the chosen network took of those weights, and which start did better in a short training."""

    weights: int
    of: int
    sliced: int  # tensors of which a part fitted
    source: str
    kept: Literal["elsewhere", "fresh"]
    elsewhere_accuracy: float | None = None  # on validation images; None: nothing fitted, so nothing was compared
    fresh_accuracy: float | None = None


@dataclass(frozen=True)
class Ancestry:
    """The certificate's words on it."""

    given: str
    weights: Mapping[str, str]
    data: str | None
    complete: bool
    test_images: int  # that equal, or nearly, one that these weights had been trained on
    started: Started | None = None

    def told(self) -> str:
        """What may be said of the test images."""
        by = f"the weights its search began with ({self.given})"
        if self.test_images:
            return f"{'' if self.complete else 'at least '}{self.test_images} of them had been trained on by {by}"
        if self.complete:
            return f"none of them was searched or trained on, nor by {by}"
        return f"none of them was searched or trained on here; whether {by} had seen them is not known"


def ancestry(given: str | None, known: OriginFile | None, started: Started | None = None) -> Ancestry | None:
    """Of the start that a run's options name, and its file, which older runs do not have; None without a start."""
    if known is not None:
        return Ancestry(known.given, known.weights, known.data, known.complete, len(known.test), started)
    return None if given is None else Ancestry(given, {}, None, False, 0, started)
