"""The forms of a network for other runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sartor.runs.codec import RunFile


@dataclass(frozen=True)
class ExportedForm:
    """One form: its files, the first of which is loaded, and how far it is from the ONNX file in its precision."""

    files: tuple[str, ...]
    difference: float  # the largest of a probability
    version: str  # of the runtime that it was compared under
    bytes: int
    runtime: str | None = None  # which that is; None in older ones
    precision: str = "float32"
    imports: str = ""  # how it is loaded and called in Python, in the folder: from `pixels` to `logits`
    call: str = ""


@dataclass(frozen=True)
class ExportFile(RunFile):
    """What `sartor export` wrote, and on how many images it was compared."""

    NAME: ClassVar[str] = "export/export.json"
    images: int
    forms: Mapping[str, ExportedForm]
