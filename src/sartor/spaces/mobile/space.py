"""The mobile space of BINAS: five stages of two to four MBInvRes blocks, twelve configurations a block.

22,608 ways a stage, 5.9e21 networks. Choices, stage by stage: the depth, then the configuration of
blocks 1 to 4. As one-hot vectors they have the paper's 5 * (3 + 4 * 12) = 255 entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import final

from torch import nn

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.base import Part, Shape
from sartor.spaces.drawing import Aspect, Drawing, Stage
from sartor.spaces.mobile.frame import CONFIGS, DEPTHS, Frame, stages
from sartor.spaces.mobile.nets import MobileNet, MobileSupernet
from sartor.spaces.ops import Head, InvertedResidual, Stem
from sartor.spaces.supernet import SharedSpace

LABELS = tuple(f"e{e}_k{k}{'_se' if se else ''}" for e, k, se in CONFIGS)
ASPECTS = (
    Aspect("expansion", "height", "×{0:g}"),
    Aspect("kernel", "tone", "{0:g}×{0:g}"),
    Aspect("squeeze-excitation", "mark", short="SE"),
)


# The paper's frame is for 224 pixels. The others keep its shape (growing widths, resolution falling late)
# at strides that leave a feature map to work on, and at widths that train on two CPU cores.
FRAMES = {
    "paper": Frame(32, 2, 16, (24, 40, 80, 112, 192), (2, 2, 2, 1, 2), 960, 1280),
    "medium": Frame(24, 2, 16, (24, 32, 56, 80, 128), (1, 2, 2, 1, 2), 512, 768),
    "small": Frame(16, 1, 16, (16, 24, 40, 56, 96), (1, 2, 2, 1, 2), 320, 384),
    "tiny": Frame(16, 1, 8, (8, 16, 16, 24, 32), (1, 2, 1, 1, 2), 96, 128),
}
_LEAST_SIDE = {"paper": 112, "medium": 48, "small": 20, "tiny": 1}


@final
@dataclass(frozen=True)
class Mobile(SharedSpace):
    """MobileNetV3-like networks: depth, expansion, kernel and squeeze-excitation of every block (BINAS)."""

    preset: str = "auto"
    widths: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    stem: int | None = None  # width of the first convolution; given as wide as what follows, it is added to that

    def __post_init__(self) -> None:
        if self.preset not in ("auto", *FRAMES):
            raise BadInput(f"space.preset must be auto or one of {', '.join(FRAMES)}, but got {self.preset!r}.")
        for name in ("widths", "strides"):
            value = getattr(self, name)
            if value is not None and (len(value) != 5 or any(v < 1 for v in value)):
                raise BadInput(f"space.{name} must be five positive numbers, one a stage, but got {list(value)}.")
        if self.stem is not None and self.stem < 1:
            raise BadInput(f"space.stem must be at least 1, but got {self.stem}.")

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """Per stage: the depth, then four blocks, of which block b needs a depth of at least b."""
        choices: list[Choice] = []
        for s in range(5):
            depth = len(choices)
            choices.append(Choice(f"stage{s + 1}.depth", tuple(map(str, DEPTHS))))
            for b in range(1, 5):
                deep_enough = tuple(i for i, d in enumerate(DEPTHS) if d >= b)
                # Block 1 is measured with the depth left free: a stage of depth 1 does not exist.
                needs = () if b == 1 else ((depth, deep_enough),)
                choices.append(Choice(f"stage{s + 1}.block{b}", LABELS, needs))
        return tuple(choices)

    @property
    def heaviest(self) -> Arch:
        """Four blocks a stage, each with expansion 6, kernel 5 and SE."""
        return Arch((len(DEPTHS) - 1, *(len(CONFIGS) - 1,) * 4) * 5)

    @property
    def smallest(self) -> Arch:
        """Two blocks a stage, each with expansion 3, kernel 3 and no SE."""
        return Arch((0,) * 25)

    def fitted(self, task: Task) -> Mobile:
        """Choose the frame by the image's side unless one was named."""
        if task.image < 4:
            raise BadInput(f"images must have at least 4 pixels a side for the mobile space, but have {task.image}.")
        if self.preset != "auto":
            return self
        return replace(self, preset=next(n for n, side in _LEAST_SIDE.items() if task.image >= side))

    def frame(self, task: Task) -> Frame:
        """The frame with the user's own stem, widths and strides put in."""
        frame = FRAMES[self.fitted(task).preset]
        frame = replace(frame, widths=self.widths or frame.widths, strides=self.strides or frame.strides)
        return replace(frame, stem=self.stem or frame.stem, skip=self.stem == frame.first)

    def supernet(self, task: Task) -> MobileSupernet:
        """All networks in one set of weights."""
        return MobileSupernet(self.frame(task), task)

    def network(self, arch: Arch, task: Task) -> MobileNet:
        """A stand-alone network with fresh weights."""
        return MobileNet(self.frame(task), stages(arch), task)

    def parts(self, task: Task) -> Iterator[Part]:
        """Stem and head, always there; every block at every configuration, where its depth reaches it."""
        frame = self.frame(task)
        image: Shape = (task.channels, task.image, task.image)
        build_stem = partial(Stem, task.channels, frame.stem, frame.first, frame.stem_stride, frame.skip)
        key = f"stem_i{task.channels}_w{frame.stem}_o{frame.first}_s{frame.stem_stride}_r{task.image}"
        yield Part(key + "_skip" * frame.skip, build_stem, image)
        inputs, side = frame.first, -(-task.image // frame.stem_stride)
        for s in range(5):
            width, depth = frame.widths[s], 5 * s
            for b in range(1, 5):
                stride = frame.strides[s] if b == 1 else 1
                for c, config in enumerate(CONFIGS):
                    key, build = _block(inputs, width, stride, side, config, hard_swish=s >= 2)
                    shape, mine = (inputs, side, side), (depth + b, c)
                    if b <= 2:
                        yield Part(key, build, shape, (mine,))
                    else:
                        for d in range(b - DEPTHS[0], len(DEPTHS)):
                            yield Part(key, build, shape, ((depth, d), mine))
                inputs, side = width, -(-side // stride)
        build_head = partial(Head, inputs, frame.head, frame.hidden, task.classes)
        key = f"head_i{inputs}_w{frame.head}_h{frame.hidden}_o{task.classes}_r{side}"
        yield Part(key, build_head, (inputs, side, side))

    def draw(self, arch: Arch) -> Drawing:
        """Five stages of blocks."""
        stages = (Stage(f"Stage {s + 1}", tuple(range(5 * s + 1, 5 * s + 5)), 5 * s) for s in range(5))
        return Drawing(tuple(stages), ASPECTS, dict(zip(LABELS, CONFIGS, strict=True)))

    def describe(self, arch: Arch) -> str:
        """The customary string, e.g. ``ds_r1_k3_s1_e1_c16_nre ir_r1_k5_s2_e3_c24_nre ... cn_r1_k1_s1_c960``."""
        frame = FRAMES["paper" if self.preset == "auto" else self.preset]
        widths, strides = self.widths or frame.widths, self.strides or frame.strides
        words = [f"ds_r1_k3_s1_e1_c{frame.first}_nre"]
        for s, blocks in enumerate(stages(arch)):
            for b, (e, k, se) in enumerate(blocks):
                word = f"ir_r1_k{k}_s{strides[s] if b == 0 else 1}_e{e}_c{widths[s]}"
                words.append(word + ("_nre" if s < 2 else "") + ("_se0.25" if se else ""))
        return " ".join([*words, f"cn_r1_k1_s1_c{frame.head}"])


def _block(
    inputs: int, outputs: int, stride: int, side: int, config: tuple[int, int, bool], hard_swish: bool
) -> tuple[str, Callable[[], nn.Module]]:
    """The key of a block (everything its cost depends on) and how to build it."""
    e, k, se = config
    act = "hs" if hard_swish else "re"
    key = f"ir_k{k}_e{e}{'_se' if se else ''}_i{inputs}_o{outputs}_s{stride}_r{side}_{act}"
    return key, partial(InvertedResidual, inputs, outputs, stride, k, e, se, hard_swish)
