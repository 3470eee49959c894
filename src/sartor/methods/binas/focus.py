"""Which validation images to look at again: those that paths disagree about.

Most images are right on every path, or wrong on every path, and tell nothing about decisions. With v_i the variance of
right or wrong over the paths of image i, a mean over images is measured best for its cost when image i is looked at in
proportion to ``sqrt(v_i)`` (Neyman's allocation) and counted in inverse proportion. A first part of the validation
epochs sees all images and estimates v_i; it alone decides what the rest sees, so that both parts are without bias.
"""

from __future__ import annotations

import numpy as np

from sartor.core.quadratic import Array
from sartor.data.base import Index

_DOUBT = 0.3  # outcomes of either kind that every image is credited with: none is ever certain


def chances(right: Array, size: int) -> Array:
    """The chance of every image to be among `size`, from the outcomes (passes, images) of the first part."""
    passes, images = right.shape
    count = right.sum(0)
    wanted = np.sqrt((count + _DOUBT) * (passes - count + _DOUBT))
    sure = np.zeros(images, bool)
    while True:  # nothing is more likely than certain: what is beyond goes to the others
        left = size - sure.sum()
        chance = np.where(sure, 1.0, wanted * left / wanted[~sure].sum() if left > 0 else 0.0)
        beyond = (chance > 1.0) & ~sure
        if not beyond.any():
            return chance
        sure |= beyond


def draw_images(chance: Array, rng: np.random.Generator) -> Index:
    """As many images as the chances sum to, each with its own (systematic sampling in random order), sorted."""
    order = rng.permutation(len(chance))
    ends = np.cumsum(chance[order])
    size = round(float(ends[-1]))
    places = np.searchsorted(ends * (size / ends[-1]), rng.random() + np.arange(size), side="right")
    return np.sort(order[np.minimum(places, len(order) - 1)])


def gain(right: Array, chance: Array) -> float:
    """How many epochs of all images one epoch's worth of chosen images stands for, by the first part's outcomes."""
    mean = (right.sum(0) + _DOUBT) / (len(right) + 2 * _DOUBT)
    variance = mean * (1 - mean)
    return float(variance.mean() / (variance / chance).mean() / chance.mean())
