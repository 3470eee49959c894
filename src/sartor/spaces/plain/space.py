"""One choice of about seventy: the whole network. Every cost prices every option exactly, as one part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, final

from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.whole import Entry, WholeNetworks

if TYPE_CHECKING:
    from torch import nn

_SCALES = {
    "mobilenetv3small": (0.35, 0.5, 0.75, 1.0),
    "mobilenetv2": (0.25, 0.35, 0.5, 0.75, 1.0, 1.4),
    "mobilenetv3large": (0.5, 0.75, 1.0, 1.25),
}
_DEPTHS, _WIDTHS, _STEMS = (8, 14, 20, 32), (8, 12, 16, 24, 32, 48, 64), (2, 1)
FAMILIES = (*_SCALES, "resnet")  # each ends with a larger network than the one before
_KNOWN = (*_SCALES, "efficientnet", "resnet")  # those that can be asked for


@final
@dataclass(frozen=True)
class Plain(WholeNetworks):
    """What one would train instead: a ResNet, MobileNetV2 or MobileNetV3 of one of many sizes."""

    least_side: ClassVar[int] = 8

    families: tuple[str, ...] = FAMILIES
    zero_init: bool = True  # residual blocks begin as the identity

    def __post_init__(self) -> None:
        if not self.families or set(self.families) - set(_KNOWN):
            raise BadInput(
                f"space.families must be some of {', '.join(_KNOWN)}, but got {', '.join(self.families) or 'none'}."
            )

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Every network by name, such as ``mobilenetv2-x0.5`` or ``resnet20-w16-s1`` (width and stride of the stem)."""
        names = (name for kind in _KNOWN if kind in self.families for name in _names(kind))
        return tuple(Entry(name, partial(build, name, zero_init=self.zero_init)) for name in names)


def family(name: str) -> str:
    """The family of a network, by its name."""
    return next(f for f in _KNOWN if name.startswith(f))


def build(name: str, task: Task, zero_init: bool = True) -> nn.Module:
    """The network of that name, for the task's classes and images."""
    from sartor.spaces.plain import nets

    kind = family(name)
    if kind == "resnet":
        depth, width, stem = (int(word.lstrip("ws")) for word in name.removeprefix(kind).split("-"))
        net = nets.resnet(depth, width, stem, task)
    elif kind == "efficientnet":
        net = nets.efficientnet(name.endswith("lite0"), task)
    else:
        scale = float(name.rpartition("x")[2])
        v2 = kind == "mobilenetv2"
        net = nets.mobilenet_v2(scale, task) if v2 else nets.mobilenet_v3(kind.endswith("large"), scale, task)
    return nets.started(net, zero_init)


def _names(kind: str) -> Iterator[str]:
    """The family's networks, smaller ones first."""
    if kind == "efficientnet":
        yield from ("efficientnet-lite0", "efficientnet-b0")
        return
    if kind != "resnet":
        yield from (f"{kind}-x{scale:g}" for scale in _SCALES[kind])
        return
    for depth, width in sorted(((d, w) for d in _DEPTHS for w in _WIDTHS), key=lambda s: (s[0] - 2) * s[1] ** 2):
        yield from (f"resnet{depth}-w{width}-s{stem}" for stem in _STEMS)
