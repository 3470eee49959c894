"""Several views of one image, over which a deployed network averages its logits: which ones there are."""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """What a view weighs, by how many pixels it is moved down and to the right, and whether it is mirrored."""

    weight: float
    moved: int
    mirrored: bool


# By how many there are. Six weigh the image and its mirror image as much as the four that are moved.
VIEWS: dict[int, tuple[View, ...]] = {
    1: (View(1.0, 0, False),),
    2: tuple(View(0.5, 0, mirrored) for mirrored in (False, True)),
    6: tuple(View(0.125 if by else 0.25, by, mirrored) for by in (0, 1, -1) for mirrored in (False, True)),
}
_EACH = {
    2: "the image and its mirror image",
    6: "the image as it is and moved by a pixel either way, each with its mirror image",
}


def each(count: int) -> str:
    """What the views are, in words."""
    return _EACH.get(count, "the image")


def told(count: int) -> str:
    """How many there are, and what they are."""
    return f"{count} of each image, averaged inside the network: {each(count)}"
