"""Another machine over SSH.

A stopwatch there is a connection to the measuring program (`link`, `probe`). It holds what was built: after a cut
connection a new one gets the models again, and the round is asked for again, since the other side keeps nothing. Every
round visits the reference network first, last and in between; a round in which that changed its speed, or the processor
was slowed down, is rejected and made again.
"""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self, final
from urllib.parse import parse_qs, urlsplit

from sartor.core.errors import BadInput, SartorError
from sartor.deploy.targets.base import Build, Target, unheard
from sartor.deploy.targets.link import Cut, Link
from sartor.deploy.timing import Stopwatch

if TYPE_CHECKING:
    from sartor.deploy.runtimes.base import Runtime

_EVERY = 32  # visits between two of the reference
_LOOK = 0.002  # seconds of such a visit
_DRIFT = 1.25  # the reference's slowest visit over its fastest, in a round that counts
_REPEATS = 2  # how often a round is made again; then the calmest one counts
_PAUSES = (1.0, 3.0, 10.0, 30.0)  # seconds before each new connection after one that was cut
_ANSWER = 120.0  # seconds that an answer may take longer than what was asked
_BATCH = 32, 2**20  # models and bytes that go over together
_SLOWEST = 4096.0  # bytes a second of the slowest link
_REFERENCE = "reference"


@final
@dataclass(frozen=True, kw_only=True)
class Ssh(Target):
    """A machine over SSH: ssh://user@host:port?cores=2,3&python=/path, each but the host may be left out."""

    host: str
    user: str = ""
    port: int | None = None
    python: str = "python3"
    cores: tuple[int, ...] = ()  # the network's, on that machine; the fastest where none are named

    @classmethod
    def at(cls, address: str) -> Self:
        """Read an address; what could be taken for an option or a command of the shell is none."""
        try:
            url = urlsplit(address)
            more = {name: values[-1] for name, values in parse_qs(url.query, strict_parsing=bool(url.query)).items()}
            cores = tuple(int(c) for c in more.pop("cores", "").split(",") if c)
            python, port, host, user = more.pop("python", "python3"), url.port, url.hostname or "", url.username or ""
        except ValueError:
            host, more = "", {}
        fine = re.fullmatch(r"[\w:][\w.:%-]*", host) and re.fullmatch(r"([\w][\w.-]*)?", user) and not more
        if not fine or url.path not in ("", "/") or url.password or not re.fullmatch(r"[\w.~/+-]*python[\d.]*", python):
            raise BadInput(
                "a target over SSH must be ssh://user@host:port?cores=2,3&python=/path/to/python3, where all but the "
                f"host may be left out, but is {address!r}."
            )
        return cls(host=host, user=user, port=port, python=python, cores=cores)

    def __str__(self) -> str:
        more = [f"python={self.python}"] * (self.python != "python3")
        more += [f"cores={','.join(map(str, self.cores))}"] * bool(self.cores)
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        return f"ssh://{self.user + '@' if self.user else ''}{host}{port}{'?' if more else ''}{'&'.join(more)}"

    def link(self, runtime: Runtime) -> tuple[Link, dict[str, Any]]:
        """A new connection, and what the machine said of itself."""
        place = f"{self.user}@{self.host}" if self.user else self.host
        link = Link(str(self), [*(["-p", str(self.port)] if self.port else []), "--", place], self.python)
        try:
            link.ask({"open": {"threads": runtime.threads, "batch": runtime.batch, "cores": list(self.cores)}})
            facts = link.answer("machine", _ANSWER)
            if not isinstance(facts, dict) or any(type(facts.get(k)) is not kind for k, kind in _FACTS.items()):
                raise link.garbage(str(facts).encode())
        except BaseException:
            link.close()
            raise
        return link, {k: facts[k] for k in _FACTS}

    def identity(self, runtime: Runtime) -> dict[str, Any]:
        """As the machine itself says; it is asked once."""
        known = {k: v for k, v in _facts_of(self, runtime).items() if k != "weight_bits"}
        return {"device": runtime.device, **known}

    def weight_bits(self, runtime: Runtime) -> int:
        """As the machine itself says."""
        return int(_facts_of(self, runtime)["weight_bits"])

    @contextmanager
    def stopwatch(
        self, runtime: Runtime, builds: Mapping[str, Build], tick: Callable[[int, int], None] = unheard
    ) -> Iterator[Stopwatch]:
        """Over there."""
        watch = OverSsh(self, runtime, builds, tick)
        try:
            yield watch
        finally:
            watch.close()


_FACTS = {"processor": str, "cores": int, "platform": str, "runtime_version": str, "pinned": str, "weight_bits": int}


def _first_link(target: Ssh, runtime: Runtime) -> tuple[Link, dict[str, Any]]:
    """The first connection: a machine that cannot be used is refused at once."""
    try:
        return target.link(runtime)
    except Cut as error:
        raise BadInput(f"{target} must be reachable, but is not: {error}. Nothing is lost.") from error


@cache
def _facts_of(target: Ssh, runtime: Runtime) -> Mapping[str, Any]:
    link, facts = _first_link(target, runtime)
    link.close()
    return facts


class OverSsh(Stopwatch):
    """Times networks on a machine over SSH."""

    def __init__(
        self, target: Ssh, runtime: Runtime, builds: Mapping[str, Build], tick: Callable[[int, int], None]
    ) -> None:
        super().__init__()
        self.target, self.runtime, self.builds, self.tick = target, runtime, builds, tick
        self.link: Link | None
        self.link, self.facts = _first_link(target, runtime)
        self.made: dict[str, bytes] = {}
        self.sent: set[str] = set()
        self.rejected = 0

    def close(self) -> None:
        """End the connection."""
        if self.link is not None:
            self.link.close()
        self.link, self.sent = None, set()

    def visits(self, names: Sequence[str], seconds: float) -> Iterator[tuple[str, list[float]]]:
        """One round, whole, in which the machine kept its speed."""
        rounds: list[tuple[float, list[tuple[str, list[float]]]]] = []
        while names and (not rounds or (len(rounds) <= _REPEATS and rounds[-1][0] > _DRIFT)):
            rounds.append(self._round(names, seconds))
        self.rejected += max(0, len(rounds) - 1)
        yield from min(rounds, key=lambda r: r[0])[1] if rounds else ()

    def conditions(self) -> dict[str, Any]:
        """With the rounds that were rejected."""
        return {"target": str(self.target), "rejected_rounds": self.rejected, **super().conditions()}

    def _round(self, names: Sequence[str], seconds: float) -> tuple[float, list[tuple[str, list[float]]]]:
        """How much the reference drifted, and the visits; over as many connections as it takes."""
        for pause in (*_PAUSES, None):
            try:
                return self._asked(self._sent([_REFERENCE, *names]), names, seconds)
            except Cut as error:
                self.close()
                if pause is None:
                    raise SartorError(
                        f"{self.target} is gone: {error}. What was measured is kept: run the same command again when "
                        "it is back."
                    ) from error
            time.sleep(pause)
        raise AssertionError

    def _sent(self, names: Sequence[str]) -> Link:
        """A connection whose other side has these models; they go in batches."""
        if self.link is None:
            self.link, facts = self.target.link(self.runtime)
            if facts != self.facts:
                raise SartorError(
                    f"{self.target} is another machine now: {facts}, not {_facts_of(self.target, self.runtime)}."
                )
        missing = [n for n in dict.fromkeys(names) if n not in self.sent]
        while missing:
            batch = [missing.pop(0)]
            while missing and len(batch) < _BATCH[0] and sum(len(self._model(n)) for n in batch) < _BATCH[1]:
                batch.append(missing.pop(0))
            models = [self._model(n) for n in batch]
            rows = [[n, list(self.builds[n][1]), len(m)] for n, m in zip(batch, models, strict=True)]
            self.link.ask({"load": rows}, b"".join(models))
            self.link.answer("loaded", _ANSWER + sum(map(len, models)) / _SLOWEST)
            self.sent.update(batch)
        return self.link

    def _model(self, name: str) -> bytes:
        if name not in self.made:
            build, shape = self.builds[name]
            self.made[name] = self.runtime.portable(build(), shape)
            self.tick(len(self.made), len(self.builds))
        return self.made[name]

    def _asked(self, link: Link, names: Sequence[str], seconds: float) -> tuple[float, list[tuple[str, list[float]]]]:
        plan: list[tuple[str, float, bool]] = []  # whether it is a look at the machine's speed
        for i, name in enumerate(names):
            plan += [(_REFERENCE, min(seconds, _LOOK), True)] * (i % _EVERY == 0) + [(name, seconds, False)]
        plan.append((_REFERENCE, min(seconds, _LOOK), True))
        link.ask({"visit": [[name, wanted] for name, wanted, _ in plan]})
        found, paces = [], []
        for name, wanted, look in plan:
            calls = link.answer("ms", _ANSWER + wanted)
            if not isinstance(calls, list) or not calls or not all(map(_is_time, calls)):
                raise link.garbage(str(calls).encode())
            if look:
                paces.append(statistics.median(calls))
            else:
                found.append((name, calls))
        told = link.answer("state", _ANSWER)
        if not isinstance(told, list) or len(told) != 2 or not all(isinstance(state, dict) for state in told):
            raise link.garbage(str(told).encode())
        states = [{k: float(v) for k, v in state.items() if _is_time(v)} for state in told]
        self.states += states
        return _drift(paces, *states), found


def _drift(paces: list[float], before: dict[str, float], after: dict[str, float]) -> float:
    """How much a machine's speed changed in a round; infinite where it says that it was slowed down meanwhile."""
    slowed = after.get("throttled", 0.0) > before.get("throttled", 0.0) or before.get("slowed") or after.get("slowed")
    return math.inf if slowed else max(paces) / max(min(paces), 1e-6)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


PLUGIN = Ssh
