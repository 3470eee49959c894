"""The edge space: what a good engineer would vary by hand, as a chain of stages inside a frame.

Choices: the frame (input side, stride of the stem, number of stages), the stem's width; for every stage its blocks
(family and width) and their number; the width of the head. The first block of a stage costs by the stage before and its
own option, the others by that option and the depth, all of it in a frame: every cost is a chain of pairs in each frame.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar, final

import numpy as np
from torch import nn

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Part, Picks
from sartor.spaces.drawing import Aspect, Drawing, Stage
from sartor.spaces.edge.frame import DEPTHS, Block, Frame, blocks, frames
from sartor.spaces.edge.landmarks import landmarks
from sartor.spaces.edge.nets import ACTIVATIONS, block, head, stem
from sartor.spaces.edge.supernet import EdgeSupernet
from sartor.spaces.plain.nets import started
from sartor.spaces.supernet import SharedSpace

_ASPECTS = (
    Aspect("width", "height", "{0:g} wide"),
    Aspect("kernel", "tone", "{0:g}×{0:g}"),
    Aspect("squeeze-excitation", "mark", short="SE"),
    Aspect("expansion", form="×{0:g}", short="inside"),
    *(Aspect(family) for family in ("residual", "grouped", "fused", "inverted")),
)
_FAMILIES = ("res", "group", "fused", "mb")  # in the order of their aspects
_UNFITTED = 64  # pixels a side, until a task says
_TOGETHER = 8  # images that go through one network of a supernet
_SMALL = 32  # pixels a side, of which none can be spared


@final
@dataclass(frozen=True)
class Edge(SharedSpace):
    """Input side, stem, family, width and depth of every stage, head: from very small networks to large ones."""

    least_side: ClassVar[int] = 8

    frames: tuple[str, ...] = ()  # such as r64_s2_x3: side, stride of the stem, stages; empty: by the image's side
    widths: tuple[int, ...] = (8, 16, 24, 32, 48)  # of the stem and of stage 1; every stage doubles them
    heads: tuple[int, ...] = (0, 256, 640, 1280)  # 0: no last convolution
    activation: str = "relu"
    stem_kernel: int = 3  # ImageNet's ResNets have 7
    zero_init: bool = True  # residual blocks begin as the identity

    def __post_init__(self) -> None:
        for name in ("widths", "heads"):
            given = getattr(self, name)
            if not given or list(given) != sorted(set(given)):
                raise BadInput(f"space.{name} must be numbers from small to large, but got {list(given)}.")
        if any(w < 8 or w % 8 for w in self.widths) or self.heads[0] < 0:
            raise BadInput(
                f"space.widths must be multiples of 8 and space.heads at least 0, but got {list(self.widths)} and "
                f"{list(self.heads)}."
            )
        if self.activation not in ACTIVATIONS:
            raise BadInput(f"space.activation must be {' or '.join(ACTIVATIONS)}, but got {self.activation!r}.")
        if self.stem_kernel not in (3, 5, 7):
            raise BadInput(f"space.stem_kernel must be 3, 5 or 7, but got {self.stem_kernel}.")
        for name in self.frames:
            Frame.read(name)

    @cached_property
    def layout(self) -> tuple[Frame, ...]:
        """The frames, in the order of choice 0."""
        return tuple(map(Frame.read, self.frames)) or frames(_UNFITTED)

    @cached_property
    def stages(self) -> tuple[tuple[Block, ...], ...]:
        """The options of every stage; three stages where no frame has four."""
        return tuple(tuple(blocks(k, self.widths)) for k in range(max(f.stages for f in self.layout)))

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Frame, stem; stage and depth of every stage, where a frame has it; head."""
        made = [Choice("frame", tuple(f.name for f in self.layout)), Choice("stem", tuple(map(str, self.widths)))]
        for k, options in enumerate(self.stages):
            there = tuple(i for i, f in enumerate(self.layout) if f.stages > k)
            needs = ((0, there),) if len(there) < len(self.layout) else ()
            made.append(Choice(f"stage{k + 1}", tuple(b.name for b in options), needs))
            made.append(Choice(f"stage{k + 1}.depth", tuple(map(str, DEPTHS)), needs))
        return (*made, Choice("head", tuple(map(str, self.heads))))

    def fitted(self, task: Task) -> Edge:
        """Choose the frames by the image's side unless they were given."""
        super().fitted(task)
        if not self.frames:
            return replace(self, frames=tuple(f.name for f in frames(task.image)))
        larger = [f.name for f in self.layout if f.side > task.image]
        if larger:
            raise BadInput(f"frames must not be larger than the images' {task.image} pixels: {', '.join(larger)}.")
        return self

    def network(self, arch: Arch, task: Task) -> nn.Module:
        """Stem, stages, head, with fresh weights."""
        frame, act = self.layout[arch.picks[0]], self.activation
        inputs = self.widths[arch.picks[1]]
        layers: list[nn.Module] = [stem(task.channels, task.image, inputs, frame, act, self.stem_kernel)]
        for k in range(frame.stages):
            kind, depth = self.stages[k][arch.picks[2 + 2 * k]], DEPTHS[arch.picks[3 + 2 * k]]
            for b in range(depth):
                layers.append(block(kind, inputs, 2 if k and not b else 1, act))
                inputs = kind.width
        layers.append(head(inputs, self.heads[arch.picks[-1]], task.classes, act))
        return started(nn.Sequential(*layers), self.zero_init)

    def supernet(self, task: Task) -> EdgeSupernet:
        """All networks in one set of weights."""

        def build_stem(width: int, frame: Frame) -> nn.Module:
            return stem(task.channels, task.image, width, frame, self.activation, self.stem_kernel)

        def build_block(kind: Block, inputs: int, stride: int) -> nn.Module:
            return block(kind, inputs, stride, self.activation)

        def build_head(inputs: int, width: int) -> nn.Module:
            return head(inputs, width, task.classes, self.activation)

        return EdgeSupernet(self, task, self.layout, self.widths, self.heads, self.stages, build_stem, build_block,
                            build_head)  # fmt: skip

    def sample_picks(self, rng: np.random.Generator, count: int) -> Picks:
        """Uniformly random networks, each for several images in a row: every other one is a pass of its own."""
        return np.repeat(super().sample_picks(rng, -(-count // _TOGETHER)), _TOGETHER, axis=0)[:count]

    def parts(self, task: Task) -> Iterator[Part]:
        """Frame by frame: the stem, every stage's first block after every option before, its repeats, the head."""
        for f, frame in enumerate(self.layout):
            before: list[tuple[tuple[int, int], int]] = [((1, a), w) for a, w in enumerate(self.widths)]
            for mine, width in before:
                yield self._stem(frame, width, task, ((0, f), mine))
            for k in range(frame.stages):
                stride = 2 if k else 1
                side = frame.maps[max(k - 1, 0)]
                for a, kind in enumerate(self.stages[k]):
                    mine = (2 + 2 * k, a)
                    for other, inputs in before:
                        yield self._block(kind, inputs, stride, side, ((0, f), other, mine))
                    for d, depth in enumerate(DEPTHS):
                        for _ in range(depth - 1):
                            yield self._block(kind, kind.width, 1, frame.maps[k], ((0, f), mine, (3 + 2 * k, d)))
                before = [((2 + 2 * k, a), kind.width) for a, kind in enumerate(self.stages[k])]
            for other, inputs in before:
                for a, width in enumerate(self.heads):
                    when = ((0, f), other, (len(self.choices) - 1, a))
                    yield self._head(inputs, width, frame.maps[-1], task, when)

    def _stem(self, frame: Frame, width: int, task: Task, when: tuple[tuple[int, int], ...]) -> Part:
        key = f"stem_i{task.channels}_r{task.image}_to{frame.side}_s{frame.stride}_o{width}_{self.activation}"
        key += f"_k{self.stem_kernel}" * (self.stem_kernel != 3)
        # Of the frame only what the stem depends on, so that equal stems are recognised as equal.
        build = partial(
            stem, task.channels, task.image, width, replace(frame, stages=3), self.activation, self.stem_kernel
        )
        return Part(key, build, (task.channels, task.image, task.image), when)

    def _block(self, kind: Block, inputs: int, stride: int, side: int, when: tuple[tuple[int, int], ...]) -> Part:
        key = f"{kind.variant.name}_i{inputs}_o{kind.width}_s{stride}_r{side}_{self.activation}"
        build = partial(block, kind, inputs, stride, self.activation)
        place = "same" if stride == 1 and inputs == kind.width else f"s{stride}"  # a residual of its own kind
        return Part(key, build, (inputs, side, side), when, f"{kind.variant.name}_{place}")

    def _head(self, inputs: int, width: int, side: int, task: Task, when: tuple[tuple[int, int], ...]) -> Part:
        key = f"head_i{inputs}_w{width}_o{task.classes}_r{side}_{self.activation}"
        build = partial(head, inputs, width, task.classes, self.activation)
        return Part(key, build, (inputs, side, side), when, f"head{width}")

    @property
    def apart(self) -> str:
        """The frame: input side, strides, stages."""
        return "frame"

    def whole(self, task: Task) -> Limit | None:
        """Frames of the image's own side, where that is small."""
        sees = np.array([float(f.side == task.image) for f in self.layout])
        if task.image > _SMALL or not sees.any():
            return None
        return Limit("side", Quadratic(self.sizes, 0.0, {0: sees}), low=1.0)

    def landmarks(self, task: Task) -> Mapping[str, Arch]:
        """ResNets, MobileNetV2- and V3-like, EfficientNet-lite-like and RegNet-like networks."""
        return landmarks(self.choices, self.layout, self.widths, task.image)

    def alike(self, named: Mapping[str, str]) -> Sequence[Arch]:
        """The same stages at every side: first those with the same stride of the stem, the largest first."""
        try:
            frame = Frame.read(named.get("frame", ""))
        except BadInput:
            return ()
        like = sorted((f for f in self.layout if f.stages == frame.stages),
                      key=lambda f: (f.stride != frame.stride, -f.side))  # fmt: skip
        return [arch for f in like for arch in super(Edge, self).alike({**named, "frame": f.name})]

    def draw(self, arch: Arch) -> Drawing:
        """Frame and stem, the stages, the head."""
        stages = [Stage(f"Stage {k + 1}", (2 + 2 * k,), 3 + 2 * k) for k in range(len(self.stages))]
        looks = {
            b.name: (b.width, b.variant.kernel, b.variant.se,
                     b.variant.expansion > 1 and b.variant.expansion, *(b.variant.family == f for f in _FAMILIES))
            for options in self.stages for b in options
        }  # fmt: skip
        return Drawing((Stage("Stem", (0, 1)), *stages, Stage("Head", (len(self.choices) - 1,))), _ASPECTS, looks)

    def describe(self, arch: Arch) -> str:
        """Such as ``r64_s2_x3 stem16 res_w16x3 res_w32x3 res_w64x3 head0``."""
        named, frame = arch.named(self.choices), self.layout[arch.picks[0]]
        stages = (f"{named[f'stage{k + 1}']}x{named[f'stage{k + 1}.depth']}" for k in range(frame.stages))
        return " ".join([named["frame"], f"stem{named['stem']}", *stages, f"head{named['head']}"])
