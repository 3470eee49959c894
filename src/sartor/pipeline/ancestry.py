"""Which images weights have been trained on: every run keeps it, and a run that starts from another one asks.

Images are compared by their prints (`sartor.data.alike`), which find an image again in another folder or at another
side. A run's prints hold those of the run that it started from, and so on back.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from sartor.core.config import read_toml
from sartor.core.errors import BadInput, RunError
from sartor.data.alike import Prints, alike
from sartor.data.base import Images, Index
from sartor.engine import checkpoint
from sartor.engine.origin import Origin
from sartor.engine.seeding import seeded
from sartor.pipeline.context import Context, Search
from sartor.runs.directory import search_of
from sartor.runs.schema import OriginFile

SEEN = "seen.safetensors"
_NETWORKS = 8  # drawn from the space to see how much of the weights its networks can take


@dataclass(frozen=True)
class Seen:
    """Prints of images that weights were trained on; `complete` where these are all."""

    prints: Prints
    side: int  # pixels of the smallest of them
    complete: bool

    @classmethod
    def none(cls) -> Seen:
        """Of weights of which nothing is known."""
        empty = (np.zeros(0, np.uint64), np.zeros((0, 63), np.float32), np.zeros(0, bool), np.zeros(0, bool))
        return cls(Prints(*empty), 1 << 20, False)

    @classmethod
    def load(cls, file: Path) -> Seen:
        """As `save` wrote it."""
        held = checkpoint.load(file)
        try:
            prints = Prints.unpacked({name: tensor.numpy() for name, tensor in held["prints"].items()})
            return cls(prints, int(held["side"]), bool(held["complete"]))
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise RunError(f"{file} is damaged ({error!r}). Restore it.") from error

    def save(self, file: Path) -> None:
        """Whole or not at all."""
        tensors = {n: torch.from_numpy(np.ascontiguousarray(a)) for n, a in self.prints.packed().items()}
        checkpoint.save(file, {"prints": tensors, "side": self.side, "complete": self.complete})

    def within(self, prints: Prints, side: int) -> Index:
        """Which of other images equal, or nearly, one of these."""
        count = len(self.prints.exact)
        again = Prints.unpacked(prints.packed())  # rounded as these are
        groups = alike(Prints.joined([self.prints, again]), min(side, self.side)).near
        return np.flatnonzero(groups[count:] < count)


def record(c: Context) -> list[str]:
    """Keep which images this run trains on, and, where it starts from elsewhere, what is known of that."""
    origin = c.origin if isinstance(c, Search) else None
    prints, side = c.images.prints(), _smallest(c.images)
    before = Seen.none() if origin is None else _seen_by(origin, c.images, prints)
    mine = prints.of_rows(np.union1d(c.splits.train, c.splits.val))
    files = [SEEN]
    if origin is not None:
        files.append(c.run.save(_compared(c, origin, before, prints, side)))
    if c.run.writer:
        # What a compression is given was trained before, on images that nobody tells of.
        complete = before.complete if origin is not None else isinstance(c, Search)
        Seen(Prints.joined([before.prints, mine]), min(side, before.side), complete).save(c.run.path / SEEN)
    return files


def _smallest(images: Images) -> int:
    return min(images.task.image, images.native or images.task.image)


def _seen_by(origin: Origin, images: Images, prints: Prints) -> Seen:
    """What the weights were trained on: as their run kept it, or of an older run by its splits of the same images."""
    if not origin.is_run:
        return Seen.none()
    base = search_of(Path(origin.path))
    if (base / SEEN).is_file():
        return Seen.load(base / SEEN)
    splits = origin.splits
    if splits is None or splits.digest != images.digest():
        return Seen.none()
    rows = np.array([*splits.train, *splits.val], np.int64)
    alone = not {"start", "kind"} & {k for k, v in read_toml(base / "config.toml").items() if v is not None}
    return Seen(prints.of_rows(rows[rows < len(images)]), _smallest(images), alone)


def _compared(c: Context, origin: Origin, before: Seen, prints: Prints, side: int) -> OriginFile:
    """The images of this run that the weights were trained on; the log says how many."""
    found = {}
    for name, index in (("test", c.splits.test), ("val", c.splits.val)):
        found[name] = tuple(index[before.within(prints.of_rows(index), side)].tolist())
    known = OriginFile(
        origin.path,
        origin.identity(),
        origin.splits.name if origin.splits else None,
        before.complete,
        found["test"],
        found["val"],
    )
    if known.test:
        least = "" if known.complete else "at least "
        c.run.log(
            f"WARNING: {origin.path} was trained on {least}{len(known.test)} of the {len(c.splits.test)} test images "
            f"(the same, or nearly): the test accuracy may be too high. Start from a run that has not seen them"
        )
    elif not known.complete:
        c.run.log(f"which images {origin.path} was trained on is not known: perhaps on some of the test images")
    return known


def same_origin(c: Search) -> None:
    """Refuse to go on with other weights than the run began with."""
    path = c.run.path / OriginFile.NAME
    if c.origin is not None and path.is_file() and c.run.load(OriginFile).weights != c.origin.identity():
        raise RunError(
            f"--start {c.origin.path} holds other weights than when {c.run.path} was begun. Restore them, or choose "
            "another --out."
        )


def offer(c: Search) -> None:
    """Tell how much of the weights the space's networks can take; refuse weights of which none can take any."""
    if c.origin is None:
        return
    rng = c.seeds.rng("origin")
    known = [arch for told in c.origin.told for arch in c.space.alike(told)]
    drawn = [c.space.heaviest, *(c.space.sample(rng) for _ in range(_NETWORKS))]
    taken = []
    for arch in [*known[:1], *drawn]:
        with seeded(c.seeds.number("origin")):
            taken.append(c.origin.into(c.space.network(arch, c.task), c.task.classes))
    shares = sorted(t.share for t in taken)
    if not shares[-1]:
        names = ", ".join(list(next(iter(c.origin.networks.values())))[:3])
        raise BadInput(
            f"--start {c.origin.path} must hold weights that networks of this space have a place for, but none of "
            f"{len(taken)} networks tried takes any (its tensors are called {names}, ...). Choose another --start, or "
            "the space that it is of."
        )
    low, high = (f"{100 * share:.0f}" for share in (shares[0], shares[-1]))
    c.run.log(f"networks of this space begin with {low} to {high} % of their weights from {c.origin.path}")
