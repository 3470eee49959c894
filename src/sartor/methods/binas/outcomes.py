"""What became of images on random paths, one entry per path, ready for the predictors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sartor.core.quadratic import Array
from sartor.data.base import Index
from sartor.methods.binas.tally import Tally
from sartor.spaces.base import Picks

PathsAt = Callable[[int, int, int], Picks]  # (row, first image, images) -> a random path for each of them


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Paths, the validation image of each, whether it was right and its log-likelihood (in percent), its weight."""

    picks: Picks
    images: Index
    right: Array
    likelihood: Array
    weights: Array  # of mean one

    @classmethod
    def of(cls, tally: Tally, paths_at: PathsAt, counts: Array | None = None) -> Outcomes:
        """What a tally saw on the paths that `paths_at` gave; `counts` weighs the images."""
        rows, images = tally.right.shape
        starts = range(0, images, tally.per_forward)
        paths = [paths_at(row, s, min(tally.per_forward, images - s)) for row in range(rows) for s in starts]
        ids = (np.tile(np.arange(images), rows) if tally.places is None else tally.places.reshape(-1)).astype(np.int64)
        weights = np.ones(len(ids)) if counts is None else counts[ids] / float(counts[ids].mean())
        right = 100.0 * tally.right.reshape(-1).astype(np.float64)
        return cls(np.concatenate(paths), ids, right, 100.0 * tally.likelihood.reshape(-1), weights)

    def join(self, other: Outcomes, mine: float, theirs: float) -> Outcomes:
        """Both; all weights of one to all of the other as `mine` to `theirs`."""
        size, factors = len(self.right) + len(other.right), (mine / (mine + theirs), theirs / (mine + theirs))
        shares = [p.weights * (f * size / len(p.right)) for p, f in zip((self, other), factors, strict=True)]
        return Outcomes(
            np.concatenate([self.picks, other.picks]),
            np.concatenate([self.images, other.images]),
            np.concatenate([self.right, other.right]),
            np.concatenate([self.likelihood, other.likelihood]),
            np.concatenate(shares),
        )
