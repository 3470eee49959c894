"""A device that is not there: by what was measured on it before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

from sartor.core.errors import BadInput, RunError
from sartor.deploy.targets.base import Build, Target, unheard
from sartor.deploy.timing import Stopwatch
from sartor.runs.directory import read_json

if TYPE_CHECKING:
    from sartor.deploy.runtimes.base import Runtime


@final
@dataclass(frozen=True, kw_only=True)
class Profile(Target):
    """A device by its profile, FILE.json as `sartor measure --target ... --out FILE.json` writes it."""

    live: ClassVar[bool] = False

    path: str

    def kept(self) -> Mapping[str, Any]:
        """The prices in the file."""
        try:
            found = read_json(Path(self.path))
            book: Mapping[str, Any] = found["profile"]
            if not isinstance(book["identity"], dict):
                raise TypeError
        except (RunError, KeyError, TypeError) as error:
            raise BadInput(
                f"{self.path} must be a device profile, but is none. Make one while the device is there: "
                f"sartor measure --target ssh://user@host --out {self.path}"
            ) from error
        return book

    def identity(self, runtime: Runtime) -> dict[str, Any]:
        """The device's, as it was then; what is asked of it must be what was measured."""
        known: dict[str, Any] = dict(self.kept()["identity"])
        asked = {"device": runtime.device, "runtime": runtime.name, "threads": runtime.threads, "batch": runtime.batch}
        other = [f"{n} {known.get(n)}" for n, value in asked.items() if known.get(n) != value]
        if other:
            raise BadInput(f"{self.path} was measured with {', '.join(other)}: ask for that, or measure again.")
        return known

    @contextmanager
    def stopwatch(
        self, runtime: Runtime, builds: Mapping[str, Build], tick: Callable[[int, int], None] = unheard
    ) -> Iterator[Stopwatch]:
        """Nothing can be timed."""
        raise BadInput(f"{self.path} is the profile of a device that is not there: nothing can be timed on it now.")
        yield


PLUGIN = Profile
