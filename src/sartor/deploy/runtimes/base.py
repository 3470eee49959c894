"""The contract of a runtime: how a network is loaded and called where it is deployed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.core.registry import RUNTIMES
from sartor.core.threads import bounded
from sartor.deploy.module import onnx_graph
from sartor.deploy.probe import visit
from sartor.deploy.quantise import sketched
from sartor.deploy.targets.base import Build, target_of, unheard
from sartor.deploy.timing import Stopwatch, Workload

Pixels = np.ndarray[Any, np.dtype[np.float32]]


class Reference(nn.Sequential):
    """The fixed workload by which the machine's speed is compared between two moments."""

    shape = (16, 16, 16)

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for _ in range(4):
            layers += [
                nn.Conv2d(16, 32, 1),
                nn.ReLU(),
                nn.Conv2d(32, 32, 3, padding=1, groups=32),
                nn.Conv2d(32, 16, 1),
            ]
        super().__init__(*layers)


@dataclass(frozen=True, kw_only=True)
class Runtime(ABC):
    """A frozen dataclass: one way of calling networks on one device, with so many threads and images a call."""

    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    exported: ClassVar[bool] = True  # it loads the exported file; else the module as it is in Python
    int8: ClassVar[bool] = False  # whether it computes exported files in 8 bits that are quantised
    # Of the form that `convert` makes: its name, and Python that imports what is needed and makes `logits` of `pixels`
    # by the file that stands for {file}; whether it holds code, so that one from elsewhere is not loaded.
    form: ClassVar[str | None] = None
    imports: ClassVar[str] = ""
    call: ClassVar[str] = ""
    code: ClassVar[bool] = False

    device: str = "cpu"
    threads: int = 1
    batch: int = 1
    target: str = "local"
    precision: Literal["float32", "int8"] = "float32"  # of modules; an exported file is called as it is

    def __post_init__(self) -> None:
        check(self, batch=">= 1", threads=">= 1")
        if self.precision == "int8" and not self.int8:
            able = [n for n in RUNTIMES.names() if RUNTIMES[n].int8]
            raise BadInput(f"precision int8 needs a runtime that has it, {' or '.join(able)}, but got {self.name}.")
        target = target_of(self.target)
        if target.here:
            bounded(self.threads)
        elif target.live and type(self).portable is Runtime.portable:
            raise BadInput(
                f"runtime {self.name} is timed on this machine only, but the target is {self.target}: add --runtime "
                "onnxruntime, or leave the target out."
            )
        if self.device not in self.devices:
            others = [n for n in RUNTIMES.names() if self.device in RUNTIMES[n].devices]
            hint = f": add --runtime {others[0]}" if others else ""
            raise BadInput(
                f"{self.name} runs on device {' or '.join(self.devices)}, but the device is {self.device!r}{hint}."
            )

    @property
    def name(self) -> str:
        """As certificates write it."""
        return str(RUNTIMES.reference(self))

    @abstractmethod
    def version(self) -> str:
        """Of the runtime itself: another one may be faster."""

    @abstractmethod
    def prepare(self, model: nn.Module | Path, pixels: Pixels) -> Workload:
        """One inference of `model` (a module, or where `exported` a file) on `pixels`, as a call that gives logits."""

    def run(self, model: nn.Module | Path, pixels: Pixels) -> np.ndarray[Any, Any]:
        """The logits."""
        return np.asarray(self.prepare(model, pixels)())

    def time(self, call: Workload, seconds: float) -> list[float]:
        """Milliseconds of every call during `seconds`."""
        return visit(call, seconds)

    def workload(self, model: nn.Module | Path, in_shape: Sequence[int]) -> Workload:
        """One inference on a fixed random batch."""
        if isinstance(model, Path) and not model.is_file():
            raise BadInput(f"{model} must be an exported network, but there is no such file.")
        return self.prepare(model, np.random.default_rng(0).random((self.batch, *in_shape), np.float32) * 255)

    def graph(self, model: nn.Module, in_shape: Sequence[int]) -> bytes:
        """The module as an ONNX graph in this precision."""
        made = onnx_graph(model, in_shape, self.batch)
        return sketched(made, self.weight_bits) if self.precision == "int8" else made

    def portable(self, model: nn.Module | Path, in_shape: Sequence[int]) -> bytes:
        """The model as the measuring program loads it on another machine (`sartor.deploy.probe`), where it can."""
        raise NotImplementedError

    def convert(self, source: Path, net: nn.Module, example: Pixels, folder: Path) -> list[Path]:
        """The form that this runtime loads, in `folder`, from the exported file or the network; its own file first."""
        raise BadInput(f"runtime {self.name} has no form of its own: it runs model.onnx.")

    def stopwatch(
        self, builds: Mapping[str, Build], tick: Callable[[int, int], None] = unheard
    ) -> AbstractContextManager[Stopwatch]:
        """Times networks on the target."""
        return target_of(self.target).stopwatch(self, builds, tick)

    @property
    def weight_bits(self) -> int:
        """Of int8 weights, so that no product overflows on the target."""
        return target_of(self.target).weight_bits(self)

    def identity(self) -> dict[str, Any]:
        """What a measured time depends on besides the network; times of different identities never mix."""
        own = {"threads": self.threads, "batch": self.batch, "runtime": self.name, "torch": str(torch.__version__)}
        if self.precision != "float32":
            own |= {"precision": self.precision, "weight_bits": self.weight_bits}
        return {**own, "runtime_version": self.version(), **target_of(self.target).identity(self)}
