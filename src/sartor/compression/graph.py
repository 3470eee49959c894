"""Which channels of a network can only go together, found with Torch-Pruning's dependency graph.

A `Width` is one set of channels: the filters that make them, the batch-norms that scale them and the inputs that read
them, through flattenings, concatenations and residual sums. Removing a channel means removing its slot on every side.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from sartor.compression.structures import is_depthwise
from sartor.compression.surgery import SLICED, Plan, cut
from sartor.core.errors import BadInput, SartorError, require
from sartor.deploy.module import evaluating

Index = NDArray[np.int64]
Side = Literal["in", "out"]


@dataclass(frozen=True, eq=False)
class Slot:
    """Where the channels of a width sit in one layer: row c of `index` lists channel c's entries on that side."""

    layer: str
    side: Side
    index: Index

    @property
    def each(self) -> int:
        """Entries a channel; more than one after a flattening."""
        return int(self.index.shape[1])


@dataclass(frozen=True, eq=False)
class Width:
    """Channels that are counted once, whichever layers they run through."""

    name: str
    channels: int
    slots: tuple[Slot, ...]
    pixels: bool = False  # the network's own inputs, which a linear layer may leave unread

    def removed(self, kept: Sequence[int] | Index) -> dict[tuple[str, str], Index]:
        """The entries that go from every layer and side when only the channels `kept` stay."""
        gone = np.setdiff1d(np.arange(self.channels), np.asarray(kept, np.int64))
        return {(s.layer, s.side): np.sort(s.index[gone].reshape(-1)) for s in self.slots}


def inputs(net: nn.Module, x: Tensor) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """The input shape of every sliceable layer, and the linear layers that read the image itself.

    A layer with weights that is called twice is refused: its channels belong to two places at once.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    first: list[str] = []
    handles = []

    def note(name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
            if name in shapes:
                raise BadInput(f"every layer must be called once a pass, but {name} is called again.")
            shapes[name] = tuple(args[0].shape[1:])
            if isinstance(module, nn.Linear) and args[0].shape == x.flatten(1).shape and args[0].equal(x.flatten(1)):
                first.append(name)

        return hook

    for name, module in net.named_modules():
        if isinstance(module, SLICED):
            handles.append(module.register_forward_pre_hook(note(name)))
    try:
        with evaluating(net):
            net(x)
    finally:
        for handle in handles:
            handle.remove()
    return shapes, first


def widths(net: nn.Module, x: Tensor) -> tuple[Width, ...]:
    """Every set of channels that can be narrowed without changing what the network returns."""
    _, first = inputs(net, x)
    found = _coupled(net, x)
    if not _narrows(net, x, [w for w in found if w.channels > 1]):  # all at once; else one by one
        found = [w for w in found if _narrows(net, x, [w])]
    found = [w for w in found if w.channels > 1]
    for name in first:
        count = int(x[0].numel())
        every = np.arange(count, dtype=np.int64)[:, None]
        found.append(Width(f"pixels of {name}", count, (Slot(name, "in", every),), pixels=True))
    if not found:
        raise BadInput("there are no channels that could go: the network's layers fix all their widths.")
    return tuple(found)


def _coupled(net: nn.Module, x: Tensor) -> list[Width]:
    """The groups of Torch-Pruning's dependency graph as widths; those through layers we cannot slice are left out."""
    pruning = require("torch_pruning", "compress")
    names = {module: name for name, module in net.named_modules()}
    modes = [(m, m.training) for m in net.modules()]
    needed = [(p, p.requires_grad) for p in net.parameters()]
    net.eval().requires_grad_(True)  # the graph is read from autograd's
    try:
        graph = pruning.DependencyGraph().build_dependency(net, x, verbose=False)
        groups = list(graph.get_all_groups(root_module_types=[nn.Conv2d, nn.Linear]))
        made = [_width(graph, group, names) for group in groups]
    except (RuntimeError, ValueError, AttributeError, KeyError, AssertionError, IndexError) as error:
        raise SartorError(f"Torch-Pruning could not follow this network's channels: {error!r}.") from error
    finally:
        for module, training in modes:
            module.training = training
        for parameter, requires in needed:
            parameter.requires_grad_(requires)
    return [w for w in made if w is not None]


def _width(graph: Any, group: Any, names: dict[nn.Module, str]) -> Width | None:
    root, function, channels = group[0].dep.target.module, group[0].dep.handler, len(group[0].idxs)
    if not _sliceable(graph, group, names):
        return None
    plain = all(list(idxs) == list(range(channels)) for dep, idxs in group if dep.target.module in names)
    rows: dict[tuple[str, Side], list[list[int]]] = {}
    if plain:
        for dep, _ in group:
            if dep.target.module in names:
                rows[names[dep.target.module], _side(graph, dep)] = [[c] for c in range(channels)]
    else:  # one channel at a time says which entries of a flattened or concatenated layer are its own
        for c in range(channels):
            for dep, idxs in graph.get_pruning_group(root, function, [c]):
                if dep.target.module in names:
                    rows.setdefault((names[dep.target.module], _side(graph, dep)), []).append(sorted(map(int, idxs)))
    if any(len(r) != channels or len({len(e) for e in r}) != 1 for r in rows.values()):
        return None
    slots = tuple(Slot(layer, side, np.asarray(r, np.int64)) for (layer, side), r in rows.items())
    return Width(names[root], channels, slots)


def _side(graph: Any, dep: Any) -> Side:
    module = dep.target.module
    if isinstance(module, nn.Conv2d | nn.Linear) and not is_depthwise(module):
        return "in" if graph.is_in_channel_pruning_fn(dep.handler) else "out"
    return "out"


def _sliceable(graph: Any, group: Any, names: dict[nn.Module, str]) -> bool:
    """Whether every layer with weights in the group can be sliced, and none is the network's very output."""
    sides = set()
    for dep, _ in group:
        module = dep.target.module
        if module not in names:
            if isinstance(module, nn.Parameter):
                return False
            continue
        if not isinstance(module, SLICED) and any(True for _ in module.parameters(recurse=False)):
            return False
        if isinstance(module, nn.Conv2d) and module.groups > 1 and not is_depthwise(module):
            return False
        sides.add(_side(graph, dep))
    return sides == {"in", "out"}


def _narrows(net: nn.Module, x: Tensor, found: Sequence[Width]) -> bool:
    """Whether the network still runs, and returns the same shape, with a channel fewer; tried, not guessed."""
    with evaluating(net):
        wanted = net(x).shape
    smaller = copy.deepcopy(net)
    try:
        cut(smaller, Plan.of(width.removed(range(width.channels - 1)) for width in found))
        with evaluating(smaller):
            return bool(smaller(x).shape == wanted)
    except (RuntimeError, ValueError, IndexError):  # BadInput, where a width has one channel only, is a ValueError
        return False
