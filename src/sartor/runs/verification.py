"""What a check of a run directory says, line by line; and the checks of its hashes and its certificate.

A line says that something was verified, that it differs (what was expected, what was found), or that it cannot be
checked and why. Every check stands alone: a damaged file is a line of its own, and the others are still made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from sartor.core.errors import MissingDependency, SartorError
from sartor.runs.certificate import MADE_OF_THEM, certificate
from sartor.runs.codec import encode
from sartor.runs.directory import Run, sha256
from sartor.runs.schema import Certificate

State = Literal["verified", "differs", "cannot be checked"]
_LONGEST = 160  # characters of a value that are shown
_STAGES = {False: ("data", "costs", "search"), True: ("data", "baseline", "rounds", "costs", "layers")}
_OWN = ("solve", "train", "export", "verify", "certificate")
# Which file says what the certificate repeats.
_SAID_BY = {
    "verify.json": ("fits", "budgets", "costs", "device"),
    "training.json, splits.json and quantised.json": ("accuracy",),
    "solution.json and score.json": ("score", "ranking", "architecture", "string", "corrections"),
    "splits.json": ("data",), "audit.json": ("audit",), "quantised.json": ("precision",),
    "origin.json and training.json": ("origin",), "export.json": ("exports",), "env.json": ("environment",),
    "config.toml": ("seed",), "model/": ("weights",),
}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One thing that was checked."""

    what: str
    state: State
    expected: str | None = None
    found: str | None = None


@dataclass(frozen=True)
class Verification:
    """All that was checked of a run, or of one of its further budgets."""

    run: str
    lines: tuple[Line, ...]

    @property
    def holds(self) -> bool:
        """Whether nothing differs."""
        return all(line.state != "differs" for line in self.lines)

    def summary(self) -> str:
        """In one line: how many of each, and by name what differs."""
        count = {s: sum(line.state == s for line in self.lines) for s in ("verified", "differs", "cannot be checked")}
        wrong = ", ".join(line.what for line in self.lines if line.state == "differs")
        told = (
            f"{count['verified']} verified, {count['differs']} differ, {count['cannot be checked']} cannot be checked"
        )
        return f"{told}: {wrong} differ" if wrong else told


def same(what: str, expected: object, found: object) -> Line:
    """Verified where both are equal."""
    if expected == found:
        return Line(what, "verified")
    return Line(what, "differs", shown(expected), shown(found))


def close(what: str, expected: float, found: float, relative: float = 1e-9) -> Line:
    """Verified where both are equal up to rounding."""
    near = abs(expected - found) <= relative * max(1.0, abs(expected), abs(found))
    return Line(what, "verified") if near else Line(what, "differs", shown(expected), shown(found))


def unknown(what: str, why: str) -> Line:
    """What cannot be checked, and why."""
    return Line(what, "cannot be checked", found=why)


def shown(value: object) -> str:
    """A value for people."""
    text = value if isinstance(value, str) else repr(encode(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def each(what: str, check: Callable[[], Iterable[Line]]) -> Iterator[Line]:
    """The lines of a check; what it refuses is a line too."""
    try:
        yield from check()
    except MissingDependency as error:
        yield unknown(what, str(error))
    except SartorError as error:
        yield Line(what, "differs", found=str(error))


@dataclass(frozen=True, eq=False)
class Folders:
    """`cut` holds one budget's files, `base` the search's; the same folder unless `cut` is RUN/cuts/SLUG."""

    base: Run
    cut: Run

    @property
    def compression(self) -> bool:
        """Whether the run made a given network smaller."""
        return (self.base.path / "baseline.json").exists() or "baseline" in self.base.stages()


def hashes(f: Folders) -> Iterator[Line]:
    """Every listed file against its hash; every stage and file that must be listed against the list."""
    made = tuple(stage for stage in ("report", "compare", "exports") if stage in f.cut.stages())
    for run, names in ((f.base, _STAGES[f.compression]), (f.cut, (*_OWN, *made))):
        for stage in names:
            what = f"{'' if run is f.cut else 'search: '}hashes of the stage '{stage}'"
            yield from each(what, partial(_stage, run, stage, what))
    yield from each("every file is listed", partial(_listed, f))


def _stage(run: Run, stage: str, what: str) -> Iterator[Line]:
    yield same(what, "complete", "complete" if run.done(stage) else "not in stages.json")


def _listed(f: Folders) -> Iterator[Line]:
    """Files that a reader of the run believes, but that no stage lists."""
    for run in dict.fromkeys((f.base, f.cut)):
        names = {name for stage in run.stages().values() for name in stage.files}
        found = {
            p.relative_to(run.path).as_posix() for p in (*run.path.glob("costs/**/*.json"), *run.path.glob("model/*"))
        }
        found |= {p.name for p in run.path.glob("[!.]*.json")} - {"stages.json", "clock.json", "signature.json"}
        left, what = sorted(found - names), f"every file of {run.path.name} is listed"
        old = not (run.path / Certificate.NAME).is_file() or run.load(Certificate).files is None
        later = [name for name in left if old and name in ("model/labels.json", "model/labels.txt", "env.json")]
        if later:
            yield unknown(what, f"an older Sartor did not list {', '.join(later)}")
        yield same(what, [], [name for name in left if name not in later])


def certified(f: Folders) -> Iterator[Line]:
    """The certificate against the files that it is made of, and the hashes that it names against the files."""
    told, made = f.cut.load(Certificate), certificate(f.base, f.cut)
    for source, fields in _SAID_BY.items():
        for name in fields:
            if name == "exports" and told.exports is None and made.exports is not None:
                yield unknown("certificate: exports", "an older Sartor exported: its certificates do not tell of it")
                continue
            yield same(f"certificate: {name} as {source} says", *(encode(getattr(c, name)) for c in (made, told)))
    if told.files is None:
        yield unknown(
            "certificate: hashes of its files", "an older Sartor made it, whose certificates name the model's"
        )
        return
    for run, known in ((f.cut, told.files), (f.base, told.search or {})):
        wrong = [n for n, h in known.items() if not (run.path / n).is_file() or sha256(run.path / n) != h]
        yield same(f"certificate: hashes of {len(known)} files of {run.path.name}", [], wrong)
    listed = _names(f.cut, None) | (set() if f.base is f.cut else _names(f.base, ("data", "search")))
    missing = {n for n in listed - told.files.keys() - (told.search or {}).keys() if not n.startswith("costs/")}
    yield same("certificate: vouches for every file", [], sorted(missing))  # tables may be priced for later budgets


def _names(run: Run, only: tuple[str, ...] | None) -> set[str]:
    stages = {n: s for n, s in run.stages().items() if n not in MADE_OF_THEM and (only is None or n in only)}
    return {name for stage in stages.values() for name in stage.files}
