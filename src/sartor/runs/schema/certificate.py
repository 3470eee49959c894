"""The certificate, and the list of finished stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from sartor.runs.codec import RunFile, rest
from sartor.runs.schema.audit import Findings
from sartor.runs.schema.budget import QuantisedFile, Verified
from sartor.runs.schema.exported import ExportFile
from sartor.runs.schema.origin import Ancestry
from sartor.runs.schema.search import Correction, Environment, Quality
from sartor.runs.schema.shapes import Device


@dataclass(frozen=True)
class Accuracy:
    """What the task measures a network by (`metric`), in percent."""

    test: float
    test_images: int
    validation: float | None  # None: the validation images were trained on too
    before_fine_tuning: float | None
    metric: str = "accuracy"
    balanced: float | None = None  # the mean over the classes of the test images
    per_class: tuple[float | None, ...] | None = None
    unseen: float | None = None  # of the test images without those that equal, or nearly, one that was trained on
    one_view: float | None = None  # where it is deployed with several: of the image alone


@dataclass(frozen=True)
class Proof:
    """The score of the chosen network, and how far it is from the best possible."""

    method: str
    unit: str
    value: float
    bound: float | None
    gap: float | None
    proven_optimal: bool
    solver: str


@dataclass(frozen=True)
class DataIdentity:
    """Which images, and how many in each part."""

    name: str
    sha256: str
    sha256_of: str
    train: int
    validation: int
    skipped: int


@dataclass(frozen=True)
class Code:
    """Which Sartor."""

    sartor: str
    sha256: str


@dataclass(frozen=True)
class Certificate(RunFile):
    """What was asked, what was delivered, and how anyone can check it."""

    NAME: ClassVar[str] = "certificate.json"
    fits: bool
    budgets: Mapping[str, Verified]
    costs: Mapping[str, Verified]
    accuracy: Accuracy
    score: Proof
    ranking: Quality | None
    architecture: Mapping[str, str]
    string: str
    corrections: tuple[Correction, ...]
    data: DataIdentity
    weights: Mapping[str, str]
    code: Code
    device: Device
    environment: Environment
    seed: int
    made: str
    audit: Findings | None = None
    precision: QuantisedFile | None = None  # both precisions, where 8 bits were asked for
    exports: ExportFile | None = None  # forms for other runtimes, and how far they are from the ONNX file
    files: Mapping[str, str] | None = None  # the sha256 of every file that it vouches for; None in older ones
    search: Mapping[str, str] | None = None  # likewise of the search's folder, where this is a further budget of it
    origin: Ancestry | None = None  # weights learnt elsewhere that it started from
    views: int = 1  # of an image, over which the network averages


@dataclass(frozen=True)
class Signature(RunFile):
    """Who stands for the certificate: see sartor.runs.signature."""

    NAME: ClassVar[str] = "signature.json"
    algorithm: str
    public_key: str  # PEM: a hint whose it is, no proof
    signature: str  # base64


@dataclass(frozen=True)
class Stage:
    """A completed stage: the sha256 of every file it wrote."""

    files: Mapping[str, str]
    seconds: float
    finished: str


@dataclass(frozen=True)
class StagesFile(RunFile):
    """Every completed stage, by name."""

    NAME: ClassVar[str] = "stages.json"
    stages: Mapping[str, Stage] = rest()
