"""The files of a run directory, or of one further budget of it, each read once and as its type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from sartor.core.arch import Choice
from sartor.core.config import read_toml
from sartor.core.errors import RunError
from sartor.core.quadratic import Quadratic
from sartor.core.units import COUNT, TIME, Kind
from sartor.costs.base import CostTable, as_priced
from sartor.runs.codec import RunFile, decode, rest
from sartor.runs.directory import read_file, refuse_links, search_of
from sartor.runs.schema import (
    Ancestry,
    Calibration,
    Certificate,
    Correction,
    EvaluationFile,
    Facts,
    OriginFile,
    ScoreFile,
    SolutionFile,
    TableNotes,
    TrainingFile,
    Verified,
    VerifyFile,
    ancestry,
)
from sartor.spaces import drawing
from sartor.spaces.drawing import Drawing

F = TypeVar("F", bound=RunFile)


@dataclass(frozen=True)
class Named:
    """A method or a space with its options."""

    name: str
    options: Mapping[str, Any] = rest()


@dataclass(frozen=True)
class Config:
    """What the report tells of config.toml; a compression has neither method nor space."""

    seed: int
    effort: str
    time: float | None = None
    start: str | None = None
    method: Named | None = None
    space: Named | None = None


@dataclass(frozen=True, eq=False)
class Files:
    """`path` holds one budget's files, `base` the search's; the same folder unless `path` is RUN/cuts/SLUG."""

    path: Path
    base: Path
    _seen: dict[Path, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path) -> Files:
        """Find the search that belongs to a folder; refuse what is no run directory or holds no network yet."""
        if not path.is_dir():
            raise RunError(f"{path} must be a run directory made by `sartor fit`, but there is no such folder.")
        refuse_links(path)
        base = search_of(path)
        if not (base / "config.toml").is_file():
            raise RunError(f"{path} is not a run directory: it has no config.toml. Give the folder named by --out.")
        if not (path / SolutionFile.NAME).is_file():
            raise RunError(f"{path} holds no chosen network yet: run the same `sartor fit` command again to finish it.")
        return cls(path, base)

    def own(self, kind: type[F]) -> F | None:
        """A file of this budget; None where it is missing."""
        return self._read(self.path, kind)

    def searched(self, kind: type[F]) -> F | None:
        """A file of the search; None where it is missing."""
        return self._read(self.base, kind)

    def _read(self, folder: Path, kind: type[F]) -> F | None:
        path = folder / kind.NAME
        if path not in self._seen:
            self._seen[path] = read_file(path, kind) if path.is_file() else None
        found: F | None = self._seen[path]
        return found

    @property
    def is_cut(self) -> bool:
        """Whether this is a further budget on a finished search."""
        return self.path is not self.base

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.base.resolve().name

    @cached_property
    def config(self) -> Config:
        """The options that the report tells."""
        path = self.base / "config.toml"
        return decode(Config, read_toml(path), f"{path}: ")

    @cached_property
    def solution(self) -> SolutionFile:
        """The chosen network; picks that are none of the search's choices are refused."""
        found = read_file(self.path / SolutionFile.NAME, SolutionFile)
        if self.learnt is not None:
            found.arch.check(self.learnt.score.sizes, str(self.path / SolutionFile.NAME))
        return found

    @property
    def verified(self) -> dict[str, Verified]:
        """Every cost of the network as deployed; none where it was not verified."""
        found = self.own(VerifyFile)
        return dict(found.costs) if found else {}

    @property
    def certificate(self) -> Certificate | None:
        """None where there is none."""
        return self.own(Certificate)

    @property
    def origin(self) -> Ancestry | None:
        """Where weights came from that were learnt elsewhere."""
        trained = self.own(TrainingFile)
        return ancestry(self.config.start, self.searched(OriginFile), trained.started if trained else None)

    @property
    def learnt(self) -> ScoreFile | None:
        """What the search learnt; None where its file is missing."""
        found = self.searched(ScoreFile)
        return found and found.checked(self.base / ScoreFile.NAME)

    @cached_property
    def judged(self) -> EvaluationFile | None:
        """What the network gets right as it is deployed; None in runs that do not tell."""
        kind = EvaluationFile.deployed(self.path)
        found = self.own(kind)
        return found and found.checked(self.path / kind.NAME)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The space's choices, as the search wrote them."""
        return self.learnt.choices if self.learnt else ()

    @property
    def score(self) -> Quadratic | None:
        """The score with its errors, around the chosen network where it differs by frame."""
        return self.learnt.score.around(self.solution.arch) if self.learnt else None

    @property
    def facts(self) -> Facts:
        """What the method tells beside its score."""
        return self.learnt.facts if self.learnt else Facts()

    @property
    def unit(self) -> str:
        """Of the score."""
        return self.learnt.unit if self.learnt else "score"

    @cached_property
    def drawing(self) -> Drawing:
        """How the space draws the chosen network; of an older run, what its choices tell."""
        given = self.solution.drawing
        if given is None:
            return drawing.default(self.choices)
        return decode(Drawing, given, f"{self.path / SolutionFile.NAME}: drawing")

    @cached_property
    def priced(self) -> dict[str, CostTable]:
        """All cost tables as they were priced, those of times first."""
        found = as_priced(self.base / "costs", self.path)
        return dict(sorted(found.items(), key=lambda item: item[1].kind != TIME))

    @cached_property
    def tables(self) -> dict[str, CostTable]:
        """All cost tables as this budget's measurements corrected them."""
        mine = {n: self.path / f"{n}.json" for n in self.priced}
        return {n: read_file(mine[n], CostTable) if mine[n].is_file() else t for n, t in self.priced.items()}

    @cached_property
    def corrections(self) -> dict[str, tuple[Correction, ...]]:
        """What measurements taught the tables, where they did; also after the network was verified."""
        notes = {n: decode(TableNotes, t.calibration, f"{n}.json: calibration") for n, t in self.tables.items()}
        return {name: found.corrections for name, found in notes.items() if found.corrections}

    @cached_property
    def calibrations(self) -> dict[str, Calibration]:
        """Those tables that were compared with whole networks, and how well they agreed."""
        return {
            name: decode(Calibration, table.calibration, f"{self.base / 'costs' / name}.json: calibration")
            for name, table in self.priced.items()
            if "networks" in table.calibration
        }

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """The kind of quantity of every cost."""
        return {n: t.kind for n, t in self.tables.items()} | {n: e.kind for n, e in self.verified.items()}

    def kind(self, name: str) -> Kind:
        """The kind of quantity of a cost; a count where no file says."""
        return self.kinds.get(name, COUNT)
