"""What a network gets right of images that it was not trained on, and where it errs: evaluation.json."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from sartor.core.errors import BadInput, RunError
from sartor.runs.codec import RunFile
from sartor.runs.schema.shapes import Floats, Ints

_HEX = "0123456789abcdef"


@dataclass(frozen=True)
class Reliability:
    """How far probabilities can be believed: of so many images, in groups from the least sure on.

    `promised` is a group's mean probability, `kept` the share of it that came true; both once as the network says
    them and once with its logits divided by the temperature. `error` is their mean distance in percent.
    """

    temperature: float
    fitted_on: str
    images: Ints
    promised: Floats
    kept: Floats
    error: float
    promised_scaled: Floats
    kept_scaled: Floats
    error_scaled: float

    def __post_init__(self) -> None:
        columns = (self.promised, self.kept, self.promised_scaled, self.kept_scaled)
        if not self.temperature > 0 or any(len(column) != len(self.images) for column in columns):
            raise BadInput("a temperature must be above 0, and every group have one entry of each.")


@dataclass(frozen=True)
class Mistake:
    """An image about which the network is surely wrong; `picture` is a small JPEG in base64."""

    name: str
    truth: Ints  # classes
    said: Ints
    chance: float  # that the network gave to what it said
    picture: str


@dataclass(frozen=True)
class EvaluationFile(RunFile):
    """Class by class, which are taken for which, the worst mistakes, and whether probabilities mean what they say."""

    NAME: ClassVar[str] = "evaluation.json"
    metric: str
    value: float  # in percent, as all below
    images: int
    classes: tuple[str, ...]
    counts: Ints  # images of every class
    per_class: tuple[float | None, ...]
    confusion: tuple[tuple[int, int, int], ...] | None  # (class, taken for, images); None where labels are several
    reliability: Reliability
    mistakes: tuple[Mistake, ...]
    right: str | None = None  # a bit an image in hexadecimal, the first image's foremost; None where labels are several

    def __post_init__(self) -> None:
        if not len(self.classes) == len(self.counts) == len(self.per_class):
            raise BadInput(f"there must be one count and one value for each of {len(self.classes)} classes.")

    @classmethod
    def deployed(cls, folder: Path) -> type[EvaluationFile]:
        """The file that tells of the network as it is deployed: in 8 bits, where a run's folder has that."""
        return Int8EvaluationFile if (folder / Int8EvaluationFile.NAME).is_file() else cls

    def checked(self, path: Path) -> EvaluationFile:
        """The same; a class that is none of the classes, or no bit an image, is refused by the name of the file."""
        numbers = [k for a, b, _ in self.confusion or () for k in (a, b)]
        numbers += [k for m in self.mistakes for k in (*m.truth, *m.said)]
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(self.classes):
            raise RunError(f"{path}: classes must be numbered 0 to {len(self.classes) - 1}, but others occur.")
        if self.right is not None and (len(self.right) != 2 * -(-self.images // 8) or self.right.strip(_HEX)):
            raise RunError(f"{path}: right must be a bit for each of {self.images} images in hexadecimal digits.")
        return self

    def confused(self) -> list[tuple[int, int, int]]:
        """(class, taken for, images) of everything that was taken for something else, the most frequent first."""
        return sorted((e for e in self.confusion or () if e[0] != e[1]), key=lambda e: (-e[2], e[0], e[1]))


@dataclass(frozen=True)
class Int8EvaluationFile(EvaluationFile):
    """The same of the network in 8 bits, where that is what is deployed."""

    NAME: ClassVar[str] = "evaluation_int8.json"
