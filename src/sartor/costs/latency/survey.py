"""The parts of a space as they are priced: which of them are timed, and what price books know them by."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from sartor.core.quadratic import Quadratic
from sartor.core.task import Task
from sartor.core.units import TIME
from sartor.costs.base import CostTable, Price, built, priced
from sartor.costs.latency.cache import PriceBook
from sartor.costs.latency.calibration import Fit
from sartor.costs.latency.model import Model, Traits, designed
from sartor.spaces.base import Part, Space

if TYPE_CHECKING:
    from sartor.costs.layers import Count

Settings = tuple[
    int, int, int, int
]  # networks, seed, rounds, sample: what a fit of a whole table depends on beside its space


@dataclass(frozen=True, eq=False)
class Survey:
    """A space's parts, each with its counts, and with its name in price books.

    A book serves all spaces, and a key is one module in its own space only: a name also says which.
    """

    space: Space
    task: Task
    parts: Sequence[Part]
    each: Mapping[str, Part]
    names: Mapping[str, str]
    counts: Mapping[str, Count]
    traits: Mapping[str, Traits]  # of the parts that belong to a kind

    @classmethod
    def of(cls, space: Space, task: Task) -> Survey:
        """Every part is built without memory and counted."""
        from sartor.costs.layers import count

        parts, made = built(space, task)
        names, counts = {}, {}
        for key, (part, module) in made.items():
            names[key] = f"{type(space).__module__} {key} {_digest(repr(module))}"
            counts[key] = count(module, part.in_shape)
        each = {key: part for key, (part, _) in made.items()}
        traits = {k: Traits.of(p, counts[k]) for k, p in each.items() if p.kind}
        return cls(space, task, parts, each, names, counts, traits)

    def timed(self, sample: int) -> dict[str, Part]:
        """The parts that are timed: all without a kind, and about so many of the others."""
        alone = [key for key in self.each if key not in self.traits]
        return {key: self.each[key] for key in [*alone, *designed(self.traits, sample)]}

    def subject(self, settings: Settings) -> str:
        """Under which a price book keeps the fit of the whole table."""
        return json.dumps([*self._about(), *settings, _digest("".join(self.names.values()))])

    def _about(self) -> list[Any]:
        return [repr(self.space), list(dataclasses.astuple(self.task))]

    def settings(self, book: PriceBook) -> list[Settings]:
        """Those with which the book has this table, the most thorough first."""
        what, found = _digest("".join(self.names.values())), list[Settings]()
        for subject in book.fits:
            with suppress(ValueError, TypeError):  # a file that somebody changed
                *about, networks, seed, rounds, sample, digest = json.loads(subject)
                if about == self._about() and digest == what:
                    found.append((int(networks), int(seed), int(rounds), int(sample)))
        return sorted(found, key=lambda s: (s[2] * s[3], s[0]), reverse=True)

    def missing(self, book: PriceBook, rounds: int, sample: int) -> dict[str, Part]:
        """The parts that are timed and that the book does not have, measured with as many rounds."""
        wanted = self.timed(sample).items()
        return {key: part for key, part in wanted if book.known(self.names[key], rounds) is None}

    def prices(self, book: PriceBook, sample: int) -> tuple[dict[str, Price], float | None]:
        """The prices of all parts from those that were timed; the median error of one that the others would give."""
        timed = {key: book.prices[self.names[key]][0] for key in self.timed(sample)}
        others = [key for key in self.traits if key not in timed]
        if not others:
            return timed, None
        like = [key for key in timed if key in self.traits]
        model = Model([self.traits[k] for k in like], [timed[k].value for k in like])
        made = dict(zip(others, model.prices([self.traits[k] for k in others]), strict=True))
        return {**timed, **made}, float(np.median(model.errors))

    def form(self, prices: Mapping[str, Price]) -> Quadratic:
        """The sum of a network's parts."""
        return priced(self.space, self.parts, prices)

    def table(self, prices: Mapping[str, Price], line: Fit, identity: Mapping[str, Any], notes: Any) -> CostTable:
        """Prices as they count inside a network: ``form = intercept + sum of prices``."""
        scaled = {k: (p - line.overhead) * line.scale for k, p in prices.items()}
        form = self.form(scaled) + Quadratic(self.space.sizes, line.intercept)
        return CostTable("latency", TIME, scaled, form, dict(identity), dict(notes))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
