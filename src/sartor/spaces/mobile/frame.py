"""What the mobile space, its networks and its supernet all speak of: depths, configurations, and the frame around."""

from __future__ import annotations

from dataclasses import dataclass

from sartor.core.arch import Arch

DEPTHS = (2, 3, 4)
EXPANSIONS = (3, 4, 6)
KERNELS = (3, 5)
# Configuration c = 1..12 of the paper's table: expansion outer, kernel middle, SE inner.
CONFIGS = tuple((e, k, se) for e in EXPANSIONS for k in KERNELS for se in (False, True))


@dataclass(frozen=True, slots=True)
class Frame:
    """What is not searched: widths, strides, stem and head. Stages 1 and 2 use ReLU, the rest hard-swish."""

    stem: int
    stem_stride: int
    first: int
    widths: tuple[int, ...]
    strides: tuple[int, ...]
    head: int
    hidden: int
    skip: bool = False  # whether the stem's convolution is added to what follows it


def stages(arch: Arch) -> list[list[tuple[int, int, bool]]]:
    """The (expansion, kernel, SE) of every block that runs, stage by stage."""
    picks = arch.picks
    return [[CONFIGS[c] for c in picks[5 * s + 1 : 5 * s + 1 + DEPTHS[picks[5 * s]]]] for s in range(5)]
