"""Data sets of Hugging Face's `datasets`, one or a dictionary of splits; the package itself is not needed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

import numpy as np

from sartor.core.errors import BadInput
from sartor.data.base import Images
from sartor.data.sources.base import Source, Wish
from sartor.data.sources.items import open_items

_IMAGE, _LABEL = ("image", "img", "picture"), ("label", "labels", "fine_label", "class")
_PARTS = {"train": "train", "validation": "val", "val": "val", "valid": "val", "test": "test"}


@final
class HuggingFace(Source):
    """A `datasets.Dataset`, or a `DatasetDict` whose test and validation splits are kept."""

    accepts: ClassVar[str] = "a data set of Hugging Face's datasets"

    def takes(self, given: object) -> bool:
        """By its features; a dictionary by those of its first."""
        if isinstance(given, Mapping) and given:
            given = next(iter(given.values()))
        return isinstance(getattr(given, "features", None), Mapping) and hasattr(given, "__len__")

    def open(self, given: Any, wish: Wish) -> Images:
        """The columns that hold images and labels, by their types, else by their names."""
        parts = (
            {_PARTS[n]: d for n, d in given.items() if n in _PARTS} if isinstance(given, Mapping) else {"train": given}
        )
        if "train" not in parts:
            raise BadInput(f"a dictionary of data sets must have 'train', but has {', '.join(given)}.")
        first = parts["train"]
        image, label = _column(first.features, ("Image",), _IMAGE), _column(first.features, ("ClassLabel",), _LABEL)
        rows = _Rows(list(parts.values()), image, label)
        ends = np.cumsum([0, *(len(part) for part in parts.values())])
        own = {n: np.arange(a, b) for n, a, b in zip(parts, ends, ends[1:], strict=False) if n != "train"}
        name = str(getattr(getattr(first, "info", None), "dataset_name", None) or "dataset")
        return open_items(rows, wish, name, _names(first.features[label]), own.get("test"), own.get("val"))


class _Rows:
    """Pairs of image and label from the rows of several data sets, one after another."""

    def __init__(self, parts: list[Any], image: str, label: str) -> None:
        self.places = [(part, i) for part in parts for i in range(len(part))]
        self.image, self.label = image, label

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int, /) -> tuple[Any, Any]:
        part, i = self.places[index]
        row = part[i]
        return row[self.image], row[self.label]


def _inner(feature: Any) -> Any:
    """What a list of features is a list of."""
    return feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)


def _column(features: Mapping[str, Any], types: tuple[str, ...], names: tuple[str, ...]) -> str:
    typed = [name for name, feature in features.items() if type(_inner(feature)).__name__ in types]
    found = [*(n for n in names if n in typed), *typed, *(n for n in names if n in features)]
    if not found:
        raise BadInput(
            f"a data set must have a column {' or '.join(names)}, but has {', '.join(features)}. Rename one with "
            "rename_column."
        )
    return found[0]


def _names(feature: Any) -> list[str] | None:
    names = getattr(_inner(feature), "names", None)
    return list(names) if names else None


PLUGIN = HuggingFace
