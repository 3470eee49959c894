"""All networks of the edge space in one set of weights: widths are slices, families are branches.

Every place of a network (the stem, each block of each stage, the head) has for every variant of its module one set of
tensors (`shared.py`); which network runs decides about variant, widths, depths, and the frame that all of it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.arch import Arch
from sartor.core.task import Task
from sartor.spaces.base import Gates, Picks, Space
from sartor.spaces.edge.frame import DEPTHS, Block, Frame, Variant
from sartor.spaces.edge.shared import Make, Shared
from sartor.spaces.supernet import Supernet, Who


@dataclass(frozen=True, eq=False)
class Stream:
    """What comes out of a stage of a mixture, by its width: the mean of the options of that width, and their weight."""

    weights: dict[int, Tensor]
    means: dict[int, Tensor]

    @classmethod
    def of(cls, parts: Iterable[tuple[int, Tensor, Tensor]]) -> Stream:
        """From the width, the weight and the output of every option."""
        weights, sums = dict[int, Tensor](), dict[int, Tensor]()
        for width, weight, out in parts:
            weights[width] = weights[width] + weight if width in weights else weight
            sums[width] = sums[width] + weight * out if width in sums else weight * out
        return cls(weights, {width: total / weights[width] for width, total in sums.items()})


@final
class EdgeSupernet(Supernet):
    """Every network of the edge space."""

    def __init__(
        self, space: Space, task: Task, layout: Sequence[Frame], widths: Sequence[int], heads: Sequence[int],
        stages: Sequence[Sequence[Block]], build_stem: Callable[[int, Frame], nn.Module],
        build_block: Callable[[Block, int, int], nn.Module], build_head: Callable[[int, int], nn.Module],
    ) -> None:  # fmt: skip
        super().__init__()
        self.space, self.task, self.layout = space, task, tuple(layout)
        self.widths, self.heads, self.options = tuple(widths), tuple(heads), tuple(map(tuple, stages))
        self.stem = Shared(
            {(f, w): Make(partial(build_stem, w, frame), f) for f, frame in enumerate(layout) for w in widths}
        )
        self.stages = nn.ModuleList()
        before: Sequence[int] = widths
        for k, blocks in enumerate(stages):
            self.stages.append(self._stage(k, blocks, before, build_block))
            before = sorted({b.width for b in blocks})
        # What a head sees after three stages is not what it sees after four.
        ends = {f.stages: sorted({b.width for b in stages[f.stages - 1]}) for f in layout}
        self.ends = nn.ModuleDict({
            str(count): Shared({(w, h): Make(partial(build_head, w, h), w) for w in last for h in heads})
            for count, last in ends.items()
        })  # fmt: skip

    @staticmethod
    def _stage(
        k: int, blocks: Sequence[Block], before: Sequence[int], build: Callable[[Block, int, int], nn.Module]
    ) -> nn.ModuleList:
        """The blocks of a stage, one after the other: for each variant its tensors."""
        made = nn.ModuleList()
        variants: dict[Variant, list[Block]] = {}
        for block in blocks:
            variants.setdefault(block.variant, []).append(block)
        for b in range(DEPTHS[-1]):
            found = {}
            for variant, alike in variants.items():
                pairs = [(i, block) for block in alike for i in ([block.width] if b else before)]
                stride = 2 if k and not b else 1
                found[variant.name] = Shared({(i, c.width): Make(partial(build, c, i, stride), i) for i, c in pairs})
            made.append(nn.ModuleDict(found))
        return made

    def trace(self, x: Tensor, who: Who) -> tuple[list[Tensor], Tensor]:
        """No features, since their widths differ; the logits."""
        if isinstance(who, Arch):
            return [], self._path(x, who.picks)
        if isinstance(who, Gates):
            return [], self._mixture(x, who.weights)
        return [], self._paths(x, np.asarray(who))

    def _paths(self, x: Tensor, picks: Picks) -> Tensor:
        """Every image on a path of its own; those that share one go together."""
        paths, whose = np.unique(picks, axis=0, return_inverse=True)
        places = [np.flatnonzero(whose.ravel() == n) for n in range(len(paths))]
        found = [
            self._path(x[torch.from_numpy(at)], tuple(path.tolist())) for path, at in zip(paths, places, strict=True)
        ]
        back = torch.from_numpy(np.argsort(np.concatenate(places), kind="stable"))
        return torch.cat(found)[back.to(x.device)]

    def _path(self, x: Tensor, picks: tuple[int, ...]) -> Tensor:
        for shared, key in self._places(picks):
            x = shared(x, key)
        return x

    def _places(self, picks: tuple[int, ...]) -> Iterable[tuple[Shared, Hashable]]:
        """The tensors of every module of a network, in order, and its widths."""
        frame, inputs = self.layout[picks[0]], self.widths[picks[1]]
        yield self.stem, (picks[0], inputs)
        for k in range(frame.stages):
            block = self.options[k][picks[2 + 2 * k]]
            for b in range(DEPTHS[picks[3 + 2 * k]]):
                yield self._block(k, b, block), (inputs, block.width)
                inputs = block.width
        yield self._end(frame), (inputs, self.heads[picks[-1]])

    def _block(self, k: int, b: int, block: Block) -> Shared:
        shared: Shared = self.stages[k][b][block.variant.name]  # type: ignore[index]
        return shared

    def _end(self, frame: Frame) -> Shared:
        shared = self.ends[str(frame.stages)]
        assert isinstance(shared, Shared)
        return shared

    # mixtures --------------------------------------------------------------------------------------

    def _mixture(self, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """The sum of all frames' logits, each times its weight; what weighs nothing is left out."""
        total: Tensor | None = None
        for f, weight in _present(weights[0]):
            logits = weight * self._framed(x, f, weights)
            total = logits if total is None else total + logits
        assert total is not None
        return total

    def _framed(self, x: Tensor, f: int, weights: Sequence[Tensor]) -> Tensor:
        """One frame's logits: every stage mixes its options, each a chain of blocks that mixes its depths."""
        frame = self.layout[f]
        stream = Stream.of((w := self.widths[a], weight, self.stem(x, (f, w))) for a, weight in _present(weights[1]))
        for k in range(frame.stages):
            options, depths = weights[2 + 2 * k], weights[3 + 2 * k]
            mixed = ((self.options[k][a], weight) for a, weight in _present(options))
            stream = Stream.of((c.width, weight, self._chain(stream, k, c, depths)) for c, weight in mixed)
        logits: Tensor | float = 0.0
        for a, weight in _present(weights[-1]):
            for width, mean in stream.means.items():
                logits = logits + weight * stream.weights[width] * self._end(frame)(mean, (width, self.heads[a]))
        assert isinstance(logits, Tensor)
        return logits

    def _chain(self, stream: Stream, k: int, block: Block, depths: Tensor) -> Tensor:
        """The blocks of one option of a stage; what comes out is the mean over its depths."""
        shared, end = self._block(k, 0, block), max(d for d, _ in _present(depths))
        parts = [stream.weights[i] * shared(mean, (i, block.width)) for i, mean in stream.means.items()]
        x = torch.stack(parts).sum(0)
        total = depths[0] * x
        for d in range(1, end + 1):
            x = self._block(k, d, block)(x, (block.width, block.width))
            total = total + depths[d] * x
        return total

    # stand-alone -----------------------------------------------------------------------------------

    def extract(self, arch: Arch) -> nn.Module:
        """The network of `arch` with copies of its slices."""
        net = self.space.network(arch, self.task)
        assert isinstance(net, nn.Sequential)
        with torch.no_grad():
            for part, (shared, key) in zip(net, self._places(arch.picks), strict=True):
                part.load_state_dict({**part.state_dict(), **shared.slices(key)})
        device = next(self.parameters()).device
        return net.to(device).train(self.training)


def _present(weights: Tensor) -> Iterable[tuple[int, Tensor]]:
    """The options that weigh anything."""
    return ((n, weights[n]) for n, weight in enumerate(weights.tolist()) if weight)
