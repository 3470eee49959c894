"""The first convolution tells pixels' directions apart from the start, and stays so.

Neighbouring pixels are nearly equal: most of what a patch varies by is its brightness, and what shows an edge or a
texture is small. Filters that are the patches' principal directions, each divided by its deviation (Coates and Ng 2012;
Page 2019 for short trainings), hand all of them on alike, one of each sign, since what follows cuts the negative off.
They are computed from training images in a moment, and not trained: a short training ends points higher
(`benchmarks/recipes.py`, the sets short_*).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sartor.data.base import Index
from sartor.engine.feed import Feed

_IMAGES, _BATCH = 1000, 250  # of the training images that are looked at, and how many at once
_PATCHES = 200_000  # and of their patches, on an even grid
_FLOOR = 1e-2  # of the largest variance, added to all: the weakest directions are noise of cameras and of encoding


class _Seen(Exception):
    """The first convolution was reached."""


def begin(net: nn.Module, feed: Feed, index: Index, fresh: bool) -> nn.Module | None:
    """Give a `fresh` network's first convolution these filters; where it has them it is held, and returned.

    `index` are training images. A network that was trained in another way before keeps its weights, and all learn.
    """
    layer = next((m for m in net.modules() if isinstance(m, nn.Conv2d)), None)
    if layer is None or layer.groups > 1:
        return None
    filters = _filters(net, layer, feed, index)
    with torch.no_grad():
        if fresh:
            layer.weight.copy_(filters)
    if not torch.allclose(layer.weight, filters, rtol=1e-3):
        return None
    layer.weight.requires_grad_(False)
    return layer


@contextmanager
def held(net: nn.Module, feed: Feed, index: Index, fresh: bool) -> Iterator[None]:
    """The same for as long as a training lasts: afterwards all weights may learn again."""
    layer = begin(net, feed, index, fresh)
    try:
        yield
    finally:
        if layer is not None:
            layer.requires_grad_(True)


def _filters(net: nn.Module, layer: nn.Conv2d, feed: Feed, index: Index) -> Tensor:
    """A layer's filters, those of the most variance first; where it has more than two per direction, mixtures too."""
    rng = feed.seeds.rng("whitening")
    seen = torch.cat([_input(net, layer, x) for x, _ in feed.plain(rng.permutation(index)[:_IMAGES], _BATCH)])
    tall, wide = layer.kernel_size
    places = len(seen) * (seen.shape[2] - tall + 1) * (seen.shape[3] - wide + 1)
    patches = F.unfold(seen, (tall, wide), stride=max(1, math.ceil(math.sqrt(places / _PATCHES))))
    patches = patches.transpose(1, 2).flatten(0, 1).double()
    variance, directions = torch.linalg.eigh(patches.T @ patches / len(patches))
    white = (directions / torch.sqrt(variance + _FLOOR * variance[-1])).T.flip(0)
    # A direction has no sign of its own: its largest entry is positive, whatever library computed it.
    white = white * torch.sign(white.gather(1, white.abs().argmax(1, keepdim=True)))
    half = white[: (layer.out_channels + 1) // 2]
    both = torch.cat([half, -half])[: layer.out_channels]
    mixing = rng.standard_normal((layer.out_channels - len(both), len(white))) / math.sqrt(len(white))
    mixtures = torch.from_numpy(mixing).to(white) @ white
    return torch.cat([both, mixtures]).reshape(layer.weight.shape).to(layer.weight)


def _input(net: nn.Module, layer: nn.Module, x: Tensor) -> Tensor:
    """What the layer is given of these images."""
    found: list[Tensor] = []

    def look(_: nn.Module, given: tuple[Any, ...]) -> None:
        found.append(given[0])
        raise _Seen

    hook = layer.register_forward_pre_hook(look)
    try:
        with torch.no_grad():
            net(x)
    except _Seen:
        pass
    finally:
        hook.remove()
    return found[0].contiguous().float()
