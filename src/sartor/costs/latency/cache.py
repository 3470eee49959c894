"""What was measured, kept on disk: prices, so that the same part is not timed twice on the same device, and the rounds
of a sitting, so that a killed one goes on from there. A disk that cannot keep them ends nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sartor.core.errors import RunError
from sartor.costs.base import Price
from sartor.runs.directory import write_json

_FORMAT = 1
_SAVE_EVERY = 0.5  # seconds


@dataclass
class PriceBook:
    """The prices of one device identity; `reference_ms` is the machine's speed that they refer to.

    A damaged or foreign file counts as empty: what it held can be measured again.
    """

    path: Path | None
    identity: Mapping[str, Any]
    reference_ms: float | None = None
    prices: dict[str, tuple[Price, int]] = field(default_factory=dict)  # with the number of rounds behind it
    fits: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path | None, identity: Mapping[str, Any]) -> PriceBook:
        """The book of `identity` in `folder`, empty where there is none."""
        if folder is None:
            return cls(None, identity)
        book = cls(Path(folder) / f"latency-{_digest(identity)}.json", identity)
        assert book.path is not None
        try:
            data = json.loads(book.path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return book
        return replace(cls.of(data, identity), path=book.path)

    @classmethod
    def of(cls, data: Any, identity: Mapping[str, Any]) -> PriceBook:
        """Read what `to_json` wrote of this identity."""
        book = cls(None, identity)
        try:
            if data["format"] != _FORMAT or data["identity"] != dict(identity):
                return book
            prices = {str(k): (Price(*map(float, v[:3])), int(v[3])) for k, v in data["prices"].items()}
            reference, fits = float(data["reference_ms"]), dict(data["fits"])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return book
        numbers = [reference, *(n for p, _ in prices.values() for n in (p.value, p.low, p.high))]
        if reference > 0 and all(math.isfinite(n) and n >= 0 for n in numbers):
            book.reference_ms, book.prices, book.fits = reference, prices, fits
        return book

    def known(self, key: str, rounds: int) -> Price | None:
        """The price of a part, if it was measured with at least `rounds` rounds."""
        price, behind = self.prices.get(key, (None, 0))
        return price if behind >= rounds else None

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        rows = {k: [p.value, p.low, p.high, rounds] for k, (p, rounds) in sorted(self.prices.items())}
        return {
            "format": _FORMAT, "identity": dict(self.identity), "unit": "ms", "reference_ms": self.reference_ms,
            "prices": rows, "fits": self.fits,
        }  # fmt: skip

    def save(self) -> None:
        """Write the book whole or not at all."""
        if self.path is not None:
            with suppress(RunError):
                write_json(self.path, self.to_json())


@dataclass
class Sitting:
    """Milliseconds of every visit so far, of a table that is being measured."""

    path: Path | None
    medians: dict[str, list[float]] = field(default_factory=dict)
    saved: float = field(default_factory=time.monotonic)

    @classmethod
    def open(cls, folder: Path | None, identity: Mapping[str, Any], subject: str, names: Iterable[str]) -> Sitting:
        """What a killed attempt at the same table left for the workloads `names`; damaged, it counts as nothing."""
        if folder is None:
            return cls(None)
        sitting = cls(Path(folder) / f"sitting-{_digest([dict(identity), subject])}.json")
        assert sitting.path is not None
        with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            data = json.loads(sitting.path.read_text(encoding="utf-8"))
            known = {name: [float(v) for v in data[name]] for name in names if name in data}
            if all(math.isfinite(v) and v >= 0 for values in known.values() for v in values):
                sitting.medians = known
        return sitting

    def keep(self) -> None:
        """After a visit: write them down now and then."""
        if self.path is not None and time.monotonic() - self.saved > _SAVE_EVERY:
            with suppress(RunError):
                write_json(self.path, self.medians)
            self.saved = time.monotonic()

    def end(self) -> None:
        """The table is complete."""
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)


def _digest(what: Any) -> str:
    content = dict(what) if isinstance(what, Mapping) else what
    return hashlib.sha256(json.dumps([_FORMAT, content], sort_keys=True).encode()).hexdigest()[:16]
