"""Measured prices kept on disk, so that the same part is not timed twice on the same device."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sartor.costs.base import Price
from sartor.runs.directory import write_json

_FORMAT = 1


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
        digest = hashlib.sha256(json.dumps([_FORMAT, dict(identity)], sort_keys=True).encode()).hexdigest()
        book = cls(Path(folder) / f"latency-{digest[:16]}.json", identity)
        assert book.path is not None
        try:
            data = json.loads(book.path.read_text(encoding="utf-8"))
            if data["format"] != _FORMAT or data["identity"] != dict(identity):
                return book
            prices = {str(k): (Price(*map(float, v[:3])), int(v[3])) for k, v in data["prices"].items()}
            reference, fits = float(data["reference_ms"]), dict(data["fits"])
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return book
        numbers = [reference, *(n for p, _ in prices.values() for n in (p.value, p.low, p.high))]
        if reference > 0 and all(math.isfinite(n) and n >= 0 for n in numbers):
            book.reference_ms, book.prices, book.fits = reference, prices, fits
        return book

    def known(self, key: str, rounds: int) -> Price | None:
        """The price of a part, if it was measured with at least `rounds` rounds."""
        price, behind = self.prices.get(key, (None, 0))
        return price if behind >= rounds else None

    def save(self) -> None:
        """Write the book whole or not at all."""
        if self.path is None:
            return
        rows = {k: [p.value, p.low, p.high, rounds] for k, (p, rounds) in sorted(self.prices.items())}
        data = {
            "format": _FORMAT, "identity": dict(self.identity), "unit": "ms", "reference_ms": self.reference_ms,
            "prices": rows, "fits": self.fits,
        }  # fmt: skip
        write_json(self.path, data)
