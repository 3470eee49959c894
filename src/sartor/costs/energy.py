"""Energy per image: by the processor's own counter where the kernel offers it (RAPL), else by a table of prices.

The counter is of the whole processor and too coarse for a single part: parts are always priced by the table, and whole
networks, built as deployed, then set its scale. It is read on this machine: at another target the table counts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np

from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.core.registry import RUNTIMES
from sartor.core.task import Task
from sartor.core.units import Kind
from sartor.costs.base import ANY, INT8, Cost, CostTable, Measured, Occasion, Tick, silent
from sartor.costs.flash import Flash
from sartor.costs.macs import Macs
from sartor.costs.memory import Memory
from sartor.deploy.targets.base import target_of
from sartor.deploy.timing import interval
from sartor.spaces.base import Shape, Space

if TYPE_CHECKING:
    from torch import nn

    from sartor.deploy.runtimes.base import Runtime
    from sartor.deploy.timing import Workload

_ROUNDS = 9


@dataclass(frozen=True, kw_only=True)
class Energy(Cost):
    """Millijoules per image: all that the processor draws meanwhile (RAPL), or by a price per operation and byte.

    The table's prices are those of Horowitz (ISSCC 2014), 45 nm: a 32-bit multiply-add 4.6 pJ, one of 8 bits with a
    32-bit sum 0.3 pJ, a byte from memory 160 pJ, every weight read once. Give those of your device with
    ``costs.energy.mac_pj``, ``costs.energy.int8_mac_pj`` and ``costs.energy.byte_pj``.
    """

    kind: ClassVar[Kind] = Kind("energy", {"nJ": 1e-6, "uJ": 1e-3, "mJ": 1.0, "J": 1e3})
    measured: ClassVar[bool] = True
    precision: ClassVar[Literal["float32", "int8"]] = "float32"

    source: Literal["auto", "rapl", "table"] = "auto"
    mac_pj: float = 4.6
    int8_mac_pj: float = 0.3
    byte_pj: float = 160.0
    rapl: str = "/sys/class/powercap/intel-rapl:[0-9]"  # a folder for each socket, which are added up
    seconds: float = 1.5  # how long a network is called, again and again, to be measured
    runtime: str = "onnxruntime"
    threads: int = 1
    batch: int = 1
    target: str = "local"

    def __post_init__(self) -> None:
        check(self, mac_pj=">= 0", int8_mac_pj=">= 0", byte_pj=">= 0", seconds="> 0", batch=">= 1")
        here = target_of(self.target).here
        if self.source == "rapl" and not here:
            raise BadInput(
                f"energy from RAPL is read on this machine, but the target is {self.target}. Use "
                "costs.energy.source=table, with mac_pj and byte_pj of that device."
            )
        if self.source == "rapl" and self._counter() is None:
            raise BadInput(
                f"energy from RAPL needs {self.rapl}/energy_uj, readable; it is not here (another processor, a virtual "
                "machine, or readable by root alone). Use costs.energy.source=table."
            )

    def identity(self) -> dict[str, Any]:
        """The device and the runtime, where the counter is read."""
        if self._counter() is None:
            return {}
        return {"source": "rapl", **self._runtime().identity()}

    def _runtime(self) -> Runtime:
        given = {"threads": self.threads, "batch": self.batch, "precision": self.precision}
        made: Runtime = RUNTIMES.make(self.runtime, given)
        return made

    def int8(self) -> Cost | None:
        """In 8 bits, where the runtime computes in these."""
        options = {f.name: getattr(self, f.name) for f in fields(self)}
        return Int8Energy(**options) if RUNTIMES[self.runtime].int8 else None

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """By the table of prices."""
        picojoules = self.mac_pj * Macs().of(module, in_shape) + self.byte_pj * Memory().of(module, in_shape)
        return picojoules * 1e-9

    def table(self, space: Space, task: Task, tick: Tick = silent, cache: Path | None = None) -> CostTable:
        """Parts by the table of prices; where there is a counter, as much as the heaviest network really draws."""
        from sartor.costs.latency.cost import as_deployed

        made = super().table(space, task, tick, cache)
        if self._counter() is None:
            return made
        image = (task.channels, task.image, task.image)
        drawn = self.measure(as_deployed(space, space.heaviest, task), image).value
        return made.scaled(space.heaviest, drawn, both_ways=True)

    def measure(self, net: nn.Module, in_shape: Shape, at: Occasion = ANY) -> Measured:
        """What a call draws, per image: the median of some rounds, and the upper end of its interval."""
        counter = self._counter()
        if counter is None:
            value = self.of(net, in_shape)
            return Measured(value, value, {"source": "table"})
        runtime = self._runtime()
        call = runtime.workload(at.file if at.file is not None and runtime.exported else net, in_shape)
        call()
        rounds = [counter.drawn(call, self.seconds / _ROUNDS) / self.batch for _ in range(_ROUNDS)]
        return Measured(float(np.median(rounds)), interval(rounds)[1], {"source": "rapl"})

    def _counter(self) -> Counter | None:
        if self.source == "table" or not target_of(self.target).here:
            return None
        counter = Counter(tuple(map(Path, sorted(glob(self.rapl)))))
        return counter if counter.readable() else None


@final
@dataclass(frozen=True, kw_only=True)
class Int8Energy(Energy):
    """Millijoules per image in int8."""

    name: ClassVar[str] = Energy.name
    precision: ClassVar[Literal["float32", "int8"]] = "int8"

    def identity(self) -> dict[str, Any]:
        """In 8 bits, in any case."""
        return INT8 | super().identity()

    def of(self, module: nn.Module, in_shape: Shape) -> float:
        """By the table of prices."""
        picojoules = self.int8_mac_pj * Macs().of(module, in_shape) + self.byte_pj * Flash().of(module, in_shape)
        return picojoules * 1e-9


@dataclass(frozen=True)
class Counter:
    """The kernel's counters of microjoules, one a socket, which begin again at zero now and then."""

    sockets: tuple[Path, ...]

    def readable(self) -> bool:
        """Whether this machine has any, and this user may read them."""
        try:
            return bool(self.sockets) and min(map(self.microjoules, self.sockets)) >= 0
        except (OSError, ValueError):
            return False

    @staticmethod
    def microjoules(socket: Path) -> int:
        """As it stands."""
        return int((socket / "energy_uj").read_text())

    def drawn(self, call: Workload, seconds: float) -> float:
        """Millijoules a call while it is called for so long."""
        before, start, calls = [self.microjoules(s) for s in self.sockets], time.perf_counter(), 0
        while time.perf_counter() - start < seconds or not calls:
            call()
            calls += 1
        total = 0
        for socket, began in zip(self.sockets, before, strict=True):
            spent = self.microjoules(socket) - began
            total += spent if spent >= 0 else spent + int((socket / "max_energy_range_uj").read_text())
        return total / 1e3 / calls


PLUGIN = Energy
