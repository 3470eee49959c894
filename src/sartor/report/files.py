"""The files of a run directory, or of one further budget of it, read once and as they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sartor.core.arch import Choice
from sartor.core.config import read_toml
from sartor.core.errors import RunError
from sartor.core.quadratic import Quadratic
from sartor.runs.directory import read_json


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
        base = path
        if path.absolute().parent.name == "cuts" and not (path / "config.toml").is_file():
            base = path.absolute().parent.parent
        if not (base / "config.toml").is_file():
            raise RunError(f"{path} is not a run directory: it has no config.toml. Give the folder named by --out.")
        if not (path / "solution.json").is_file():
            raise RunError(f"{path} holds no chosen network yet: run the same `sartor fit` command again to finish it.")
        return cls(path, base)

    def own(self, name: str) -> Any:
        """A file of this budget; None where it is missing."""
        return self._read(self.path / name)

    def searched(self, name: str) -> Any:
        """A file of the search; None where it is missing."""
        return self._read(self.base / name)

    def _read(self, path: Path) -> Any:
        if path not in self._seen:
            read = read_toml if path.suffix == ".toml" else read_json
            self._seen[path] = read(path) if path.is_file() else None
        return self._seen[path]

    @property
    def is_cut(self) -> bool:
        """Whether this is a further budget on a finished search."""
        return self.path is not self.base

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        return self.base.resolve().name

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The space's choices, as the search wrote them."""
        score = self.searched("score.json")
        return tuple(
            Choice(str(c["name"]), tuple(map(str, c["options"])), tuple((int(i), tuple(a)) for i, a in c["needs"]))
            for c in (score or {}).get("choices", ())
        )

    @property
    def score(self) -> Quadratic | None:
        """The score with its errors."""
        score = self.searched("score.json")
        return Quadratic.from_json(score["score"]) if score else None

    @property
    def unit(self) -> str:
        """Of the score."""
        return str((self.searched("score.json") or {}).get("unit", "score"))

    def table(self, name: str) -> Any:
        """A cost table; for latency the one that this budget's measurements corrected, if they did."""
        corrected = self.own("latency.json") if name == "latency" else None
        return corrected or self.searched(f"costs/{name}.json")

    @property
    def tables(self) -> dict[str, Any]:
        """All cost tables, latency first."""
        names = sorted(p.stem for p in (self.base / "costs").glob("*.json"))
        return {n: self.table(n) for n in sorted(names, key=lambda n: (n != "latency", n))}

    @property
    def kinds(self) -> dict[str, str]:
        """The kind of quantity (see `sartor.core.units`) of every cost."""
        verified = (self.own("verify.json") or {}).get("costs", {})
        kinds = {n: str(t["kind"]) for n, t in self.tables.items()}
        return kinds | {n: str(e["kind"]) for n, e in verified.items()}
