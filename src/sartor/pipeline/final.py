"""The recipe of the network that comes out: what it starts from, which images it sees, how it is trained.

The numbers come from `benchmarks/recipes.py`; the papers' own are those of ``--effort thorough``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, final

from sartor.core.config import check
from sartor.core.views import VIEWS
from sartor.engine.recipe import ELSEWHERE, MUON, Recipe
from sartor.methods.base import Effort

# Epochs from which images are varied more: fewer, and a small network has not yet learnt the plain ones.
_MIXED, _VARIED = 40, 150
# Of so many images a small network has more to learn than it can hold: then four times as many epochs. In one run with
# 50,000 images and 110 epochs of both, 0.6 M parameters ended at 92.3 %, and the loss had stayed at twice its floor.
_MANY, _LONGER = 20_000, 4
_TEACHING = 0.15  # of a GPU's time
_SMALL = 0.5  # of their side that images have at first on a CPU, if there is still something to see
_FOLLOWING = ("mix", "augment", *ELSEWHERE)  # what is decided only when a training begins


@final
@dataclass(frozen=True, kw_only=True)
class Final(Recipe):
    """A recipe, and what the network is owed: all images but the test's, inherited weights, a teacher if better."""

    images: Literal["all", "train"] = "all"  # the validation images have done their work when the decision is made
    start: Literal["inherited", "fresh"] = "inherited"  # from the search's weights, where it left any
    teacher: bool = False  # the search's heaviest network, which a time makes no better than its students
    views: int = 1  # of an image, at most, that the deployed network averages over, where budgets leave room: 1, 2, 6
    teaching: float = 0.0  # share of the time for training a wide network, which is then imitated; 0: none
    fixed: tuple[str, ...] = ()  # what stays as it is, however long the training and wherever from

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "train.", teaching=">= 0 < 1", views=">= 1")


def preset(effort: Effort, device: str, paper: Mapping[str, Any], images: int) -> dict[str, Any]:
    """For so many training images; `paper` is how the method's paper trains, which ``thorough`` does.

    Otherwise as many epochs as the time allows, at a rate that follows the batch: inherited weights end higher at a
    full rate than at the paper's.
    """
    if effort == "thorough":
        return dict(paper)
    sizes = (256, 128, 64) if device == "cuda" else (64, 64, 32)
    batch = next(size for size, least in zip(sizes, (4000, 1000, 0), strict=True) if images >= least)
    rate = 0.4 * batch / 256
    usual = {"epochs": 0, "batch": batch, "lr": rate, "weight_decay": 5e-4, "augment": "light", "mixed": True,
             "views": max(VIEWS)}  # fmt: skip
    # What makes short trainings better was not measured on a GPU; a CPU would train a teacher for too few epochs.
    short = {"muon": MUON * rate, "small": _SMALL, "whiten": True}
    return {**usual, **({"teaching": _TEACHING} if device == "cuda" else short)}


def given_by_hand(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a training, of which those that would follow from its length or start are then fixed."""
    return {"fixed": tuple(name for name in _FOLLOWING if name in options), **options}


def from_elsewhere(recipe: Final) -> Final:
    """The recipe for weights learnt elsewhere: the head first, then all, the first layers least; the fixed stays."""
    return replace(recipe, **{name: value for name, value in ELSEWHERE.items() if name not in recipe.fixed})


def plainly(recipe: Final) -> Final:
    """What stands in forty lines of PyTorch: SGD with a cosine in 32 bits, shifts, mirror images, a moving average."""
    plain: dict[str, Any] = {"muon": 0.0, "whiten": False, "branches": False, "small": 1.0, "mixed": False, "mix": 0.0,
                             "augment": "light", "teaching": 0.0, "views": 1}  # fmt: skip
    return replace(recipe, **plain, fixed=tuple({*recipe.fixed, *_FOLLOWING}))


def suited(recipe: Final, epochs: float, images: int, taught: bool = False) -> Final:
    """The recipe with images varied the more, the more often each is seen; what is fixed stays.

    Beside a teacher the strongest variation lost a point and more: its answers to such images are worth little.
    """
    often = epochs / (_LONGER if images >= _MANY else 1)
    chosen: dict[str, Any] = {"mix": 0.5 if often >= _MIXED else 0.0}
    chosen["augment"] = "standard" if often >= _VARIED and not taught else "light"
    return replace(recipe, **{name: value for name, value in chosen.items() if name not in recipe.fixed})
