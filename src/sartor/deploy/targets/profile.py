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

BOOKS = {"float32": "profile", "int8": "profile_int8"}  # where the file has the prices of each precision
_OF, _AND = {"float32": "", "int8": " with prices in int8"}, {"float32": "", "int8": " --precision int8"}


@final
@dataclass(frozen=True, kw_only=True)
class Profile(Target):
    """A device by its profile, FILE.json as `sartor measure --target ... --out FILE.json` writes it."""

    live: ClassVar[bool] = False

    path: str

    def prices(self, precision: str) -> Mapping[str, Any]:
        """The price book in the file."""
        try:
            found: Mapping[str, Any] = read_json(Path(self.path))[BOOKS[precision]]
            if not isinstance(found["identity"], dict):
                raise TypeError
        except (RunError, KeyError, TypeError) as error:
            what = "is none" if Path(self.path).is_file() else "there is no such file"
            raise BadInput(
                f"{self.path} must be a device profile{_OF[precision]}, but {what}. Make one while the device is "
                f"there: sartor measure --target ssh://user@host{_AND[precision]} --out {self.path}"
            ) from error
        return found

    def priced(self, precision: str) -> bool:
        """Whether the file has such prices."""
        try:
            return bool(self.prices(precision))
        except BadInput:
            return False

    def weight_bits(self, runtime: Runtime) -> int:
        """As it was measured with."""
        return int(self.prices("int8")["identity"]["weight_bits"]) if self.priced("int8") else 7

    def identity(self, runtime: Runtime) -> dict[str, Any]:
        """The device's, as it was then; what is asked of it must be what was measured."""
        known: dict[str, Any] = dict(self.prices(runtime.precision)["identity"])
        asked = {"device": runtime.device, "runtime": runtime.name, "threads": runtime.threads, "batch": runtime.batch}
        other = [f"{n} {known.get(n)}" for n, value in asked.items() if known.get(n) != value]
        if other:
            raise BadInput(f"{self.path} was measured with {', '.join(other)}: ask for that, or measure again.")
        return known

    @contextmanager
    def stopwatch(
        self, runtime: Runtime, builds: Mapping[str, Build], tick: Callable[[int, int], None] = unheard
    ) -> Iterator[Stopwatch]:
        """Refused: the device is not there."""
        raise BadInput(f"{self.path} is the profile of a device that is not there: nothing can be timed on it now.")
        yield


PLUGIN = Profile
