"""Known networks that are points of the edge space: ResNets, and networks like four families of mobile ones.

ResNets are exactly those of the space `plain`, under the same names below 96 pixels; beside them stand ResNets whose
late stages are wider than twice the one before. The others have their family's blocks and proportions at the space's
widths.
"""

from __future__ import annotations

from collections.abc import Sequence

from sartor.core.arch import Arch, Choice, from_names
from sartor.spaces.edge.frame import Frame

# Of every stage: its blocks and their number. A frame of three stages takes the first three.
_FAMILIES = {
    "mobilenetv2": (("mb3_e6", 2), ("mb3_e6", 3), ("mb3_e6", 4), ("mb3_e6", 3)),
    "mobilenetv3": (("mb3_e3", 2), ("mb5_e3_se", 3), ("mb3_e6", 4), ("mb5_e6_se", 3)),
    "efficientnetlite": (("mb3_e6", 2), ("mb5_e6", 2), ("mb3_e6", 3), ("mb5_e6", 4)),
    "regnet": (("group", 1), ("group", 2), ("group", 4), ("group", 5)),
}
_LAYERS = (8, 14, 20, 26, 32)
# Of every stage, by how many of the space's widths it is wider than usual. Late maps are small: width there is cheap.
# Trained for as long, one seed, a ResNet-8 gained one point from a wide third stage and two from both.
_WIDENED = {"latewidth": (0, 0, 1), "widening": (0, 1, 1)}
_SHALLOW = 14


def landmarks(choices: Sequence[Choice], layout: Sequence[Frame], widths: Sequence[int], image: int) -> dict[str, Arch]:
    """Every known network by name, such as ``resnet20-w16-s1`` (width and stride of the stem)."""
    found = {}
    whole = [f for f in layout if f.side == image]
    heads = choices[-1].options
    for frame in whole:
        deepest = max(f.stages for f in whole if f.stride == frame.stride)
        for n, width in enumerate(widths):
            end = f"w{width}-s{frame.stride}"
            if frame.stages == 3:
                for layers in _LAYERS:
                    blocks = ("res", (layers - 2) // 6)
                    found[f"resnet{layers}-{end}"] = _arch(choices, frame, [width] * 4, [blocks] * 3, heads[0])
                    for family, wider in _WIDENED.items() if layers <= _SHALLOW and n + 1 < len(widths) else ():
                        each = [width, *(widths[n + more] for more in wider)]
                        found[f"{family}{layers}-{end}"] = _arch(choices, frame, each, [blocks] * 3, heads[0])
            if frame.stages == deepest:
                head = heads[min(n + 1, len(heads) - 1)]
                for family, stages in _FAMILIES.items():
                    found[f"{family}-{end}"] = _arch(choices, frame, [width] * 5, stages[: frame.stages], head)
    return found


def _arch(
    choices: Sequence[Choice], frame: Frame, widths: Sequence[int], stages: Sequence[tuple[str, int]], head: str
) -> Arch:
    """With such widths of the stem and of every stage, as they would be had no stage halved the map."""
    names = {"frame": frame.name, "stem": str(widths[0]), "head": head}
    for k, (variant, depth) in enumerate(stages):
        names |= {f"stage{k + 1}": f"{variant}_w{widths[k + 1] * 2**k}", f"stage{k + 1}.depth": str(depth)}
    return from_names(choices, names)
