"""The options of a fit: what a person gives, completed by presets into what is recorded in config.toml."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sartor.core import units
from sartor.core.config import build
from sartor.core.errors import BadInput
from sartor.core.registry import COSTS, METHODS, SPACES

BUDGETS = {"latency": "time", "params": "count", "macs": "count", "memory": "bytes"}
# On two CPU cores the image's side decides whether a search takes minutes or hours.
LARGEST_IMAGE = {"quick": 32, "standard": 64, "thorough": 224}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person decides; `method`, `space` and `train` options left out come from the effort's preset."""

    data: str
    budgets: Mapping[str, float] = field(default_factory=dict)  # none: the method's own selection decides
    method: str = "binas"
    space: str = "mobile"
    effort: Literal["quick", "standard", "thorough"] = "standard"
    device: Literal["cpu", "cuda"] = "cpu"
    runtime: Literal["onnxruntime", "torch"] = "onnxruntime"
    threads: int = 1
    seed: int = 0
    devices: int = 1
    nodes: int = 1
    image: int | None = None
    val: float = 0.2
    test: float = 0.15
    method_options: Mapping[str, Any] = field(default_factory=dict)
    space_options: Mapping[str, Any] = field(default_factory=dict)
    train_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for registry, name in ((METHODS, self.method), (SPACES, self.space)):
            if name not in registry.names():
                registry[name]  # raises with the list of names
        if self.threads < 1 or self.seed < 0:
            raise BadInput(f"threads must be at least 1 and seed at least 0, but got {self.threads} and {self.seed}.")


_GROUPS = {"method": "method_options", "space": "space_options", "train": "train_options"}


def default_folder(data: str | Path) -> Path:
    """Where a run goes when nobody says: ``runs/NAME``, also for ``.`` and ``..``."""
    return Path("runs") / (Path(data).resolve().name or "run")


def parse_budgets(given: Mapping[str, str | float | None]) -> dict[str, float]:
    """``{"latency": "5ms"}`` in Sartor's own units; every budget must be a positive quantity with a unit."""
    if not isinstance(given, Mapping):
        raise BadInput(f"budgets must be a group such as budgets.latency, but got {given!r}.")
    unknown = sorted(set(given) - set(BUDGETS))
    if unknown:
        raise BadInput(f"there is no budget named {', '.join(unknown)}; budgets are {', '.join(BUDGETS)}.")
    return {n: units.parse(v, BUDGETS[n], f"the {n} budget") for n, v in given.items() if v is not None}


def grouped(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same with ``method = "binas"`` written as a group, so that ``method.passes`` can be added to it."""
    return {k: {"name": v} if k in _GROUPS and isinstance(v, str) else v for k, v in values.items()}


def from_mapping(values: Mapping[str, Any]) -> Options:
    """Options from nested plain values, as TOML and --set give them: a group may carry its ``name``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if key in _GROUPS and isinstance(value, Mapping):
            group = dict(value)
            if "name" in group:
                flat[key] = group.pop("name")
            flat[_GROUPS[key]] = {**flat.get(_GROUPS[key], {}), **group}
        elif key == "budgets":
            flat[key] = parse_budgets(value)
        else:
            flat[key] = value
    return build(Options, flat, "the configuration")  # type: ignore[no-any-return]


def to_mapping(options: Options, method: Any, space: Any, train: Any) -> dict[str, Any]:
    """Everything that decides the result, for config.toml; `from_mapping` reads it back."""
    plain = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    for group in _GROUPS.values():
        plain.pop(group)
    plain["budgets"] = dict(sorted(options.budgets.items()))
    for name, chosen in (("method", method), ("space", space)):
        plain[name] = {"name": plain[name], **_fields(chosen)}
    plain["train"] = _fields(train)
    return plain


def _fields(thing: Any) -> dict[str, Any]:
    values = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def costs(options: Options) -> dict[str, Any]:
    """One instance of every cost, as this fit measures it."""
    made = {}
    for name in COSTS.names():
        settings = {}
        if name == "latency":
            # Trained on a GPU, deployed under ONNX Runtime: that runs on this machine's CPU.
            target = "cpu" if options.runtime == "onnxruntime" else options.device
            settings = {"runtime": options.runtime, "device": target, "threads": options.threads}
        made[name] = COSTS[name](**settings)
    return made
