"""The recipe of the network that comes out: what it starts from, which images it sees, how it is trained.

The numbers come from `benchmarks/recipes.py`; the papers' own are those of ``--effort thorough``.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, final

from sartor.engine.recipe import Recipe
from sartor.methods.base import Effort

R = TypeVar("R", bound=Recipe)
# Epochs from which images are varied more: fewer, and a small network has not yet learnt the plain ones.
_MIXED, _VARIED = 40, 150
# Of so many images a small network has more to learn than it can hold: then four times as many epochs. In one run with
# 50,000 images and 110 epochs of both, 0.6 M parameters ended at 92.3 %, and the loss had stayed at twice its floor.
_MANY, _LONGER = 20_000, 4


@final
@dataclass(frozen=True, kw_only=True)
class Final(Recipe):
    """A recipe, and what the network is owed: all images but the test's, inherited weights, a teacher if better."""

    images: Literal["all", "train"] = "all"  # the validation images have done their work when the decision is made
    start: Literal["inherited", "fresh"] = "inherited"  # from the search's weights, where it left any
    teacher: bool = False  # the search's heaviest network, which a time makes no better than its students


def preset(effort: Effort, device: str, paper: Mapping[str, Any], images: int) -> dict[str, Any]:
    """For so many training images; `paper` is how the method's paper trains, which ``thorough`` does.

    Otherwise as many epochs as the time allows, at a rate that follows the batch: inherited weights end higher at a
    full rate than at the paper's.
    """
    if effort == "thorough":
        return dict(paper)
    sizes = (256, 128, 64) if device == "cuda" else (64, 64, 32)
    batch = next(size for size, least in zip(sizes, (4000, 1000, 0), strict=True) if images >= least)
    return {"epochs": 0, "batch": batch, "lr": 0.4 * batch / 256, "weight_decay": 5e-4, "augment": "light"}


def suited(recipe: R, epochs: float, images: int, given: Container[str]) -> R:
    """The recipe with images varied the more, the more often each is seen; what was `given` stays."""
    often = epochs / (_LONGER if images >= _MANY else 1)
    chosen: dict[str, Any] = {"mix": 0.5 if often >= _MIXED else 0.0}
    chosen["augment"] = "standard" if often >= _VARIED else "light"
    return replace(recipe, **{name: value for name, value in chosen.items() if name not in given})
