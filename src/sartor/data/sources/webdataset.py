"""WebDataset shards: tar files in which ``0001.jpg`` has its label beside it in ``0001.cls`` or ``0001.json``.

A folder of shards, one shard, or a pattern such as ``train-{000..009}.tar``. Shards whose names say test or val are for
nothing else.
"""

from __future__ import annotations

import json
import re
import tarfile
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, final

import numpy as np

from sartor.core.errors import BadInput
from sartor.data.archive import BROKEN, TARS, Inside, members
from sartor.data.base import Images, shown
from sartor.data.decode import suffixes
from sartor.data.files import Listing, memory_limit, open_files
from sartor.data.labels import from_values
from sartor.data.sources.base import Source, Wish

_LABELS = (".cls", ".json")
_KEYS = ("label", "cls", "class", "labels")  # of the JSON
_BRACES = re.compile(r"\{(\d+)\.\.(\d+)\}")


@final
class WebDataset(Source):
    """Shards of WebDataset: tar files of images, each with its .cls or .json."""

    accepts: ClassVar[str] = "WebDataset shards (a folder of .tar files, or train-{000..009}.tar)"

    def takes(self, given: object) -> bool:
        """A tar file that begins with images and their labels, a folder of such files, or a pattern of them."""
        if isinstance(given, str):
            return bool(_BRACES.search(given)) and given.lower().endswith(TARS)
        return isinstance(given, Path) and bool(shards := _shards(given)) and _labelled(shards[0])

    def open(self, given: Any, wish: Wish) -> Images:
        """The shards one after another."""
        shards = [Path(text).expanduser() for text in _expanded(given)] if isinstance(given, str) else _shards(given)
        paths: list[Inside] = []
        values: list[Any] = []
        parts: list[str] = []
        memory = memory_limit()
        for shard in shards:
            if not shard.is_file():
                raise BadInput(f"every shard of {given} must exist, but there is no {shown(shard)}.")
            part = next((p for p in ("test", "val") if p in shard.name.lower()), "train")
            for image, label in _samples(shard, memory):
                paths.append(image)
                values.append(label)
                parts.append(part)
            memory -= sum(p.size for p in paths if p.archive == shard) if shard.suffix != ".tar" else 0
        if not paths:
            raise BadInput(f"{given} must hold images with a .cls or .json beside each, but holds none.")
        labels, classes = from_values(values, None, str(given))
        own: dict[str, Any] = {
            p: mask for p in ("test", "val") if (mask := np.array([part == p for part in parts])).any()
        }
        root = shards[0].parent
        return open_files(Listing(root, shown(shards[0].parent.name), list(paths), labels, classes, [], **own), wish)


def _shards(path: Path) -> list[Path]:
    """The tar files that a path stands for."""
    if path.is_dir():
        return sorted(p for p in path.iterdir() if p.name.lower().endswith(TARS) and p.is_file())
    return [path] if path.name.lower().endswith(TARS) and path.is_file() else []


def _expanded(pattern: str) -> list[str]:
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    first, last = found.groups()
    numbers = (str(n).zfill(len(first)) for n in range(int(first), int(last) + 1))
    return [name for n in numbers for name in _expanded(pattern[: found.start()] + n + pattern[found.end() :])]


def _labelled(shard: Path) -> bool:
    """Whether one of the first members is a label."""
    try:
        with tarfile.open(shard) as archive:
            return any(PurePosixPath(member.name).suffix.lower() in _LABELS for member in islice(archive, 12))
    except BROKEN:
        return False


def _samples(shard: Path, memory: int) -> list[tuple[Inside, Any]]:
    """Every image with its label: members of one key, the name up to its first dot."""
    images: dict[str, Inside] = {}
    labels: dict[str, Any] = {}
    for member in members(shard, memory):
        path = PurePosixPath(member.name)
        key, ending = str(path.with_name(path.name.partition(".")[0])), path.suffix.lower()
        if ending in suffixes():
            images.setdefault(key, member)
        elif ending in _LABELS:
            labels.setdefault(key, _label(member, ending))
    return [(images[key], labels[key]) for key in images if labels.get(key) is not None]


def _label(member: Inside, ending: str) -> Any:
    text = member.read().decode("utf-8", "replace").strip()
    if ending == ".cls":
        return int(text) if text.lstrip("-").isdigit() else text
    try:
        told = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{shown(member)} must be JSON with a label, but: {error}.") from error
    return next((told[k] for k in _KEYS if isinstance(told, dict) and k in told), None)


PLUGIN = WebDataset
