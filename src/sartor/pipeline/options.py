"""The options of a run: what a person gives, completed by presets into what is recorded in config.toml."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from sartor.core.config import build, check, fields_of
from sartor.core.errors import BadInput, nearest
from sartor.core.registry import COSTS, METHODS, RUNTIMES, SOLVERS, SPACES, Registry, cost_of
from sartor.core.seeds import checked
from sartor.core.threads import bounded
from sartor.core.units import DURATION, TIME

if TYPE_CHECKING:
    from sartor.costs.base import Cost
    from sartor.deploy.runtimes.base import Runtime
from sartor.data.naming import describe, refuse_code

# On two CPU cores the image's side decides whether a search takes minutes or hours.
_PARTS, _AMPLE = (60, 240), 600  # parts that are timed, from the shortest time to one of so many seconds
_LEAST_TIME = 20  # seconds: exporting and measuring alone take as long
# What an effort means where no time is given: seconds for everything. Thorough is the papers' schedule, however long.
TIMES = {"quick": {"cpu": 180.0, "cuda": 120.0}, "standard": {"cpu": 1200.0, "cuda": 480.0}}
# The largest side that a folder's photos get unasked on a CPU: pixels, and the least seconds for which it is tried.
SIDES = {64: 0.0, 96: 600.0, 128: 1800.0, 224: 7200.0}
AUTO = "auto"  # the solver that fits the problem: see `sartor.solvers.solve`


@dataclass(frozen=True)
class Plug:
    """A plug-in as it was given: a name, ``package.module:Class``, a class or an instance; and options of its own.

    `trusted` says that a person named it; what a run's files name is imported only if that person says so.
    """

    given: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = True

    @classmethod
    def of(cls, value: Any, default: Any, trusted: bool = True) -> Plug:
        """From what is written for a group: its plug-in alone, or its options with the plug-in as ``name``."""
        if not trusted and isinstance(value, Mapping):
            refuse_code(value)
        if not isinstance(value, Mapping):
            return cls(value, {}, trusted)
        group = dict(value)
        return cls(group.pop("name", default), group, trusted)

    def resolve(self, registry: Registry) -> Any:
        """The class, or the instance that was given."""
        return registry.resolve(self.given, trusted=self.trusted)

    def make(self, registry: Registry, presets: Mapping[str, Any] | None = None) -> Any:
        """An instance; `presets` are for what neither the options nor a given instance say."""
        ready = not isinstance(self.given, (str, type))
        options = dict(self.options) if ready else {**(presets or {}), **self.options}
        return registry.make(self.given, options, trusted=self.trusted)


def recorded(registry: Registry, made: Any) -> dict[str, Any]:
    """What config.toml keeps of a plug-in: the reference under which it is found again, and its options."""
    return {"name": registry.reference(made), **plain(fields_of(made))}


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As TOML has it: lists for tuples."""
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def usual_device() -> Literal["cpu", "cuda"]:
    """Where to compute if nobody says: on a GPU, where PyTorch sees one."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every command that makes a network has in common; what is left out comes from the effort's preset."""

    groups: ClassVar[tuple[str, ...]] = ("solver",)  # fields that hold a plug-in with options of its own
    shares: ClassVar[bool] = False  # whether a budget may be a share, such as 40%

    data: object  # all that `open_data` takes
    budgets: Mapping[str, float | str] = field(default_factory=dict)  # in Sartor's own units, or a share
    costs: Mapping[str, Plug] = field(default_factory=dict)  # asked for besides those that budgets need
    solver: Plug = Plug(AUTO)
    effort: Literal["quick", "standard", "thorough"] = "standard"
    device: Literal["cpu", "cuda"] = field(default_factory=usual_device)
    runtime: str = "onnxruntime"
    precision: Literal["float32", "int8", "auto"] = "float32"  # auto: 8 bits where they are faster and as good
    target: str = "local"  # where the network will run: see sartor.deploy.targets
    threads: int = 1
    seed: int = 0
    image: int | None = None
    val: float = 0.2
    test: float = 0.15
    train_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.target == "local":
            bounded(self.threads)
        checked(self.seed)
        if self.precision not in ("float32", "int8", "auto"):
            raise BadInput(f"the precision must be float32, int8 or auto, but got {self.precision!r}.")
        if self.precision == "int8" and not RUNTIMES[self.runtime].int8:
            able = [n for n in RUNTIMES.names() if RUNTIMES[n].int8]
            raise BadInput(f"precision int8 needs a runtime that has it, {' or '.join(able)}, but got {self.runtime}.")
        if self.solver.given == AUTO:
            Plug("milp", self.solver.options).make(SOLVERS)  # whose options these are
        else:
            self.solver.make(SOLVERS)

    @property
    def seconds(self) -> float | None:
        """The time that the whole command may take; None: as long as its options say."""
        return TIMES.get(self.effort, {}).get(self.device)

    @property
    def measuring(self) -> Mapping[str, Any]:
        """Other defaults of costs that have such options: in a short time fewer parts are timed, each less often."""
        seconds = self.seconds
        if seconds is None:
            return {}
        sample = min(_PARTS[1], max(_PARTS[0], round(_PARTS[1] * seconds / _AMPLE)))
        return {"sample": sample, "rounds": min(15, max(6, round(15 * seconds / _AMPLE)))}

    @property
    def largest_image(self) -> int:
        """On a CPU the images' side decides whether there is time for more than a few epochs."""
        seconds = self.seconds
        if self.device == "cuda" or seconds is None:
            return max(SIDES)
        return max(side for side, least in SIDES.items() if seconds >= least)

    def to_mapping(self) -> dict[str, Any]:
        """The plain ones among the options, for config.toml; plug-ins are recorded as they were made."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values |= {"data": describe(self.data), "budgets": dict(sorted(self.budgets.items())), "solver": self._solver()}
        left_out = {"costs", "train_options", "logger", *(g for g in self.groups if g != "solver")}
        return plain({k: v for k, v in values.items() if k not in left_out})

    def _solver(self) -> dict[str, Any]:
        if self.solver.given == AUTO:
            return {"name": AUTO, **self.solver.options}
        return recorded(SOLVERS, self.solver.make(SOLVERS))

    @property
    def images_a_call(self) -> int:
        """Of the deployed network."""
        return 1

    def deployed_on(self) -> str:
        """The device; trained on a GPU, deployed under a runtime for CPUs, that is this machine's CPU."""
        devices: tuple[str, ...] = RUNTIMES[self.runtime].devices
        return self.device if self.device in devices else devices[0]

    def deployed_under(self) -> Runtime:
        """What the network is deployed under."""
        given = {
            "device": self.deployed_on(), "threads": self.threads, "target": self.target, "batch": self.images_a_call,
        }  # fmt: skip
        made: Runtime = RUNTIMES.make(self.runtime, given)
        return made

    def check_deployment(self) -> None:
        """Refuse what cannot be deployed or measured: a runtime that is not installed, a machine that is not there."""
        self.deployed_under().identity()
        costs = self.made_costs()
        for cost in costs.values():
            cost.identity()
        self.check_precision(costs)

    def check_precision(self, costs: Mapping[str, Cost]) -> None:
        """Refuse to deploy in int8 what is measured in float32 alone."""
        times = {n: cost for n, cost in costs.items() if cost.measured and cost.kind == TIME}
        lacking = [n for n, cost in times.items() if cost.int8() is None] if self.precision == "int8" else []
        if lacking:
            raise BadInput(
                f"precision int8 needs {lacking[0]} in int8, but there is none: its runtime does not compute in int8, "
                "or its profile was measured without --precision int8."
            )

    def made_costs(self) -> dict[str, Cost]:
        """The costs of this run by name: all that are counted, and those that are measured where that is asked for."""
        wanted = dict(self.costs)
        for name in COSTS.names():
            if name in self.budgets or (COSTS[name].usual and not COSTS[name].measured):
                wanted.setdefault(name, Plug(name))
        return {name: self.made_cost(plug) for name, plug in sorted(wanted.items())}

    def made_cost(self, plug: Plug) -> Cost:
        """A cost as this run measures it: under its runtime, where the cost has an option for that."""
        options = {f.name for f in dataclasses.fields(plug.resolve(COSTS))}
        run = {
            "runtime": self.runtime, "threads": self.threads, "device": self.deployed_on(), "target": self.target,
            "batch": self.images_a_call, **self.measuring,
        }  # fmt: skip
        cost: Cost = plug.make(COSTS, {k: v for k, v in run.items() if k in options})
        return cost


@dataclass(frozen=True, kw_only=True)
class Fit(Options):
    """What a person decides about a fit."""

    groups: ClassVar[tuple[str, ...]] = ("method", "space", "solver")

    method: Plug = Plug("trials")
    space: Plug = Plug(AUTO)  # the method's home
    batch: int = 1  # images that the deployed network is given in one call
    start: str | None = None  # a run, a safetensors file or timm:NAME: weights learnt elsewhere
    time: float | None = None  # seconds for everything, pricing and export included; None: what suits the effort
    devices: int = 1
    nodes: int = 1
    logger: str = AUTO  # where curves go: see sartor.engine.loggers; no part of what a run is

    @property
    def images_a_call(self) -> int:
        """As given."""
        return self.batch

    @property
    def seconds(self) -> float | None:
        """The time that was given, or else the effort's."""
        return self.time or super().seconds

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time is not None and self.time < _LEAST_TIME:
            raise BadInput(f"the time must be at least {_LEAST_TIME} s, but is {self.time:g} s. Give more.")
        if self.logger != AUTO:
            from sartor.engine.loggers import check_logger  # and with it torch

            check_logger(self.logger)
        check(self, batch=">= 1")
        method = self.method.resolve(METHODS)
        if self.space.given == AUTO:
            object.__setattr__(self, "space", dataclasses.replace(self.space, given=method.home))
        self.space.resolve(SPACES)  # refuse unknown names before anything is opened


Kind = TypeVar("Kind", bound=Options)


def default_folder(data: object) -> Path:
    """Where a run goes when nobody says: ``runs/NAME``, also for ``.`` and ``..``."""
    name = Path(data).resolve().name if isinstance(data, str | Path) else type(data).__name__
    return Path("runs") / (name or "run")


def read_costs(given: Any, trusted: bool = True) -> dict[str, Plug]:
    """Costs by name: ``{"energy": {"batch": 4}}``, or names, references, classes and instances in a list."""
    if isinstance(given, Mapping):
        for name, options in given.items():
            if not isinstance(options, Mapping):
                raise BadInput(f"costs.{name} must be a group of options, but got {options!r}.")
        made = {name: Plug.of(options, cost_of(name), trusted) for name, options in given.items()}
        return {name if "@" in name else plug.resolve(COSTS).name: plug for name, plug in made.items()}
    listed = given if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    plugs = [Plug(one, {}, trusted) for one in listed]
    return {plug.resolve(COSTS).name: plug for plug in plugs}


def read_targets(given: Any) -> dict[str, str]:
    """Targets by name, ``{"pi": "ssh://pi@pi4"}``; the name of a single one is empty."""
    found = given if isinstance(given, Mapping) else {} if given is None else {"": given}
    for name, address in found.items():
        if not isinstance(address, str) or not re.fullmatch(r"([A-Za-z][\w-]*)?", str(name)):
            raise BadInput(f"a target must be ADDRESS or NAME=ADDRESS, such as pi=ssh://pi@pi4, but got {given!r}.")
    return dict(found)


def usual_target(targets: Mapping[str, str]) -> str | None:
    """Where what names no target is measured: at the one without a name, or at the only one; None if there is none."""
    only = next(iter(targets.values())) if len(targets) == 1 else None
    return targets.get("", only)


def at_targets(costs: Mapping[str, Plug], targets: Mapping[str, str]) -> dict[str, Plug]:
    """The costs, each at the target whose name follows its own: ``latency@pi`` at that of ``pi``."""
    found, usual = dict(costs), usual_target(targets)
    for name in [n for n, plug in costs.items() if _placed(plug)]:
        at = name.partition("@")[2]
        address = targets.get(at) if at else usual
        if address is not None:
            found[name] = dataclasses.replace(costs[name], options={**costs[name].options, "target": address})
    return found


def at_new_targets(costs: Mapping[str, Plug], targets: Mapping[str, str]) -> dict[str, Plug]:
    """Those of a run that is there, at targets of which each must be one of theirs."""
    placed = [name for name, plug in costs.items() if _placed(plug)]
    known = {name.partition("@")[2] for name in placed}
    other = [at for at in targets if at not in known and not (len(targets) == 1 and "" in known)]
    if placed and other:
        named = ", ".join(sorted(known - {""})) or "without a name"
        raise BadInput(f"the targets of this run are {named}: give NAME=ADDRESS, but got {targets[other[0]]!r} for "
                       f"{other[0] or 'one without a name'}.")  # fmt: skip
    return at_targets(costs, targets)


def _placed(cost: Plug) -> bool:
    """Whether it is measured somewhere: at a target."""
    return "target" in {f.name for f in dataclasses.fields(cost.resolve(COSTS))}


def _at_each(costs: Mapping[str, Plug], budgets: Collection[str], targets: Mapping[str, str]) -> dict[str, Plug]:
    """The costs, and for every named target each cost that is limited or asked for anywhere and measured at targets."""
    named, usual = [name for name in targets if name], usual_target(targets)
    known = {name: Plug(name) for name in COSTS.names()} | dict(costs)
    wanted = [name for name in (*costs, *budgets) if cost_of(name) in known and _placed(known[cost_of(name)])]
    for name in budgets if usual is None and named else ():
        if name in wanted and "@" not in name:
            raise BadInput(
                f"the {name} budget must say at which of the targets {', '.join(named)} it holds: "
                f"--budget {name}@{named[0]}=AMOUNT."
            )
    if len(named) > 1 and not wanted:
        raise BadInput(
            f"nothing is measured at the targets {', '.join(named)}: give a budget for one of them, such as --latency "
            f"{named[0]}=5ms, or ask for --cost latency."
        )
    found = {n: plug for n, plug in costs.items() if usual is not None or not named or n not in wanted or "@" in n}
    for base in dict.fromkeys(map(cost_of, wanted)):
        here = base in wanted and usual is not None
        for at in named:
            if not (here and targets[at] == usual) or f"{base}@{at}" in wanted:
                found.setdefault(f"{base}@{at}", known[base])
    return found


def per_target(budgets: Any) -> Any:
    """Budgets by the names of their costs: ``{"latency": {"pi": "20ms"}}`` is one of ``latency@pi``."""
    if not isinstance(budgets, Mapping):
        return budgets
    found: dict[str, Any] = {}
    for name, amount in budgets.items():
        inner = amount if isinstance(amount, Mapping) else {"": amount}
        found |= {f"{name}@{at}" if at else name: value for at, value in inner.items()}
    return found


def parse_budgets(
    given: Mapping[str, str | float | None], costs: Mapping[str, Plug] | None = None, shares: bool = False
) -> dict[str, float | str]:
    """``{"params": "2M"}`` in Sartor's own units; with `shares` also ``40%`` of what is given, kept as text."""
    if not isinstance(given, Mapping):
        raise BadInput(f"budgets must be a group such as budgets.params, but got {given!r}.")
    known = {name: Plug(name) for name in COSTS.names()} | dict(costs or {})
    given = per_target(given)
    unknown = sorted(set(given) - set(known))
    if unknown and cost_of(unknown[0]) in known and unknown[0] != cost_of(unknown[0]):
        name, _, at = unknown[0].partition("@")
        if not _placed(known[name]):
            raise BadInput(f"{name} is the same at every target: give the budget {name}, without @{at}.")
        raise BadInput(f"the budget {unknown[0]} needs a target named {at}: add --target {at}=ssh://user@host.")
    if unknown:
        raise BadInput(
            f"there is no budget named {', '.join(unknown)}{nearest(unknown[0], known)}; budgets are "
            f"{', '.join(known)}, and any cost of your own given with --cost package.module:Class."
        )
    found: dict[str, float | str] = {}
    for name, text in given.items():
        if shares and isinstance(text, str) and text.strip().endswith("%"):
            share_of(name, text)
            found[name] = text
        elif text is not None:
            found[name] = known[name].resolve(COSTS).kind.parse(text, f"the {name} budget")
    return found


def share_of(name: str, text: str) -> float:
    """``40%`` as 0.4."""
    try:
        share = float(text.strip()[:-1]) / 100
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise BadInput(f"the {name} budget must be between 0% and 100% of the given network, but is {text!r}.")
    return share


def grouped(values: Mapping[str, Any], cls: type[Options] = Fit) -> dict[str, Any]:
    """The same with ``method = "binas"`` written as a group, so that ``method.passes`` can be added to it."""
    found = {k: {"name": v} if k in cls.groups and isinstance(v, str) else v for k, v in values.items()}
    if "costs" in found and not isinstance(found["costs"], Mapping):
        found["costs"] = {n: {"name": p.given} for n, p in read_costs(found["costs"]).items()}
    return found


def from_mapping(values: Mapping[str, Any], trusted: bool = True) -> Fit:
    """The options of a fit."""
    return read(values, Fit, trusted)


def read(values: Mapping[str, Any], cls: type[Kind], trusted: bool = True) -> Kind:
    """Options from nested values, as TOML, --set and Python give them: a group may carry its plug-in as ``name``.

    `trusted` is False for values that were read from a run's own files.
    """
    flat = dict(values)
    if not trusted:
        refuse_code(flat)
    if "train" in flat:
        flat["train_options"] = flat.pop("train")
    targets = read_targets(flat.pop("target", None))
    costs = read_costs(flat.get("costs") or {}, trusted)
    budgets = flat.get("budgets")
    costs = _at_each(costs, per_target(budgets if isinstance(budgets, Mapping) else {}), targets)
    costs = flat["costs"] = at_targets(costs, {name: at for name, at in targets.items() if name})
    usual = usual_target(targets)
    flat |= {} if usual is None else {"target": usual}
    flat["budgets"] = parse_budgets(flat.get("budgets", {}), costs, cls.shares)
    defaults: dict[str, Any] = {f.name: f.default for f in dataclasses.fields(cls)}
    for name in cls.groups:
        if name in flat:
            flat[name] = Plug.of(flat[name], defaults[name].given, trusted)
    if flat.get("time") is not None:
        flat["time"] = DURATION.parse(flat["time"], "the time")
    if "runtime" in flat:
        RUNTIMES.resolve(flat["runtime"], trusted=trusted)
        flat["runtime"] = RUNTIMES.reference(flat["runtime"])
    return build(cls, flat, "the configuration")  # type: ignore[no-any-return]
