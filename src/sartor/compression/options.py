"""The options of a compression: what a person gives, completed by the effort's presets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sartor.compression.structures import parse
from sartor.core import units
from sartor.core.config import build
from sartor.core.errors import BadInput
from sartor.engine.recipe import Recipe
from sartor.methods.base import epochs_for
from sartor.pipeline.options import BUDGETS

Hessian = Literal["auto", "diagonal", "mean", "sampled"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person decides; what is None comes from the effort. Budgets are kept as written: ``2ms``, ``40%``."""

    model: str
    data: str
    budgets: Mapping[str, str] = field(default_factory=dict)
    weights: str | None = None  # safetensors for a factory's network
    structures: tuple[str, ...] = ("filter", "shape")
    effort: Literal["quick", "standard", "thorough"] = "standard"
    device: Literal["cpu", "cuda"] = "cpu"
    runtime: Literal["onnxruntime", "torch"] = "onnxruntime"
    threads: int = 1
    seed: int = 0
    image: int | None = None
    val: float = 0.2
    test: float = 0.15
    rounds: int | None = None  # T_max
    epochs: int | None = None  # of training a round
    pretrain: int | None = None  # epochs before the first round; None: only where the network is untrained
    strength: float = 1e-5  # lambda
    rate: float = 0.05  # learning rate of the rounds
    batch: int = 128
    hessian: Hessian = "auto"
    hessian_images: int = 10_000
    gradual: bool = True  # approach the budget round by round
    levels: int = 10  # numbers of channels that a width may keep
    train_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "structures", parse(self.structures))
        for name, text in self.budgets.items():
            Budget.read(name, text)
        least = {"threads": 1, "batch": 1, "levels": 2, "hessian_images": 1, "rounds": 1, "epochs": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if value is not None and value < low:
                raise BadInput(f"{name} must be at least {low}, but got {value}.")
        if self.strength <= 0 or self.rate <= 0 or self.seed < 0 or (self.pretrain or 0) < 0:
            raise BadInput("strength and rate must be above 0, seed and pretrain at least 0.")

    def completed(self, images: int) -> Options:
        """The same with the effort's presets, for so many training images."""
        rounds, seen = {"quick": (3, 12_000), "standard": (5, 150_000), "thorough": (10, 10**9)}[self.effort]
        return dataclasses.replace(
            self,
            rounds=self.rounds or rounds,
            epochs=self.epochs or epochs_for(images, seen, 1, 10),
            train_options={**_TRAIN, "epochs": self._last(images), **self.train_options},
        )

    def _last(self, images: int) -> int:
        quick, standard = epochs_for(images, 60_000, 4, 40), epochs_for(images, 600_000, 8, 80)
        return {"quick": quick, "standard": standard, "thorough": 100}[self.effort]

    @property
    def training(self) -> Recipe:
        """How the compressed network is fine-tuned."""
        made: Recipe = build(Recipe, self.train_options, "train")
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

    def to_mapping(self) -> dict[str, Any]:
        """For config.toml."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        plain["train"] = dict(plain.pop("train_options"))
        plain["structures"] = list(self.structures)
        return plain


_TRAIN: dict[str, Any] = {"lr": 0.05, "batch": 128, "weight_decay": 1e-5, "smoothing": 0.0}


def from_mapping(values: Mapping[str, Any]) -> Options:
    """Options from nested plain values, as TOML and --set give them."""
    flat = dict(values)
    if "train" in flat:
        flat["train_options"] = flat.pop("train")
    if isinstance(flat.get("structures"), str):
        flat["structures"] = parse(flat["structures"])
    return build(Options, flat, "the configuration")  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Budget:
    """A limit as given: an amount in Sartor's own unit, or a share of what the given network needs."""

    name: str
    amount: float | None
    share: float | None

    @classmethod
    def read(cls, name: str, text: str | float) -> Budget:
        """``2ms``, ``1M``, ``40%``."""
        if name not in BUDGETS:
            raise BadInput(f"there is no budget named {name}; budgets are {', '.join(BUDGETS)}.")
        if isinstance(text, str) and text.strip().endswith("%"):
            try:
                share = float(text.strip()[:-1]) / 100
            except ValueError:
                share = 0.0
            if not 0 < share < 1:
                raise BadInput(f"the {name} budget must be between 0% and 100% of the given network, but is {text!r}.")
            return cls(name, None, share)
        return cls(name, units.parse(text, BUDGETS[name], f"the {name} budget"), None)

    def limit(self, given: float) -> float:
        """The amount, where the given network needs `given`."""
        return self.amount if self.amount is not None else (self.share or 1.0) * given
