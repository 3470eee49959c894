"""Weights of timm's networks, and of ours, put where they belong in a network of ours.

timm names a tensor by its place, such as ``blocks.1.0.conv_dw.weight``; in ours a block more moves all names after it.
So both sides are read as the same thing here: a stem, stages of blocks, a head, and of each the layers by the part that
they play. Where ours is larger, nothing changes at first: larger kernels are padded with zeros, channels beyond theirs
are read with zeros, and a block beyond theirs is an identity.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from sartor.core.errors import BadInput, require
from sartor.spaces.edge.nets import Fused, Grouped
from sartor.spaces.mobile.elastic import ElasticBlock
from sartor.spaces.mobile.nets import MobileNet, MobileSupernet
from sartor.spaces.ops import ConvBnAct, Head, InvertedResidual, SqueezeExcite
from sartor.spaces.plain.nets import Basic, Bottleneck, Classifier, Inverted, Residual

L = TypeVar("L")
Tensors = Mapping[str, Tensor]
Theirs = tuple[Tensors, Tensors]  # of a convolution, and of the norm after it: by their names inside the layer
Ours = list[tuple[nn.Module, nn.Module | None]]  # the same as modules; a supernet has several for one part

_EPS = 1e-5  # of all our norms
_SE = {"reduce": ("se.conv_reduce", ""), "excite": ("se.conv_expand", "")}
# The layers of timm's blocks: the convolution and the norm of every part. Which block it is, its first layer says.
_BLOCKS = {
    "conv_pwl": {"expand": ("conv_pw", "bn1"), "depthwise": ("conv_dw", "bn2"), **_SE, "project": ("conv_pwl", "bn3")},
    "conv_dw": {"depthwise": ("conv_dw", "bn1"), **_SE, "project": ("conv_pw", "bn2")},
    "conv2": {"first": ("conv1", "bn1"), "last": ("conv2", "bn2"), "shortcut": ("downsample.0", "downsample.1")},
}
_PLACES = {"stage1": "e4_k3 e3_k3", "stage2": "e3_k5_se e3_k5_se e3_k5_se", "stage3": "e6_k3 e3_k3 e3_k3 e3_k3",
           "stage4": "e6_k3_se e6_k3_se", "stage5": "e6_k5_se e6_k5_se e6_k5_se"}  # fmt: skip
_LARGE = {f"{stage}.depth": str(len(blocks.split())) for stage, blocks in _PLACES.items()} | {
    f"{stage}.block{b}": block for stage, blocks in _PLACES.items() for b, block in enumerate(blocks.split(), 1)
}
# Networks that are points of our spaces, by the names of choices and options.
KNOWN: Mapping[str, Sequence[Mapping[str, str]]] = {
    "mobilenetv2_100": ({"network": "mobilenetv2-x1"},),
    "mobilenetv3_large_100": ({"network": "mobilenetv3large-x1"}, _LARGE),
    "efficientnet_lite0": ({"network": "efficientnet-lite0"},),
    "efficientnet_b0": ({"network": "efficientnet-b0"},),
}


@dataclass
class Body(Generic[L]):
    """A network by its parts."""

    stem: dict[str, L] = field(default_factory=dict)
    stages: list[list[dict[str, L]]] = field(default_factory=list)
    head: dict[str, L] = field(default_factory=dict)


def download(name: str) -> dict[str, Tensor]:
    """The pretrained tensors of one of timm's networks, with norms as ours compute them."""
    timm = require("timm", "timm")
    if not timm.is_model(name):
        raise BadInput(
            f"--start timm:{name} must be a network of timm {timm.__version__}, which has none of that name."
        )
    try:
        net: nn.Module = timm.create_model(name, pretrained=True)
    except Exception as error:  # whatever a network, a hub and a disk can do
        raise BadInput(
            f"the weights of timm's {name} could not be had: {error} timm downloads them once, which needs a network; "
            "without one, save them elsewhere as safetensors and give that file to --start."
        ) from error
    return tensors(net)


def tensors(net: nn.Module) -> dict[str, Tensor]:
    """A network's tensors; where its norms add another number to a variance than ours do, the variance has the rest."""
    held = dict(net.state_dict())
    for name, module in net.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            held[f"{name}.running_var"] = held[f"{name}.running_var"] + (module.eps - _EPS)
    return held


def timms(held: Tensors) -> bool:
    """Whether tensors have timm's names; ResNets of torchvision have the same."""
    return "conv_stem.weight" in held or "layer1.0.conv1.weight" in held


def put(net: nn.Module, held: Tensors, classifier: bool = False) -> tuple[int, int]:
    """Give a network timm's weights where it has a place for them: how many, and how many tensors only in part."""
    return give(net, by_parts(held), classifier)


@torch.no_grad()
def give(net: nn.Module, theirs: Body[Theirs], classifier: bool = False) -> tuple[int, int]:
    """The same with any network's parts.

    The classifier stays as it is unless it is asked for, and so does a head whose stages are not all there.
    """
    weights = sliced = 0
    for mine, given in _pairs(_ours(net), theirs, classifier):
        many = _give(mine, given.to(mine))
        weights += many * isinstance(mine, nn.Parameter)
        sliced += many < mine.numel()
    ours = _ours(net).stages
    for blocks, known in zip(ours, _side_by_side(theirs.stages, len(ours)), strict=False):
        for block in blocks[len(known) :]:
            _silence(block)
    return weights, sliced


def fitting(net: nn.Module, theirs: Body[Theirs]) -> int:
    """How many weights that would give, without giving them."""
    pairs = _pairs(_ours(net), theirs, False)
    return sum(_fits(mine, given) for mine, given in pairs if isinstance(mine, nn.Parameter))


def parts(net: nn.Module, held: Tensors) -> Body[Theirs] | None:
    """The tensors of a network like `net` by the parts that they play there; None for networks that are not read so."""
    names, ours = {module: name for name, module in net.named_modules()}, _ours(net)

    def of(layers: Mapping[str, Ours]) -> dict[str, Theirs]:
        def tensors(module: nn.Module | None) -> Tensors:
            state = {} if module is None else module.state_dict()
            return {n: held[f"{names[module]}.{n}"] for n in state if n != "num_batches_tracked" and module is not None}

        return {part: (tensors(conv), tensors(norm)) for part, ((conv, norm), *_) in layers.items()}

    if not ours.stages:
        return None
    return Body(of(ours.stem), [[of(block) for block in stage] for stage in ours.stages], of(ours.head))


# reading -----------------------------------------------------------------------------------------


def by_parts(held: Tensors) -> Body[Theirs]:
    """Timm's tensors by the parts that they play."""

    def of(name: str) -> Tensors:
        inside = ("weight", "bias", "running_mean", "running_var") if name else ()
        return {n: held[f"{name}.{n}"] for n in inside if f"{name}.{n}" in held}

    def layers(named: Mapping[str, tuple[str, str]], begin: str = "") -> dict[str, Theirs]:
        full = {part: (begin + conv, norm and begin + norm) for part, (conv, norm) in named.items()}
        return {part: (of(conv), of(norm)) for part, (conv, norm) in full.items() if of(conv)}

    places = {
        tuple(map(int, m.groups())) for m in map(re.compile(r"(?:blocks\.|layer)(\d+)\.(\d+)\.").match, held) if m
    }
    begin = "blocks." if "conv_stem.weight" in held else "layer"
    body = Body[Theirs](layers({"stem": ("conv_stem" if begin == "blocks." else "conv1", "bn1")}))
    for stage, block in sorted(places):
        name = f"{begin}{stage}.{block}."
        kind = next((k for k in _BLOCKS if f"{name}{k}.weight" in held and f"{name}conv3.weight" not in held), None)
        if kind is None and f"{name}conv.weight" in held:  # MobileNetV3's last convolution is a stage of its own
            body.head |= layers({"conv": ("conv", "bn1")}, name)
            continue
        if kind is None:
            raise BadInput(
                "weights of timm's are taken of MobileNetV2 and V3, EfficientNets, and ResNets of basic blocks, but "
                f"{name.rstrip('.')} is another kind of block."
            )
        if block == 0:
            body.stages.append([])
        body.stages[-1].append(layers(_BLOCKS[kind], name))
    last = "hidden" if "conv" in body.head else "conv"
    body.head |= layers({last: ("conv_head", "" if last == "hidden" else "bn2")})
    body.head |= layers({"classifier": ("classifier" if "classifier.weight" in held else "fc", "")})
    return body


def _side_by_side(stages: list[list[dict[str, L]]], many: int) -> list[list[dict[str, L]]]:
    """Their stages as ours: up to four are those between two halvings of the map, from a quarter of the image on."""
    if many > 4 or len(stages) <= 4:
        return stages
    return [stages[1], stages[2], stages[3] + stages[4], [block for stage in stages[5:] for block in stage]]


def _ours(net: nn.Module) -> Body[Ours]:
    """The parts of the mobile space's networks and its supernet, and of those of `plain` and `edge`."""
    if isinstance(net, MobileNet | MobileSupernet):
        first, depthwise, project = (_pair(layer) for layer in net.stem)
        stages: Any = net.stages
        rest = [[_block(block) for block in stage] for stage in stages]
        return Body({"stem": first}, [[{"depthwise": depthwise, "project": project}], *rest], _head(net.head))
    body = Body[Ours]()
    width = 0
    for layer in _flat(net):
        if isinstance(layer, ConvBnAct):
            (body.head if body.stages else body.stem)["conv" if body.stages else "stem"] = _pair(layer)
            width = layer.conv.out_channels
        elif isinstance(layer, Residual | Bottleneck):
            outputs = layer.last.conv.out_channels
            strided = any(c.stride[0] > 1 for c in layer.modules() if isinstance(c, nn.Conv2d))
            if strided or outputs != width or not body.stages:
                body.stages.append([])
            body.stages[-1].append(_block(layer))
            width = outputs
        elif isinstance(layer, Head):
            body.head |= _head(layer)
        elif isinstance(layer, nn.Linear):
            body.head["classifier"] = [(layer, None)]
    return body


def _flat(net: nn.Module) -> Iterator[nn.Module]:
    for child in net.children():
        if type(child) in (nn.Sequential, Classifier):
            yield from _flat(child)
        else:
            yield child


def _pair(layer: Any) -> Ours:
    return [(layer[0], layer[1])]


def _head(head: Head) -> dict[str, Ours]:
    return {"conv": _pair(head.conv), "hidden": [(head.hidden, None)], "classifier": [(head.classifier, None)]}


def _block(block: nn.Module) -> dict[str, Ours]:
    """A block's layers by part; its last part comes last."""
    if isinstance(block, ElasticBlock):
        middle: Ours = list(zip(block.depthwise, block.depthwise_norm, strict=True))
        return {
            "expand": [(block.expand, block.expand_norm)], "depthwise": middle, "reduce": [(block.reduce, None)],
            "excite": [(block.excite, None)], "project": [(block.project, block.project_norm)],
        }  # fmt: skip
    if isinstance(block, Basic):
        shortcut = {} if isinstance(block.shortcut, nn.Identity) else {"shortcut": _pair(block.shortcut)}
        return {"first": _pair(block.first), **shortcut, "last": _pair(block.last)}
    if isinstance(block, Grouped):
        spread, within = block.first.children()
        shortcut = {} if isinstance(block.shortcut, nn.Identity) else {"shortcut": _pair(block.shortcut)}
        return {"spread": _pair(spread), "within": _pair(within), **shortcut, "gather": _pair(block.last)}
    if isinstance(block, Fused):
        return {"fused": _pair(block.body), "narrow": _pair(block.last)}
    if isinstance(block, InvertedResidual):
        inside: list[nn.Module] = [block.expand, block.depthwise, block.se]
    elif isinstance(block, Inverted):
        inside = list(block.body.children())
    else:
        return {}
    parts: dict[str, Ours] = {}
    for layer in inside:
        if isinstance(layer, SqueezeExcite):
            parts |= {"reduce": [(layer.reduce, None)], "excite": [(layer.expand, None)]}
        elif isinstance(layer, ConvBnAct):
            parts["depthwise" if layer.conv.groups > 1 else "expand"] = _pair(layer)
    return parts | {"project": _pair(block.project if isinstance(block, InvertedResidual) else block.last)}


# writing -----------------------------------------------------------------------------------------


def _silence(block: dict[str, Ours]) -> None:
    """Let what is added to a block's input begin at zero."""
    for _, norm in list(block.values())[-1] if block else ():
        if norm is not None:
            nn.init.zeros_(norm.get_parameter("weight"))


def _pairs(ours: Body[Ours], theirs: Body[Theirs], classifier: bool) -> Iterator[tuple[Tensor, Tensor]]:
    """Every tensor of ours that has one of theirs for it, with that one."""
    stages = _side_by_side(theirs.stages, len(ours.stages))
    found = [(ours.stem, theirs.stem)]
    for mine, known in zip(ours.stages, stages, strict=False):
        found += list(zip(mine, known, strict=False))
    if len(ours.stages) >= len(stages):
        found.append((ours.head, {n: t for n, t in theirs.head.items() if classifier or n != "classifier"}))
    for layers, known_layers in found:
        for part in layers.keys() & known_layers.keys():
            for modules in layers[part]:
                yield from _tensors(modules, known_layers[part])


def _tensors(modules: tuple[nn.Module, nn.Module | None], held: Theirs) -> Iterator[tuple[Tensor, Tensor]]:
    """Those of a convolution and of its norm."""
    for module, tensors in zip(modules, held, strict=True):
        for inside, given in tensors.items():
            mine: Tensor | None = getattr(module, inside, None)
            if mine is not None:
                yield mine, given


def _give(mine: Tensor, theirs: Tensor) -> int:
    """Put what fits into a tensor, with zeros where its rows read more than theirs do; how many numbers fitted."""
    if mine.ndim == theirs.ndim + 1:  # several norms in one
        theirs = theirs.expand(len(mine), -1)
    elif mine.ndim > 1:
        if mine.shape[1] == 1 < theirs.shape[1] == 3:  # grey images for a stem that knows colours
            theirs = theirs.sum(1, keepdim=True)
        mine[: len(theirs)] = 0.0
    here, there = windows(mine.shape, theirs.shape)
    mine[here] = theirs[there]
    return mine[here].numel()


def _fits(mine: Tensor, theirs: Tensor) -> int:
    """How many numbers that would be."""
    several = mine.ndim == theirs.ndim + 1
    return common(mine.shape, (len(mine), *theirs.shape) if several else theirs.shape)


def common(mine: Sequence[int], theirs: Sequence[int]) -> int:
    """How many numbers two tensors of so many dimensions have in common."""
    return math.prod(min(a, b) for a, b in zip(mine, theirs, strict=True))


def windows(mine: Sequence[int], theirs: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """What two tensors have in common: their first channels, and of kernels of different sizes the middle."""
    here, there = [], []
    for k, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        both = min(a, b)
        middle = len(mine) == 4 and k >= 2
        here.append(slice(s := (a - both) // 2 if middle else 0, s + both))
        there.append(slice(s := (b - both) // 2 if middle else 0, s + both))
    return tuple(here), tuple(there)
