"""The options of a compression: what a person gives, completed by the effort's presets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sartor.compression.structures import parse
from sartor.core.config import build, check
from sartor.engine.recipe import Recipe
from sartor.methods.base import epochs_for
from sartor.pipeline.final import Final
from sartor.pipeline.options import Options, Plug, read

Hessian = Literal["auto", "diagonal", "mean", "sampled"]


@dataclass(frozen=True, kw_only=True)
class Compression(Options):
    """What a person decides about a compression; what is None comes from the effort. Budgets may be shares: ``40%``."""

    shares: ClassVar[bool] = True

    model: str
    solver: Plug = Plug("milp", {"time_limit": 60.0})  # noqa: RUF009 - widths are coupled: HiGHS is what solves them
    weights: str | None = None  # safetensors for a factory's network
    structures: tuple[str, ...] = ("filter", "shape")
    rounds: int | None = None  # T_max
    epochs: int | None = None  # of training a round
    pretrain: int | None = None  # epochs before the first round; None: only where the network is untrained
    strength: float | None = None  # lambda; None: 1e-5 where budgets decide, 1 / training images where lambda does
    rate: float = 0.05  # learning rate of the rounds
    batch: int = 128
    hessian: Hessian = "auto"
    hessian_images: int = 10_000
    gradual: bool = True  # approach the budget round by round
    levels: int = 10  # numbers of channels that a width may keep

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "structures", parse(self.structures))
        check(self, batch=">= 1", levels=">= 2", hessian_images=">= 1", rounds=">= 1", epochs=">= 1")
        check(self, strength="> 0", rate="> 0", pretrain=">= 0")

    @property
    def measuring(self) -> Mapping[str, Any]:
        """Many parts, all alike: fewer rounds tell them apart."""
        return {"rounds": 9, "visit_ms": 2.0, "networks": 10}

    def completed(self, images: int) -> Compression:
        """The same with the effort's presets, for so many training images."""
        rounds, seen = {"quick": (3, 12_000), "standard": (5, 150_000), "thorough": (10, 10**9)}[self.effort]
        return dataclasses.replace(
            self,
            rounds=self.rounds or rounds,
            epochs=self.epochs or epochs_for(images, seen, 1, 10),
            strength=self.strength or (_STRENGTH if self.budgets else 1.0 / max(1, images)),
            train_options={**_TRAIN, "epochs": self._last(images), **self.train_options},
        )

    def _last(self, images: int) -> int:
        quick, standard = epochs_for(images, 60_000, 4, 40), epochs_for(images, 600_000, 8, 80)
        return {"quick": quick, "standard": standard, "thorough": 100}[self.effort]

    @property
    def training(self) -> Final:
        """How the compressed network is fine-tuned: with the given one as its teacher, which the paper has not."""
        usual = {"images": "train", "teacher": self.effort != "thorough"}
        made: Final = build(Final, {**usual, **self.train_options}, "train")
        return made

    def given_recipe(self, epochs: int) -> Recipe:
        """How an untrained network is trained first."""
        values = {**self.train_options, "epochs": epochs, "lr": 0.1, "weight_decay": 1e-4}
        made: Recipe = build(Recipe, values, "train")
        return made

    def round_recipe(self) -> Recipe:
        """How (B.0.1) is minimised: the prior takes the place of weight decay, averages would blur zeros."""
        augment = self.train_options.get("augment", "standard")
        return Recipe(
            epochs=self.epochs or 1, batch=self.batch, lr=self.rate, weight_decay=0.0, smoothing=0.0, ema=0.0,
            warmup=0.05, augment=augment,
        )  # fmt: skip


_STRENGTH = 1e-5  # with a budget: channels are told apart, and the solver decides which go
_TRAIN: dict[str, Any] = {"lr": 0.05, "batch": 128, "weight_decay": 1e-5, "smoothing": 0.0}


def from_mapping(values: Mapping[str, Any]) -> Compression:
    """Options from nested plain values, as TOML and --set give them."""
    flat = dict(values)
    if isinstance(flat.get("structures"), str):
        flat["structures"] = parse(flat["structures"])
    return read(flat, Compression)
