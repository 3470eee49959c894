"""The forms of a network for other runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sartor.runs.codec import RunFile


@dataclass(frozen=True)
class ExportedForm:
    """One form: its files, the first of which is loaded, and how far it is from model.onnx."""

    files: tuple[str, ...]
    difference: float  # the largest of a probability
    version: str  # of the runtime that it was compared under
    bytes: int


@dataclass(frozen=True)
class ExportFile(RunFile):
    """What `sartor export` wrote, and on how many images it was compared."""

    NAME: ClassVar[str] = "export/export.json"
    images: int
    forms: Mapping[str, ExportedForm]
