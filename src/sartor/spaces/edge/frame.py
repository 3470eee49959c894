"""What the edge space, its networks and its landmarks all speak of: frames, and the variants of blocks.

A frame is what all stages hang on: the side that images are brought to, the stride of the stem and the number of
stages. Inside one frame the shape of every map is known, so that a stage's price depends on its neighbours only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sartor.core.errors import BadInput

_LARGEST_MAP = 64  # pixels a side: no stage works on larger ones, however large the image
_LEAST_MAP = {3: 2, 4: 4}  # pixels a side that the last of so many stages must keep
_DETAILED = 32  # images up to this side lose too much where both their side and their stem shrink
DEPTHS = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Frame:
    """The side that images are brought to, the stem's stride, the number of stages."""

    side: int
    stride: int
    stages: int

    @property
    def name(self) -> str:
        """Such as ``r64_s2_x3``."""
        return f"r{self.side}_s{self.stride}_x{self.stages}"

    @property
    def maps(self) -> tuple[int, ...]:
        """The side of every stage's map; each stage but the first halves it."""
        return tuple(-(-self.side // (self.stride * 2**k)) for k in range(self.stages))

    @classmethod
    def read(cls, name: str) -> Frame:
        """The frame of that name."""
        found = re.fullmatch(r"r(\d+)_s([124])_x([34])", name)
        if found is None:
            raise BadInput(
                "a frame must be a side, the stem's stride (1, 2 or 4) and 3 or 4 stages, such as r64_s2_x3, "
                f"but got {name!r}."
            )
        return cls(*map(int, found.groups()))


def frames(image: int) -> tuple[Frame, ...]:
    """The frames for images of that side, those with the smallest maps first.

    Whole images with two strides of the stem, images of three quarters and of half the side; three or four stages.
    """
    fine = next((s for s in (1, 2) if image <= s * _LARGEST_MAP), 4)
    coarse = min(2 * fine, 4)
    sides = ((image, fine), (image, coarse), (3 * image // 4, fine if image <= _DETAILED else coarse),
             (image // 2, coarse))  # fmt: skip
    made = {Frame(side, stride, stages) for side, stride in sides for stages in _LEAST_MAP}
    return tuple(sorted((f for f in made if f.maps[-1] >= _LEAST_MAP[f.stages]), key=lambda f: (f.maps[0], f.stages)))


@dataclass(frozen=True, slots=True)
class Variant:
    """How a stage's blocks are built, whatever their width."""

    family: str  # res, group, fused, or mb: inverted residual
    kernel: int = 3
    expansion: int = 1
    se: bool = False

    @property
    def name(self) -> str:
        """Such as ``res`` or ``mb5_e6_se``."""
        word = f"mb{self.kernel}" if self.family == "mb" else self.family
        return word + (f"_e{self.expansion}" if self.expansion > 1 else "") + ("_se" if self.se else "")


_SMALL, _USUAL = Variant("mb", 3, 3), Variant("mb", 3, 6)
_WIDE, _GROUP, _RES = Variant("mb", 5, 6), Variant("group"), Variant("res")
# Large maps can pay for dense convolutions inside an expansion, late ones for large kernels. The heaviest comes last.
_EARLY = (_SMALL, _USUAL, Variant("mb", 5, 3, True), _WIDE, _GROUP, _RES, Variant("fused", 3, 3))
_LATE = (_SMALL, _USUAL, Variant("mb", 7, 3), _WIDE, Variant("mb", 5, 6, True), _GROUP, _RES)
VARIANTS = (_EARLY, _EARLY, _LATE, _LATE)  # by stage


@dataclass(frozen=True, slots=True)
class Block:
    """A variant of a width: one option of a stage."""

    variant: Variant
    width: int

    @property
    def name(self) -> str:
        """Such as ``res_w16``."""
        return f"{self.variant.name}_w{self.width}"


def blocks(stage: int, widths: tuple[int, ...]) -> Iterator[Block]:
    """The options of a stage (counted from 0), for the first stage's widths; every stage doubles them."""
    for width in widths:
        yield from (Block(variant, width * 2**stage) for variant in VARIANTS[stage])
