"""Data sets of Hugging Face's `datasets`, one or a dictionary of splits, and those of its hub by name.

An object needs no package of ours; a name (``hf://datasets/owner/name``, or ``owner/name`` where nothing on the disk is
called so) needs `datasets`, which fetches it once and keeps it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np

from sartor.core.errors import BadInput, require
from sartor.data.base import Images
from sartor.data.sources.base import Source, Wish
from sartor.data.sources.items import open_items

_IMAGE, _LABEL = ("image", "img", "picture"), ("label", "labels", "fine_label", "class")
_HUB = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)(?:/([\w.-]+))?")  # and a configuration of it
_NAME = re.compile(r"([\w-][\w.-]*)/[\w.-]+")
_PARTS = {"train": "train", "validation": "val", "val": "val", "valid": "val", "test": "test"}


@final
class HuggingFace(Source):
    """A `datasets.Dataset`, a `DatasetDict` whose test and validation splits are kept, or ``hf://datasets/owner/name``."""

    accepts: ClassVar[str] = "a data set of Hugging Face's datasets, or hf://datasets/owner/name"

    def takes(self, given: object) -> bool:
        """By its name; an object by its features, a dictionary by those of its first."""
        if isinstance(given, str):
            return bool(_HUB.fullmatch(given)) or _is_name(given)
        if isinstance(given, Mapping) and given:
            given = next(iter(given.values()))
        return isinstance(getattr(given, "features", None), Mapping) and hasattr(given, "__len__")

    def open(self, given: Any, wish: Wish) -> Images:
        """The columns that hold images and labels, by their types, else by their names."""
        if isinstance(given, str):
            given = _fetched(given)
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


def _is_name(text: str) -> bool:
    """Whether text may name a data set of the hub: nothing on the disk begins so, and there is the package for it."""
    found = _NAME.fullmatch(text)
    if found is None or Path(text).exists() or Path(found[1]).exists():
        return False
    return find_spec("datasets") is not None


def _fetched(name: str) -> Any:
    """A data set of the hub, as `datasets` has it here or fetches it."""
    datasets = require("datasets", "datasets")
    found = _HUB.fullmatch(name)
    words = [word for word in found.groups() if word] if found else [name]
    try:
        return datasets.load_dataset(*words)
    except Exception as error:  # whatever a hub, a network and a disk can do
        reason = (str(error).strip() or repr(error)).splitlines()[0].rstrip(".")
        raise BadInput(
            f"{name} must be a folder or file here, or a data set of Hugging Face's hub, but the hub's could not be "
            f"had: {reason}. It is fetched once, which needs a network; a configuration is named as in "
            "hf://datasets/owner/name/configuration."
        ) from error


class _Rows:
    """Pairs of image and label from the rows of several data sets, one after another.

    Where a data set can give images as they are in its files, they are decoded here, by several threads.
    """

    def __init__(self, parts: list[Any], image: str, label: str) -> None:
        self.image, self.label, self.lock = image, label, threading.Lock()
        plain = all(hasattr(p, "cast_column") and (getattr(p, "format", None) or {}).get("type") is None for p in parts)
        typed = plain and all(type(_inner(p.features[image])).__name__ == "Image" for p in parts)
        self.parallel = typed
        given = [p.cast_column(image, type(p.features[image])(decode=False)) for p in parts] if typed else parts
        self.places = [(part, i) for part in given for i in range(len(part))]
        marks = [str(part._fingerprint) for part in parts if getattr(part, "_fingerprint", None)]
        if typed and len(marks) == len(parts):
            self.fingerprint = " ".join([*marks, image, label])
            self.targets: Sequence[Any] = [value for part in parts for value in part[label]]

    def __getstate__(self) -> dict[str, Any]:
        """A lock stays in its process."""
        return {name: value for name, value in vars(self).items() if name != "lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, lock=threading.Lock())

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: int, /) -> tuple[Any, Any]:
        part, i = self.places[index]
        with self.lock:
            row = part[i]
        image = row[self.image]
        if isinstance(image, dict):
            image = image["bytes"] if image.get("bytes") is not None else image["path"]
        return image, row[self.label]


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
