"""The machine that the search itself runs on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch

from sartor.core.errors import BadInput
from sartor.deploy.probe import machine, weight_bits
from sartor.deploy.targets.base import Build, Target, unheard
from sartor.deploy.timing import InProcess, Stopwatch, Workload, threads_of_torch

if TYPE_CHECKING:
    from sartor.deploy.runtimes.base import Runtime


@final
@dataclass(frozen=True, kw_only=True)
class Local(Target):
    """The machine that Sartor itself runs on."""

    here: ClassVar[bool] = True

    def identity(self, runtime: Runtime) -> dict[str, Any]:
        """Processor, cores and platform."""
        if runtime.device != "cuda":
            return {"device": runtime.device, **machine()}
        if not torch.cuda.is_available():
            raise BadInput("device cuda needs a CUDA GPU that this PyTorch can use, but it finds none: --device cpu.")
        return {"device": "cuda", **machine(), "processor": torch.cuda.get_device_name()}

    def weight_bits(self, runtime: Runtime) -> int:
        """By this processor."""
        return weight_bits()

    @contextmanager
    def stopwatch(
        self, runtime: Runtime, builds: Mapping[str, Build], tick: Callable[[int, int], None] = unheard
    ) -> Iterator[Stopwatch]:
        """In this process."""
        with threads_of_torch(runtime.threads):
            yield InProcess(_Built(builds, runtime, tick), runtime.time)


class _Built(Mapping[str, Workload]):
    """Workloads that are made when they are first asked for: what a killed sitting has measured need not be."""

    def __init__(self, builds: Mapping[str, Build], runtime: Runtime, tick: Callable[[int, int], None]) -> None:
        self.builds, self.runtime, self.tick = builds, runtime, tick
        self.made: dict[str, Workload] = {}

    def __getitem__(self, name: str) -> Workload:
        if name not in self.made:
            build, shape = self.builds[name]
            self.made[name] = self.runtime.workload(build(), shape)
            self.tick(len(self.made), len(self.builds))
        return self.made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.builds)

    def __len__(self) -> int:
        return len(self.builds)


PLUGIN = Local
