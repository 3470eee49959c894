"""What was found in the images before they were used: audit.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from sartor.core.errors import RunError
from sartor.runs.codec import RunFile
from sartor.runs.schema.shapes import Ints

FEW = 10  # images of a class that are too few to learn it or to judge it by
_UNEQUAL = 10.0  # times as many images of one class as of another


@dataclass(frozen=True)
class Member:
    """One of several images that are alike."""

    image: int
    name: str
    split: str  # train, val or test
    labels: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join((*self.labels, self.split))})"


@dataclass(frozen=True)
class Group:
    """Images that are the same: pixel by pixel (`exact`), or nearly."""

    exact: bool
    members: tuple[Member, ...]

    @property
    def contradicts(self) -> bool:
        """Whether they have different labels."""
        return len({m.labels for m in self.members}) > 1

    @property
    def leaks(self) -> tuple[int, ...]:
        """Those to be tested on, where others are not."""
        tested = tuple(m.image for m in self.members if m.split == "test")
        return tested if len(tested) < len(self.members) else ()

    def __str__(self) -> str:
        words = (" = " if self.exact else " ~ ").join(map(str, self.members[:3]))
        return words + (f" and {len(self.members) - 3} more" if len(self.members) > 3 else "")


@dataclass(frozen=True)
class Findings:
    """How many images (or classes) of each kind there are."""

    exact: int  # equal another pixel by pixel
    near: int  # nearly equal another
    leaks: int  # of the test, equal or nearly equal to one that is trained or validated on
    contradictions: int  # equal or nearly equal to one with other labels
    blank: int  # of one colour
    enlarged: int  # far smaller than the network's input
    cropped: int  # so long or high that most of them is cut off
    few: int  # classes with less than ten images
    imbalance: float  # images of the largest class for each of the smallest


@dataclass(frozen=True)
class AuditFile(RunFile):
    """Duplicates, contradictions, leaks between the splits, classes that are rare, images that show little."""

    NAME: ClassVar[str] = "audit.json"
    images: int
    side: int  # pixels
    findings: Findings
    classes: tuple[str, ...]
    per_class: Ints
    groups: tuple[Group, ...]
    leaks: Ints  # indices, as all below
    blank: Ints
    enlarged: Ints
    cropped: Ints
    plain: int  # images with too little detail to say whether they are nearly the same as another

    def __post_init__(self) -> None:
        if len(self.classes) != len(self.per_class):
            raise RunError(f"{self.NAME} must count the images of {len(self.classes)} classes. Restore the file.")

    def lines(self) -> list[str]:
        """In words, the worst first."""
        found = [*self._told()] or [f"nothing suspicious in {self.images} images: no duplicates, no class that is rare"]
        plain = f"images with too little detail to find near copies of, only equal ones: {self.plain}"
        return [*found, plain] if self.plain else found

    def _told(self) -> Iterator[str]:
        f, groups = self.findings, self.groups
        if f.leaks:
            some = _such([g for g in groups if g.leaks])
            yield f"test images that equal, or nearly, one that is trained on: {f.leaks}{some}"
        if f.contradictions:
            some = _such([g for g in groups if g.contradicts])
            yield f"images that equal, or nearly, one with other labels: {f.contradictions}{some}"
        if groups:
            yield f"images that equal another: {f.exact}, nearly: {f.near}; {len(groups)} groups{_such(groups)}"
        if f.blank:
            yield f"images of one colour, which show nothing: {f.blank}"
        if f.few:
            yield f"classes with less than {FEW} images: {f.few} ({self._smallest(f.few)})"
        if f.imbalance >= _UNEQUAL:
            yield (
                f"images of the largest class for each of the smallest ({self._smallest(1)}): {f.imbalance:.0f}; "
                "--set train.balance=true lets all classes count alike"
            )
        if f.enlarged:
            yield f"images less than half as large as the {self.side} pixels that the network sees: {f.enlarged}"
        if f.cropped:
            yield f"images over three times as long as wide, of which only the middle is seen: {f.cropped}"

    def _smallest(self, count: int) -> str:
        """The classes with the fewest images, and how many each has."""
        order = sorted(range(len(self.classes)), key=lambda k: self.per_class[k])[: min(count, 5)]
        words = ", ".join(f"{self.classes[k]} {self.per_class[k]}" for k in order)
        return words + (f" and {count - 5} more" if count > 5 else "")


def _such(groups: Sequence[Group]) -> str:
    return f", such as {groups[0]}" if groups else ""
