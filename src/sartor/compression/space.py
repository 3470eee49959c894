"""All networks that narrowing a given one can give, as a search space: every width is a choice.

So budgets work as everywhere in Sartor: parts are priced (a layer's cost depends on the widths on its two sides),
the score is what the kept channels are worth, and a solver picks the best network inside the budgets.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from torch import nn

from sartor.compression.graph import Index, Width, inputs
from sartor.compression.structures import is_depthwise
from sartor.compression.surgery import Branch, Plan, apply
from sartor.core.arch import Arch, Choice
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.spaces.base import Part, Space


@final
class Widths(Space):
    """Networks that keep, of every width, its most valuable channels: how many is the choice.

    `values[i]` is what each channel of width i is worth; channels worth nothing are in no option. Widths inside a
    residual branch may also keep none, all of them together: the branch goes.
    """

    def __init__(
        self,
        net: nn.Module,
        task: Task,
        widths: Sequence[Width],
        values: Sequence[np.ndarray],
        branches: Sequence[Branch] = (),
        levels: int = 8,
    ) -> None:
        self.net, self.task, self.widths, self.branches = net, task, tuple(widths), _usable(branches, widths)
        self.values = [np.asarray(v, np.float64) for v in values]
        self.orders: list[Index] = [np.argsort(-v, kind="stable").astype(np.int64) for v in self.values]
        inside = {i for within in self.inside.values() for i in within}
        self.levels = [_levels(max(1, int((v > 0).sum())), levels, zero=i in inside) for i, v in enumerate(self.values)]
        x = torch.zeros(2, task.channels, task.image, task.image, device=next(net.parameters()).device)
        self.shapes, _ = inputs(net, x)

    def __repr__(self) -> str:
        return f"Widths({[(w.name, level) for w, level in zip(self.widths, self.levels, strict=True)]})"

    @cached_property
    def inside(self) -> dict[str, list[int]]:
        """The widths that lie wholly inside each branch, by the layer that ends it."""
        return {
            b.last: [i for i, w in enumerate(self.widths) if all(s.layer in b.layers for s in w.slots)]
            for b in self.branches
        }

    @property
    def choices(self) -> tuple[Choice, ...]:
        """How many channels each width keeps."""
        return tuple(
            Choice(w.name, tuple(str(k) for k in level)) for w, level in zip(self.widths, self.levels, strict=True)
        )

    @property
    def rules(self) -> tuple[Limit, ...]:  # type: ignore[override]
        """A branch goes whole: its widths are empty together or not at all."""
        found = []
        for last, members in self.inside.items():
            for other in members[1:]:
                zero = {i: np.array([float(k == 0) for k in self.levels[i]]) for i in (members[0], other)}
                form = Quadratic(self.sizes, 0.0, {members[0]: zero[members[0]], other: -zero[other]})
                found.append(Limit(f"branch {last}", form, high=0.0, low=0.0))
        return tuple(found)

    @property
    def heaviest(self) -> Arch:
        """Every channel that is worth anything."""
        return Arch(tuple(len(level) - 1 for level in self.levels))

    @property
    def score(self) -> Quadratic:
        """Minus the rise of the loss that is to be expected: ``sum_i (d_i + R_i) ln (d_i + R_i(k)) / (d_i + R_i)``.

        To first order this is the relevance that goes. The logarithm is there because widths follow each other: what
        loses nearly all of one has lost nearly everything, however small that width's relevance was, and a sum alone
        would empty some widths to fill others. Beside a residual branch the stream goes on: d is then the median R of
        all widths, else zero.
        """
        linear, inside = {}, {i for members in self.inside.values() for i in members}
        typical = float(np.median([v.sum() for v in self.values]))
        for i, (value, order, level) in enumerate(zip(self.values, self.orders, self.levels, strict=True)):
            kept = np.concatenate([[0.0], np.cumsum(value[order])]) + (typical if i in inside else 0.0)
            whole = max(float(kept[-1]), 1e-300)
            linear[i] = np.array([whole * np.log(max(kept[k] / whole, 1e-12)) for k in level])
        return Quadratic(self.sizes, 0.0, linear)

    def kept(self, arch: Arch) -> list[Index]:
        """The channels that stay of every width, in order."""
        counts = [level[p] for level, p in zip(self.levels, arch.picks, strict=True)]
        return [np.sort(order[:k]) for order, k in zip(self.orders, counts, strict=True)]

    def plan(self, arch: Arch) -> Plan:
        """What to cut."""
        kept, parts, selected = self.kept(arch), [], {}
        gone = [last for last, members in self.inside.items() if any(not len(kept[i]) for i in members)]
        dropped = {i for last in gone for i in self.inside[last]}
        for i, (width, channels) in enumerate(zip(self.widths, kept, strict=True)):
            if width.pixels:
                if len(channels) < width.channels:
                    selected[width.slots[0].layer] = channels
            elif i not in dropped:
                parts.append(width.removed(channels))
        return Plan.of(parts, selected, gone)

    def network(self, arch: Arch, task: Task) -> nn.Module:
        """The given network, cut, with the weights that it had."""
        return apply(copy.deepcopy(self.net), self.plan(arch))

    def describe(self, arch: Arch) -> str:
        """The kept widths in the order of the network, as the papers write them: 465-37-90."""
        counts = {w.name: len(k) for w, k in zip(self.widths, self.kept(arch), strict=True)}
        position = {name: n for n, name in enumerate(self.shapes)}
        first = {w.name: min(position[s.layer] for s in w.slots) - 0.5 * w.pixels for w in self.widths}
        return "-".join(str(counts[name]) for name in sorted(counts, key=lambda n: first[n]))

    def sample(self, rng: np.random.Generator) -> Arch:
        """Random widths, all branches present: so that two samples can be mixed."""
        least = [int(level[0] == 0) for level in self.levels]
        return Arch(tuple(int(rng.integers(low, len(level))) for low, level in zip(least, self.levels, strict=True)))

    def parts(self, task: Task) -> Iterator[Part]:
        """Every layer with weights, at every combination of the widths on its sides."""
        sides: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for i, width in enumerate(self.widths):
            for slot in width.slots:
                sides.setdefault((slot.layer, slot.side), []).append((i, slot.each))
        norms = self._norms_after()
        for name in self.shapes:
            if name not in norms.values():
                yield from self._layer_parts(name, norms.get(name), sides)

    def _norms_after(self) -> dict[str, str]:
        """The batch-norm that directly follows a convolution, by the convolution's name: runtimes fold it in."""
        try:
            graph = torch.fx.symbolic_trace(self.net).graph
        except Exception:  # untraceable networks are priced layer by layer
            return {}
        found, known = {}, dict(self.net.named_modules())
        for node in graph.nodes:
            module = known.get(str(node.target)) if node.op == "call_module" else None
            source = node.args[0] if node.args else None
            if isinstance(module, nn.BatchNorm2d) and isinstance(source, torch.fx.Node) and len(source.users) == 1:
                before = known.get(str(source.target)) if source.op == "call_module" else None
                if isinstance(before, nn.Conv2d):
                    found[str(source.target)] = str(node.target)
        return found

    def _layer_parts(self, name: str, norm: str | None, sides: Mapping[tuple[str, str], Any]) -> Iterator[Part]:
        """A layer's cost is the sum over the segments of its inputs (several after a concatenation) and outputs."""
        layer, shape = self.net.get_submodule(name), self.shapes[name]
        own = isinstance(layer, nn.Conv2d | nn.Linear) and not is_depthwise(layer)  # inputs apart from its outputs
        full_in = shape[-1] if isinstance(layer, nn.Linear) else shape[0]
        full_out = layer.out_features if isinstance(layer, nn.Linear) else getattr(layer, "out_channels", full_in)
        into = self._segments(sides.get((name, "in"), []), full_in) if own else [(None, 0)]
        for out in self._segments(sides.get((name, "out"), []), full_out):
            for n, segment in enumerate(into):
                for b, n_out in self._options(*out):
                    for a, n_in in self._options(*segment) if own else [(0, n_out)]:
                        when = {(i, pick) for (i, _), pick in ((segment, a), (out, b)) if i is not None}
                        if n_in and n_out and len({i for i, _ in when}) == len(when):
                            yield self._part(layer, shape, n_in, n_out, n == 0, norm is not None, tuple(sorted(when)))

    def _part(
        self, layer: nn.Module, shape: tuple[int, ...], n_in: int, n_out: int, first: bool, norm: bool, when: Any
    ) -> Part:
        """One layer at one pair of widths; its bias and batch-norm belong to the first segment of its inputs."""
        at = (*shape[:-1], n_in) if isinstance(layer, nn.Linear) else (n_in, *shape[1:])
        ends = f"{'' if first else ' more'}{' bn' if norm and first else ''}"
        key = f"{_kind(layer)}{ends} {n_in}>{n_out} @{'x'.join(map(str, at[1:]))}"
        return Part(key, _builder(layer, n_in, n_out, norm and first, first), at, when)  # type: ignore[arg-type]

    def _segments(self, widths: Sequence[tuple[int, int]], full: int) -> list[tuple[int | None, int]]:
        """(width, entries a channel) of one side of a layer, and (None, entries) for those that no choice moves."""
        moved = sum(each * self.widths[i].channels for i, each in widths)
        fixed: list[tuple[int | None, int]] = [(None, full - moved)] if full > moved else []
        return [*widths, *fixed]

    def _options(self, width: int | None, each: int) -> list[tuple[int, int]]:
        """(option, entries) of a segment."""
        return [(0, each)] if width is None else [(a, each * k) for a, k in enumerate(self.levels[width])]


def _usable(branches: Sequence[Branch], widths: Sequence[Width]) -> tuple[Branch, ...]:
    """Branches whose last layer reads a width of the branch itself: emptying that empties the branch."""
    return tuple(
        b
        for b in branches
        if any((s.layer, s.side) == (b.last, "in") for w in widths for s in w.slots if _within(w, b))
        and not any(_within(w, o) for o in branches if o is not b and o.layers < b.layers for w in widths)
    )


def _within(width: Width, branch: Branch) -> bool:
    return all(s.layer in branch.layers for s in width.slots)


def _levels(most: int, count: int, zero: bool) -> list[int]:
    """About `count` numbers of channels from a twelfth of `most` up, equal ratios apart, least first.

    From 32 on in whole steps that vector units like.
    """
    step = 8 if most >= 64 else 4 if most >= 32 else 1
    shares = np.geomspace(1 / 12, 1.0, count)[:-1]
    found = {most} | {max(1, min(most, step * round(most * share / step))) for share in shares}
    return sorted(found | ({0} if zero else set()))


def _kind(layer: nn.Module) -> str:
    if isinstance(layer, nn.Conv2d):
        form = f"{layer.kernel_size[0]}x{layer.kernel_size[1]}s{layer.stride[0]}p{layer.padding}d{layer.dilation[0]}"
        return f"{'dw' if is_depthwise(layer) else 'conv'}{form}{'b' if layer.bias is not None else ''}".replace(
            " ", ""
        )
    return f"{type(layer).__name__.lower()}{'b' if getattr(layer, 'bias', None) is not None else ''}"


def _builder(layer: nn.Module, n_in: int, n_out: int, norm: bool, bias: bool) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        if isinstance(layer, nn.Linear):
            return nn.Linear(n_in, n_out, bias=bias and layer.bias is not None)
        if not isinstance(layer, nn.Conv2d):
            return type(layer)(n_out, affine=getattr(layer, "affine", True))
        groups = n_out if is_depthwise(layer) else layer.groups
        conv = nn.Conv2d(
            n_in, n_out, layer.kernel_size, layer.stride, layer.padding, layer.dilation, groups,  # type: ignore[arg-type]
            bias=bias and layer.bias is not None,
        )  # fmt: skip
        return nn.Sequential(conv, nn.BatchNorm2d(n_out)) if norm else conv

    return build
