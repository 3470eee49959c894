"""Where computing happens: a device, its precision, and how many processes share the work."""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.errors import BadInput
from sartor.spaces.pooling import mended


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

    def __init__(self, device: str = "cpu", devices: int = 1, nodes: int = 1) -> None:
        from lightning_fabric import Fabric

        check_device(device)
        if device == "cuda" and devices > torch.cuda.device_count():
            raise BadInput(f"{devices} CUDA devices were asked for, but there are {torch.cuda.device_count()}.")
        if devices < 1 or nodes < 1:
            raise BadInput(f"devices and nodes must be at least 1, but got {devices} and {nodes}.")
        accelerator = "cuda" if device == "cuda" else "cpu"
        # Matrix products in bf16 end the process on some CPUs: mixed precision is for CUDA.
        precision: Any = "bf16-mixed" if device == "cuda" and torch.cuda.is_bf16_supported() else "32-true"
        strategy = "ddp" if devices * nodes > 1 else "auto"
        with _quiet_fabric():
            self.fabric = Fabric(
                accelerator=accelerator, strategy=strategy, devices=devices, num_nodes=nodes, precision=precision
            )
        if devices * nodes > 1:
            self.fabric.launch()
            atexit.register(_leave)
        if device == "cuda":
            # cuDNN's own benchmarking would start anew at every step: multi-path batches split differently each time.
            torch.backends.cudnn.benchmark = False
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True

    def set_threads(self, image: int) -> None:
        """Threads for training on the CPU: one for tiny images, where several wait for each other more than they work.

        A function of the machine and the image size alone, since the number of threads decides the last bit of a sum;
        a training planned in seconds times its steps instead (`plan.py`).
        """
        self.use_threads(1 if image < 16 else max(self.thread_counts()))

    def batch(self, usual: int, trained: int) -> int:
        """Images of a pass that is no training step: on a GPU as many as there, since every other shape needs
        convolution plans of its own, which take longer than the pass; `usual` elsewhere.
        """
        return trained if self.device.type == "cuda" else usual

    def thread_counts(self) -> tuple[int, ...]:
        """The numbers of threads worth trying: one, and this process's share of the cores; a GPU's host needs one."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        share = max(1, cores // self.fabric.world_size) if self.device.type == "cpu" else 1
        return (1,) if share == 1 else (1, share)

    def use_threads(self, threads: int) -> None:
        """Compute with so many threads on the CPU."""
        if self.device.type == "cpu":
            torch.set_num_threads(threads)

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

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Mixed precision where the device has it."""
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
        flat = torch.cat([g.flatten() for g in grads])
        flat = self.fabric.all_reduce(flat, reduce_op="mean")  # type: ignore[assignment]
        for p, piece in zip(parameters, torch.split(flat, [p.numel() for p in parameters]), strict=True):
            p.grad = piece.view_as(p)

    @torch.no_grad()
    def average(self, tensors: list[Tensor]) -> None:
        """Each tensor becomes its mean over all processes: running statistics, say, which differ between them."""
        if self.world == 1:
            return
        flat: Any = self.fabric.all_reduce(torch.cat([t.flatten() for t in tensors]), reduce_op="mean")
        for tensor, piece in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(piece.view_as(tensor))

    def sum(self, array: np.ndarray) -> np.ndarray:
        """The element-wise sum over all processes, exact for counts."""
        if self.world == 1:
            return array
        total: Tensor = self.fabric.all_reduce(torch.from_numpy(array.copy()).to(self.device), reduce_op="sum")  # type: ignore[assignment]
        return total.cpu().numpy()

    def agree(self, value: Any) -> Any:
        """The first process's value, in every process."""
        return self.fabric.broadcast(value) if self.world > 1 else value

    def barrier(self) -> None:
        """Wait until every process is here."""
        if self.world > 1:
            self.fabric.barrier()


def _leave() -> None:
    """End the process group before the interpreter does: its threads would otherwise abort the process."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _quiet_fabric() -> Iterator[None]:
    """Fabric announces itself through the logging module; a library should not."""
    import logging

    for name in ("lightning_fabric", "lightning_fabric.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    yield
