"""The run directory: everything a run makes, written whole or not at all, and never recomputed.

`stages.json` lists every completed stage with the sha256 of each file it wrote. A stage is skipped
when it is listed; a listed file that is missing or has changed is refused by name, because whatever
was computed from it can no longer be trusted. Where the list itself is damaged, a copy mends it.

A directory may come from elsewhere: it is data. What a stage always writes must be in its list, and no link may lead
out of the directory.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO, TypeVar

from sartor.core.errors import RunError
from sartor.runs.codec import RunFile, decode, from_file, to_file
from sartor.runs.progress import Reporter
from sartor.runs.schema import FILES, Stage, StagesFile

# What each stage writes whenever it is complete: a list without them would switch the checks off.
WRITES: dict[str, tuple[str, ...]] = {
    "data": ("splits.json", "config.toml"),
    "search": ("score.json",),
    "baseline": ("baseline.json", "search/given.safetensors"),
    "rounds": ("rounds.json", "search/sparse.safetensors"),
    "solve": ("solution.json",),
    "train": ("training.json", "model/trained.safetensors"),
    "export": ("model/model.onnx", "model/weights.safetensors", "model/arch.json", "model/preprocessing.json"),
    "verify": ("verify.json",),
    "layers": ("compression.json",),
    "compare": ("compare.json",),
    "certificate": ("certificate.json",),
    "exports": ("export/export.json", "export/README.md"),
}

T = TypeVar("T")
F = TypeVar("F", bound=RunFile)
_COPY = ".stages.json"
_LEFT = re.compile(r"\..+\.\d+\.tmp|\.tmp\w{6}")  # what `atomic`, and safetensors beneath it, call a file half written
_OS_ERROR = re.compile(r"\(os error (\d+)\)")  # in messages of libraries written in Rust


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place only when the block ends well; neither follows a link.

    Everything that a run keeps is written through here: a disk that is full or read-only is said so, in one place, and
    what stood there before stays.
    """
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tmp.unlink(missing_ok=True)
        os.close(os.open(tmp, os.O_CREAT | os.O_EXCL, 0o666))  # a new file, not what a link of that name points to
    except OSError as error:
        raise RunError(f"{path.parent} must be a writable folder, but: {_told(error)}.") from error
    try:
        yield tmp
        os.replace(tmp, path)
    except Exception as error:
        failed = _of_disk(error)
        if failed is None or failed.filename not in (None, str(tmp), str(path), tmp, path):  # of something else
            raise
        raise RunError(f"{path} must be writable, but: {_told(failed)}.") from error
    finally:
        with suppress(OSError):  # a disk that has become read-only keeps it
            tmp.unlink(missing_ok=True)


def _of_disk(error: Exception) -> OSError | None:
    """What the system said; safetensors wraps that into an error of its own."""
    if isinstance(error, OSError):
        return error
    number = _OS_ERROR.search(str(error))
    return OSError(int(number[1]), os.strerror(int(number[1]))) if number else None


def _told(error: OSError) -> str:
    """The reason, and what to do where that is known."""
    if error.errno == errno.ELOOP:
        return "a link stands where a file of the run belongs. Remove it"
    more = ". Make room and run the same command again: what was finished is kept"
    return f"{error.strerror or error}{more if error.errno in (errno.ENOSPC, errno.EDQUOT) else ''}"


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are where a power cut leaves them; as far as the system can."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_writable(path: Path) -> Path:
    """The path, where a file can be written: known before the work whose result goes there."""
    folder = next(p for p in path.absolute().parents if p.exists())
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        with tempfile.TemporaryFile(dir=folder):
            return path
    except OSError as error:
        raise RunError(f"{path} must be writable, but: {error.strerror or error}. Choose another place.") from error


def write_json(path: Path, data: Any) -> None:
    """Write JSON atomically; NaN is refused, since other readers of JSON would choke on it."""
    text = json.dumps(data, indent=1, allow_nan=False, ensure_ascii=False)
    with atomic(path) as tmp:
        tmp.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """Read a JSON file of a run, or say which file is damaged; a pipe in its place is not waited for."""
    if path.exists() and not path.is_file():
        raise RunError(f"{path} must be a file, but is something else. Remove it and run the same command again.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing: the run is incomplete. Run the same `sartor fit` command again.") from error
    except (ValueError, RecursionError, OSError) as error:
        raise RunError(f"{path} is damaged ({error}). Delete it and run the same command again.") from error


def read_file(path: Path, kind: type[T]) -> T:
    """A file of a run as the type that it holds (see `sartor.runs.schema`)."""
    return from_file(kind, read_json(path), path)


def sha256(path: Path) -> str:
    """The file's hash, read in pieces."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise RunError(f"{path} must be a readable file, but: {error.strerror}.") from error
    return digest.hexdigest()


def refuse_links(root: Path) -> None:
    """Stop at a link that leads out of the directory, and at what is no file: pipes and devices."""
    whole = root.resolve()
    for folder, folders, files in os.walk(root):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink() and not path.resolve().is_relative_to(whole):
                raise RunError(f"{path} is a link that leads out of the run directory. Put what it points to there.")
            if not path.is_dir() and path.exists() and not path.is_file():
                raise RunError(f"{path} must be a file or a folder, but is a pipe or a device. Remove it.")


def search_of(path: Path) -> Path:
    """The run whose search a folder belongs to: RUN for RUN/cuts/BUDGET, else itself."""
    whole = path.absolute()
    return whole.parent.parent if whole.parent.name == "cuts" and not (path / "config.toml").is_file() else path


class Run:
    """One run directory. Only the first process of a distributed run writes (`writer`)."""

    def __init__(
        self,
        path: Path,
        reporter: Reporter | None = None,
        writer: bool = True,
        agree: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self.path = path
        self.reporter = reporter or Reporter()
        self.writer = writer
        self.agree = agree  # the first process's value, in every process
        self.inside = ""  # where in another run it lies, with a slash at the end

    @classmethod
    def open(cls, path: str | Path, reporter: Reporter | None = None) -> Run:
        """An existing run directory, for reading."""
        run = cls(Path(path), reporter)
        if not run.path.is_dir():
            raise RunError(f"{run.path} must be a run directory made by `sartor fit`, but there is no such folder.")
        if not (run.path / "config.toml").is_file():
            raise RunError(f"{run.path} is not a run directory: it has no config.toml. Give the folder named by --out.")
        refuse_links(run.path)
        return run

    def sub(self, name: str) -> Run:
        """A directory inside this one with its own stages (another budget on the same search)."""
        made = Run(self.path / name, self.reporter, self.writer, self.agree)
        made.inside = f"{self.inside}{name}/"
        return made

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory; a second process that wants it is refused. A crash releases it."""
        if not self.writer:
            yield
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = _own(self.path / ".lock")
        except OSError as error:
            raise RunError(f"{self.path} must be a writable folder, but {_told(error)}.") from error
        with handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunError(
                    f"{self.path} is in use by another process. Wait for it or choose another --out."
                ) from error
            refuse_links(self.path)
            for path in [p for p in self.path.rglob(".*") if _LEFT.fullmatch(p.name) and p.is_file()]:
                path.unlink()  # of a process that was killed: nobody else writes here
            self.mend()
            yield

    # files -------------------------------------------------------------------------------------

    def write(self, name: str, data: Any) -> None:
        """Write JSON into the directory; a file that `sartor.runs.schema` knows must be of its type."""
        if self.writer:
            kind = FILES.get(name)
            known = data if kind is None else to_file(decode(kind, data, f"{name}: "))
            write_json(self.path / name, {"format": RunFile.FORMAT, **known} if isinstance(known, dict) else known)

    def read(self, name: str) -> Any:
        """Read JSON from the directory."""
        return read_json(self.path / name)

    def load(self, kind: type[F]) -> F:
        """A file of the directory, typed: ``run.load(ScoreFile)``."""
        return read_file(self.path / kind.NAME, kind)

    def save(self, value: Any, name: str | None = None) -> str:
        """Write a typed file, with the number of its format; what is no `RunFile` (a cost table) needs a `name`."""
        name = name or value.NAME
        if self.writer:
            write_json(self.path / name, to_file(value))
        return name

    def record(self, kind: type[RunFile], values: Mapping[str, Any]) -> str:
        """Write a typed file from its plain contents; what does not belong into it is refused here, not by readers."""
        return self.save(decode(kind, values, f"{kind.NAME}: "))

    # stages ------------------------------------------------------------------------------------

    def stages(self) -> dict[str, Stage]:
        """Every completed stage: its files' hashes, seconds and time of completion."""
        return self._listed(StagesFile.NAME) if (self.path / StagesFile.NAME).exists() else {}

    def _listed(self, name: str) -> dict[str, Stage]:
        path = self.path / name
        listed = dict(read_file(path, StagesFile).stages)
        outside = [n for s in listed.values() for n in s.files if Path(n).is_absolute() or ".." in Path(n).parts]
        if outside:
            raise RunError(f"{path} is damaged: {outside[0]} is no file of this directory. Restore it.")
        return listed

    def done(self, stage: str) -> bool:
        """Whether the stage is complete; its files are checked against their hashes."""
        entry = self.stages().get(stage)
        if entry is None:
            return False
        for name in WRITES.get(stage, ()):
            if name not in entry.files:
                raise RunError(
                    f"{self.path / StagesFile.NAME} must list {name} for '{stage}', but does not. Restore it."
                )
        for name, known in entry.files.items():
            path = self.path / name
            if not path.is_file():
                raise RunError(f"{path} is missing, though the stage '{stage}' wrote it. {_REDO.format(stage=stage)}")
            if sha256(path) != known:
                raise RunError(f"{path} has changed since the stage '{stage}' wrote it. {_REDO.format(stage=stage)}")
        return True

    def check(self) -> None:
        """Refuse a directory in which a listed file has changed, or a file of a stage is in no list."""
        stages = self.stages()
        for stage in stages:
            if stage != "report":  # made of the others, and made again
                self.done(stage)
        listed = {name for entry in stages.values() for name in entry.files}
        written = {name for names in WRITES.values() for name in names}
        tables = {p.relative_to(self.path).as_posix() for p in self.path.glob("costs/**/*.json")}
        for name in sorted((written | tables) - listed):
            if (self.path / name).exists():
                raise RunError(f"{self.path / name} is in no list of {StagesFile.NAME}. Run the same command again.")

    def intact(self, stage: str) -> bool:
        """Whether the stage is complete and its files are as it wrote them."""
        try:
            return self.done(stage)
        except RunError:
            return False

    def finish(self, stage: str, files: Sequence[str], seconds: float) -> None:
        """List the stage as complete, once its files are on the disk: a power cut must not leave a list of none."""
        if self.writer:
            hashes = {name: sha256(self.path / name) for name in files}
            for path in {self.path / name for name in files} | {(self.path / name).parent for name in files}:
                to_disk(path)
            stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._list(self.stages() | {stage: Stage(hashes, round(seconds, 3), stamp)})

    def forget(self, stages: Sequence[str]) -> None:
        """Take stages off the list, so that they run again (a corrected cost table outdates the solution)."""
        if self.writer:
            self._list({k: v for k, v in self.stages().items() if k not in stages})

    def _list(self, stages: Mapping[str, Stage]) -> None:
        """Write the list twice: it alone says what is complete, and a second copy mends it."""
        for name in (_COPY, StagesFile.NAME):
            self.save(StagesFile(stages), name)

    def mend(self) -> None:
        """A list that is damaged is made anew from its copy, as far as the files are those it names."""
        try:
            self.stages()
            return
        except RunError as error:
            damage = error
        try:
            listed = self._listed(_COPY)
        except RunError:
            raise damage from None
        sound: dict[str, Stage] = {}
        for name, entry in listed.items():
            paths = {self.path / file: known for file, known in entry.files.items()}
            if not all(path.is_file() and sha256(path) == known for path, known in paths.items()):
                break  # whatever came after was made of it
            sound[name] = entry
        self._list(sound)
        self.log(f"{StagesFile.NAME} was damaged and is mended: {', '.join(sound) or 'nothing'} complete")

    def stage(self, name: str, work: Callable[[], Sequence[str]], title: str) -> bool:
        """Do `work` (which returns the files it wrote) unless it is done already; whether it ran."""
        if self.agree(self.done(name) if self.writer else None):
            self.reporter.say(f"{title}: done before")
            return False
        self.reporter.say(title)
        start = time.monotonic()
        files = work()
        self.finish(name, files, time.monotonic() - start)
        return bool(self.agree(True))  # nobody goes on before the files are there

    def log(self, text: str) -> None:
        """A line in the run's log and for the person watching."""
        self.reporter.say(f"  {text}")
        if self.writer:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                with _own(self.path / "log.txt") as stream:
                    stream.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
            except OSError as error:
                raise RunError(f"{self.path}/log.txt must be writable, but {_told(error)}.") from error


def _own(path: Path) -> TextIO:
    """A file of the run to add to; a link in its place is refused, a pipe not waited for, and nothing cut off."""
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    return os.fdopen(os.open(path, flags, 0o666), "a", encoding="utf-8")


_REDO = "Restore it, or delete stages.json's entry '{stage}' and later ones to compute them again."


def cache_folder(kind: str) -> Path | None:
    """Where something is kept for the next run: below SARTOR_CACHE, nowhere if that is empty, else the user's cache."""
    given = os.environ.get("SARTOR_CACHE")
    if given is not None:
        return Path(given) / kind if given else None
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sartor" / kind
