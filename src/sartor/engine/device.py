"""Where computing happens: a device, its precision, and how many processes share the work."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.errors import BadInput, RunError
from sartor.core.threads import bounded
from sartor.engine import half, watch
from sartor.spaces.mending import mended

if TYPE_CHECKING:
    from lightning_fabric.loggers.logger import Logger

_MOMENT = 10.0  # seconds
_LEAST_PART = 16  # images of a batch that a thread has for itself: statistics of fewer are rough


class Way(NamedTuple):
    """How a CPU trains: so many hands, each with a part of the batch, of so many threads each."""

    hands: int
    threads: int


def check_device(device: str) -> str:
    """The device itself, where there is one."""
    if device not in ("cpu", "cuda"):
        raise BadInput(f"device must be cpu or cuda, but got {device!r}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("device cuda was asked for, but PyTorch sees no CUDA device here. Use --device cpu.")
    return device


class Engine:
    """A thin layer over Lightning Fabric.

    Fabric starts the processes and moves the bytes. Gradients are averaged here in one flat
    all-reduce rather than by DistributedDataParallel: in a supernet most steps leave some
    parameters unused, which DDP would have to search for at every step.
    """

    def __init__(self, device: str = "cpu", devices: int = 1, nodes: int = 1, loggers: Sequence[Logger] = ()) -> None:
        from lightning_fabric import Fabric

        check_device(device)
        if device == "cuda" and devices > torch.cuda.device_count():
            raise BadInput(f"{devices} CUDA devices were asked for, but there are {torch.cuda.device_count()}.")
        if devices < 1 or nodes < 1:
            raise BadInput(f"devices and nodes must be at least 1, but got {devices} and {nodes}.")
        if device == "cpu":
            bounded(devices, "devices")
        accelerator = "cuda" if device == "cuda" else "cpu"
        precision: Any = "bf16-mixed" if device == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
        strategy = "ddp" if devices * nodes > 1 else "auto"
        with _quiet_fabric():
            self.fabric = Fabric(
                accelerator=accelerator, strategy=strategy, devices=devices, num_nodes=nodes, precision=precision,
                loggers=list(loggers),
            )  # fmt: skip
        self.watch: watch.Watch | None = None
        self._pool: tuple[Way, ThreadPoolExecutor] | None = None
        self.hands = 1  # threads that take a part of every training batch each, on a CPU (`hands.py`)
        if devices * nodes > 1:
            observer = logging.getLogger("lightning_fabric.strategies.launchers.subprocess_script")
            observer.setLevel(logging.INFO)
            observer.handlers, observer.propagate = [_Obituary(self._children)], False
            self.fabric.launch()
            atexit.register(_leave)
            token = self.fabric.broadcast(secrets.token_hex(8))
            placed = watch.Watch(self.rank, self.world, token)
            self.fabric.barrier()
            self.watch = watch.start(placed)
        if device == "cuda":
            # cuDNN's own benchmarking would start anew at every step: multi-path batches split differently each time.
            torch.backends.cudnn.benchmark = False
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True

    def set_threads(self, image: int) -> None:
        """Threads for training on the CPU: one for tiny images, where several wait for each other more than they work.

        A function of the machine and the image size alone, since the number of threads decides the last bit of a sum;
        a training planned in seconds times its steps instead (`plan.py`).
        """
        self.use_threads(1 if image < 16 or self.device.type != "cpu" else self.cores)

    def batch(self, usual: int, trained: int) -> int:
        """Images of a pass that is no training step: on a GPU as many as there, since every other shape needs
        convolution plans of its own, which take longer than the pass; `usual` elsewhere.
        """
        return trained if self.device.type == "cuda" else usual

    @property
    def cores(self) -> int:
        """Cores of the machine that this process may use as its own."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, cores // self.fabric.world_size)

    def ways(self, batch: int, cores: int | None = None) -> tuple[Way, ...]:
        """The ways to train with so many cores that are worth timing; a GPU's host needs one thread.

        One thread, all of them inside every operation, or in hands that have a part of the batch each.
        """
        cores = cores or self.cores
        if self.device.type != "cpu" or cores == 1:
            return (Way(1, 1),)
        most = min(cores, max(1, batch // self.world // _LEAST_PART))
        counts = [2**k for k in range(most.bit_length())]
        return (Way(1, 1), *(Way(hands, cores // hands) for hands in counts))

    def use(self, way: Way) -> None:
        """Train on the CPU in this way."""
        if self.device.type == "cpu":
            self.hands = way.hands
            torch.set_num_threads(way.threads)

    def use_threads(self, threads: int) -> None:
        """Compute with so many threads on the CPU, which work on one operation at a time."""
        self.use(Way(1, threads))

    @property
    def pool(self) -> ThreadPoolExecutor:
        """The threads that take parts of a batch."""
        way = Way(self.hands, torch.get_num_threads())
        if self._pool is None or self._pool[0] != way:
            if self._pool is not None:
                self._pool[1].shutdown()
            self._pool = way, ThreadPoolExecutor(way.hands, "hand", torch.set_num_threads, (way.threads,))
        return self._pool[1]

    @property
    def device(self) -> torch.device:
        """The device of this process."""
        return self.fabric.device

    @property
    def rank(self) -> int:
        """The number of this process."""
        return self.fabric.global_rank

    @property
    def world(self) -> int:
        """How many processes share the work."""
        return self.fabric.world_size

    def place(self, module: nn.Module) -> Any:
        """The module on the device, channels-last: the faster layout for depthwise convolutions."""
        return mended(module).to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

    def autocast(self, on_cpu: bool = False) -> contextlib.AbstractContextManager[Any]:
        """Mixed precision where the device has it; on a CPU only where that is asked for, since sums lose digits."""
        if on_cpu and self.device.type == "cpu" and half.computed():
            return torch.autocast("cpu", torch.bfloat16)
        return self.fabric.autocast()

    def cast(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function under mixed precision."""

        def under(*args: Any) -> Any:
            with self.autocast():
                return function(*args)

        return under

    def average_gradients(self, parameters: list[nn.Parameter]) -> None:
        """The mean gradient over all processes; a parameter unused here counts as zero."""
        if self.world == 1:
            return
        grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
        flat = self._reduced(torch.cat([g.flatten() for g in grads]), "mean")
        for p, piece in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
            p.grad = piece.view_as(p)

    @torch.no_grad()
    def average(self, tensors: list[Tensor]) -> None:
        """Each tensor becomes its mean over all processes: running statistics, say, which differ between them."""
        if self.world == 1:
            return
        flat = self._reduced(torch.cat([t.flatten() for t in tensors]), "mean")
        for tensor, piece in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(piece.view_as(tensor))

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The element-wise sum over all processes, exact for counts."""
        if self.world == 1:
            return array
        return self._reduced(torch.from_numpy(array.copy()).to(self.device), "sum").cpu().numpy()

    def agree(self, value: Any) -> Any:
        """The first process's value, in every process."""
        if self.world == 1:
            return value
        with self._together():
            return self.fabric.broadcast(value)

    def barrier(self) -> None:
        """Wait until every process is here."""
        if self.world > 1:
            with self._together():
                self.fabric.barrier()

    def _reduced(self, tensor: Tensor, how: str) -> Tensor:
        with self._together():
            total: Any = self.fabric.all_reduce(tensor, reduce_op=how)
        return total  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """Something that all processes do at once: where it fails, one of them is gone."""
        try:
            with self.watch.meeting() if self.watch else contextlib.nullcontext():
                yield
        except RuntimeError as error:
            if "memory" in str(error):
                raise
            raise RunError(f"{self._gone()}, {watch.ADVICE}") from error

    def _children(self) -> list[subprocess.Popen[bytes]]:
        """The processes that this one started."""
        return getattr(self.fabric.strategy.launcher, "procs", [])

    def _gone(self) -> str:
        """Who ended, as far as can be seen from here; how, only the process that started it can see."""
        until, ended = time.monotonic() + 3, list[int]()
        while time.monotonic() < until and not ended:
            time.sleep(0.1)
            ended = self.watch.ended() if self.watch else []
        how = {n: _how(child.poll()) for n, child in enumerate(self._children(), 1)}
        told = (f"process {n} of {self.world} ended{how.get(n, '')}" for n in ended)
        return " and ".join(told) or f"another of the {self.world} processes ended"


def _how(code: int | None) -> str:
    """An exit code for people, in brackets; nothing where it is not known."""
    if code is None:
        return ""
    return f" (killed by signal {-code})" if code < 0 else f" (exit code {code})"


class _Obituary(logging.Handler):
    """Fabric looks every 5 s after the processes it started, and says so here before it ends all for the sake of one.

    Who waits for the dead one finds out by itself and says more; so there is a moment for that.
    """

    def __init__(self, children: Callable[[], list[subprocess.Popen[bytes]]]) -> None:
        super().__init__()
        self.children = children

    def emit(self, record: logging.LogRecord) -> None:
        """In a thread of Fabric's, which ends with the process."""
        time.sleep(_MOMENT)
        told = record.getMessage().partition(" Forcefully")[0]
        sys.stderr.write(f"sartor: {told} Run the same command again: it goes on from the last epoch.\n")
        sys.stderr.flush()
        for child in self.children():
            child.kill()
        os._exit(2)


def _leave() -> None:
    """End the process group before the interpreter does: its threads would otherwise abort the process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _quiet_fabric() -> Iterator[None]:
    """Fabric announces itself through the logging module; a library should not."""
    for name in ("lightning_fabric", "lightning_fabric.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    yield
