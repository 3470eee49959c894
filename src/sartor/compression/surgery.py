"""Cutting channels and branches out of a network: what is left is an ordinary, smaller, dense module.

A `Plan` is JSON: which entries of every layer and which residual branches go. The same plan applied to a fresh network
of the same factory gives the same small network, so that a saved result is rebuilt without any pickle.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, fx, nn

from sartor.core.errors import BadInput

Index = NDArray[np.int64]
SLICED = (nn.Conv2d, nn.Linear, nn.BatchNorm1d, nn.BatchNorm2d)
_ADDS = (operator.add, operator.iadd, torch.add)


class SelectedLinear(nn.Linear):
    """A linear layer that reads only some of its inputs; their positions are part of its state."""

    def __init__(self, inputs: Tensor, out_features: int, bias: bool) -> None:
        super().__init__(len(inputs), out_features, bias)
        self.register_buffer("inputs", inputs)

    def forward(self, x: Tensor) -> Tensor:
        """The chosen inputs through the layer."""
        return F.linear(x.index_select(-1, self.get_buffer("inputs")), self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class Plan:
    """`removed`: entries that go, by (layer, "in" or "out"); `selected`: pixels that a layer reads; `gone`: branches.

    A branch is named by the layer that ends it.
    """

    removed: Mapping[tuple[str, str], Index] = field(default_factory=dict)
    selected: Mapping[str, Index] = field(default_factory=dict)
    gone: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        parts: Iterable[Mapping[tuple[str, str], Index]],
        selected: Mapping[str, Index] | None = None,
        gone: Iterable[str] = (),
    ) -> Plan:
        """A plan from the widths' parts; one side of a layer may hold entries of several (a concatenation)."""
        removed: dict[tuple[str, str], Index] = {}
        for part in parts:
            for key, index in part.items():
                removed[key] = index if key not in removed else np.union1d(removed[key], index)
        return cls(removed, dict(selected or {}), tuple(gone))

    def to_json(self) -> dict[str, Any]:
        """Names and numbers only."""
        return {
            "removed": [[layer, side, index.tolist()] for (layer, side), index in self.removed.items()],
            "selected": {layer: index.tolist() for layer, index in self.selected.items()},
            "gone": list(self.gone),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Plan:
        """Read what `to_json` wrote."""
        try:
            removed = {(str(a), str(b)): np.asarray(i, np.int64) for a, b, i in data["removed"]}
            selected = {str(n): np.asarray(i, np.int64) for n, i in data["selected"].items()}
            return cls(removed, selected, tuple(map(str, data["gone"])))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"this is not a plan of a compression as Sartor writes it: {error!r}.") from error


def apply(net: nn.Module, plan: Plan) -> nn.Module:
    """The network after the plan; layers are changed in place, and without branches it is a traced module."""
    if plan.gone:
        net = drop_branches(net, plan.gone)
    cut(net, plan)
    return net


@torch.no_grad()
def cut(net: nn.Module, plan: Plan) -> None:
    """Slice every layer of the plan in place; layers that left with their branch are passed over."""
    present = dict(net.named_modules())
    for (name, side), index in plan.removed.items():
        if name in present and len(index):
            size = _size(present[name], side)
            _slice(present[name], side, torch.from_numpy(np.setdiff1d(np.arange(size), index)), name)
    for name, index in plan.selected.items():
        if name in present:
            parent = net.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], _selected(present[name], torch.from_numpy(index)))


def _size(module: nn.Module, side: str) -> int:
    """The entries of one side of a layer."""
    if isinstance(module, nn.Linear):
        return module.out_features if side == "out" else module.in_features
    if isinstance(module, nn.Conv2d):
        return module.out_channels if side == "out" else module.in_channels
    return int(getattr(module, "num_features", 0))


def _slice(module: nn.Module, side: str, index: Tensor, name: str) -> None:
    """Keep the entries `index` of one side of a layer."""
    if not len(index):
        raise BadInput(f"{name} must keep at least one channel, but none is left. Loosen the budget.")
    if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        module.num_features = len(index)
        for key in ("weight", "bias"):
            _keep(module, key, index, 0)
        for key in ("running_mean", "running_var"):
            value = getattr(module, key)
            if value is not None:
                module.register_buffer(key, value[index.to(value.device)].clone())
    elif isinstance(module, nn.Linear):
        _keep(module, "weight", index, 0 if side == "out" else 1)
        if side == "out":
            _keep(module, "bias", index, 0)
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.Conv2d):
        depthwise = module.groups > 1
        _keep(module, "weight", index, 0 if side == "out" or depthwise else 1)
        if side == "out":
            _keep(module, "bias", index, 0)
        if depthwise:
            module.groups = module.in_channels = module.out_channels = len(index)
        elif side == "out":
            module.out_channels = len(index)
        else:
            module.in_channels = len(index)
    else:
        raise BadInput(f"{name} is a {type(module).__name__}, which cannot be sliced.")


def _keep(module: nn.Module, key: str, index: Tensor, axis: int) -> None:
    value = getattr(module, key)
    if value is not None:
        index = index.to(value.device)
        setattr(module, key, nn.Parameter(value.detach().index_select(axis, index).clone(), value.requires_grad))


def _selected(linear: nn.Module, index: Tensor) -> SelectedLinear:
    assert isinstance(linear, nn.Linear)
    device = linear.weight.device
    small = SelectedLinear(index.to(device), linear.out_features, linear.bias is not None).to(device)
    small.weight.copy_(linear.weight[:, index.to(device)])
    if linear.bias is not None:
        small.bias.copy_(linear.bias)
    return small


@dataclass(frozen=True)
class Branch:
    """One arm of a residual sum that nothing else reads: `last` ends it, `layers` are all its layers with weights."""

    last: str
    layers: frozenset[str]


def branches(net: nn.Module) -> tuple[Branch, ...]:
    """The arms of residual sums that could go whole; none where torch.fx cannot trace the network."""
    try:
        traced = fx.symbolic_trace(net)
    except Exception:  # torch.fx raises whatever the network's own code does on a proxy
        return ()
    return tuple(branch for _, _, branch in _arms(traced))


def _arms(traced: fx.GraphModule) -> list[tuple[fx.Node, fx.Node, Branch]]:
    """Every sum with the argument that would remain and the arm that would go."""
    found = []
    above = _ancestors(traced)
    for node in traced.graph.nodes:
        adds = node.target in _ADDS or (node.op == "call_method" and node.target in ("add", "add_"))
        if not adds or len(node.args) != 2 or not all(isinstance(a, fx.Node) for a in node.args):
            continue
        for stays, goes in (node.args, node.args[::-1]):
            arm = (above[goes] | {goes}) - above[stays] - {stays}
            inside = all(user in arm or user is node for n in arm for user in n.users)
            names = [str(n.target) for n in traced.graph.nodes if n in arm and n.op == "call_module"]
            weighted = [n for n in names if isinstance(traced.get_submodule(n), nn.Conv2d | nn.Linear)]
            # The arm must start where the other one passes: the sum then still has the same shape without it.
            rooted = all(p in arm or p in above[stays] | {stays} for n in arm for p in n.all_input_nodes)
            if inside and rooted and len(weighted) > 1:
                layers = frozenset(n for n in names if isinstance(traced.get_submodule(n), SLICED))
                found.append((node, stays, Branch(weighted[-1], layers)))
    return found


def _ancestors(traced: fx.GraphModule) -> dict[fx.Node, set[fx.Node]]:
    above: dict[fx.Node, set[fx.Node]] = {}
    for node in traced.graph.nodes:
        above[node] = set().union(*(above[p] | {p} for p in node.all_input_nodes)) if node.all_input_nodes else set()
    return above


def drop_branches(net: nn.Module, gone: Iterable[str]) -> fx.GraphModule:
    """The network with these branches left out of their sums, and their layers with them."""
    training = net.training
    traced = fx.symbolic_trace(net.eval())
    wanted = set(gone)
    passed: dict[fx.Node, fx.Node] = {}  # a sum that went, and what took its place: often the next one's other arm
    for node, stays, branch in _arms(traced):
        if branch.last in wanted:
            passed[node] = passed.get(stays, stays)
            node.replace_all_uses_with(passed[node])
            wanted.discard(branch.last)
    if wanted:
        raise BadInput(f"the network has no residual branch that ends with {', '.join(sorted(wanted))}.")
    traced.graph.eliminate_dead_code()
    traced.delete_all_unused_submodules()
    traced.recompile()
    return traced.train(training)
