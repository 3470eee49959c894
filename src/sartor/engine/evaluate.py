"""How good a network is, and the batch-norm statistics that is measured with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sartor.data.base import Index
from sartor.engine.feed import Feed

Forward = Callable[[Tensor], Tensor]


@torch.no_grad()
def outputs(forward: Forward, feed: Feed, index: Index, batch: int = 512) -> tuple[Tensor, Tensor]:
    """Logits and labels of the images of `index`, in order."""
    found = []
    for x, y in feed.plain(index, batch):
        with feed.engine.autocast():
            found.append((forward(x), y))
    logits, labels = zip(*found, strict=True)
    return torch.cat(logits), torch.cat(labels)


def correct(forward: Forward, feed: Feed, index: Index, batch: int = 512) -> NDArray[np.bool_] | NDArray[np.float64]:
    """How far each image of `index` is classified correctly, in order: 0 or 1, or the share of its labels."""
    return feed.task.right(*outputs(forward, feed, index, batch)).cpu().numpy()


def accuracy(net: nn.Module, feed: Feed, index: Index, batch: int = 512) -> float:
    """The task's metric in percent."""
    net.eval()
    return feed.task.measure(*outputs(net, feed, index, batch))


@torch.no_grad()
def recalibrate(net: nn.Module, batches: Iterator[tuple[Tensor, Any]], forward: Callable[[Tensor, int], Any]) -> None:
    """Replace running statistics by their plain average over `batches` (unaugmented training images).

    The moving average kept during training lags behind the weights and saw augmented images; batch
    k enters with weight 1/(k + 1), which makes all batches count alike.
    """
    norms = [m for m in net.modules() if hasattr(m, "running_mean") and hasattr(m, "momentum")]
    kept = [m.momentum for m in norms]
    for norm in norms:
        if hasattr(norm, "average_anew"):  # one that does not see every batch counts those that it sees
            norm.average_anew()  # type: ignore[operator]
    training = net.training
    net.train()
    dropouts = [(m, m.p) for m in net.modules() if isinstance(m, nn.Dropout)]
    for module, _ in dropouts:
        module.p = 0.0
    for k, (x, _) in enumerate(batches):
        for norm in norms:
            norm.momentum = 1.0 / (k + 1)  # type: ignore[assignment]
        forward(x, k)
    for norm, momentum in zip(norms, kept, strict=True):
        norm.momentum = momentum
    for module, p in dropouts:
        module.p = p
    net.train(training)
