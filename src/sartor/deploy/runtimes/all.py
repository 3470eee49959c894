"""The runtimes a network can be deployed under: how one inference is called, and what the device is."""

from __future__ import annotations

import copy
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.errors import BadInput, require
from sartor.deploy.module import evaluating, onnx_graph, session
from sartor.deploy.timing import Workload

RUNTIMES = ("onnxruntime", "torch")
DEVICES = ("cpu", "cuda")


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


@contextmanager
def threads_of_torch(threads: int) -> Iterator[None]:
    """`threads` for PyTorch's operators; the caller's number comes back afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(
    model: nn.Module | Path, in_shape: Sequence[int], runtime: str, device: str, threads: int, batch: int
) -> Workload:
    """One inference of `model` (a module, or an exported ONNX file) on a fixed random input, as a call."""
    if runtime == "onnxruntime":
        return _onnxruntime(model, in_shape, threads, batch)
    if not isinstance(model, nn.Module):
        raise BadInput(f"runtime torch must be given a module, but got the file {model}.")
    return _torch(model, in_shape, device, batch)


def _onnxruntime(model: nn.Module | Path, in_shape: Sequence[int], threads: int, batch: int) -> Workload:
    source = onnx_graph(model, in_shape, batch) if isinstance(model, nn.Module) else model
    run = session(source, threads)
    feed = {run.get_inputs()[0].name: _pixels(in_shape, batch)}
    return lambda: run.run(None, feed)


def _torch(model: nn.Module, in_shape: Sequence[int], device: str, batch: int) -> Workload:
    with evaluating(model):
        net = copy.deepcopy(model).to(device).eval()
    x = torch.from_numpy(_pixels(in_shape, batch)).to(device)

    def on_cpu() -> Tensor:
        with torch.inference_mode():
            out: Tensor = net(x)
        return out

    def on_cuda() -> Tensor:
        with torch.inference_mode():
            out: Tensor = net(x)
        torch.cuda.synchronize()  # a call has ended when its result is there, not when it is queued
        return out

    return on_cpu if device == "cpu" else on_cuda


def _pixels(in_shape: Sequence[int], batch: int) -> np.ndarray:
    return np.random.default_rng(0).random((batch, *in_shape), np.float32) * 255


def check(runtime: str, device: str) -> None:
    """Refuse what cannot be measured here."""
    if runtime not in RUNTIMES:
        raise BadInput(f"runtime must be one of {', '.join(RUNTIMES)}, but got {runtime!r}.")
    if device not in DEVICES:
        raise BadInput(f"device must be one of {', '.join(DEVICES)}, but got {device!r}.")
    if device == "cuda" and runtime != "torch":
        raise BadInput("device cuda is measured under runtime torch: add --runtime torch.")


def device_identity(runtime: str, device: str, threads: int, batch: int) -> dict[str, Any]:
    """What a measured time depends on besides the network; times of different identities never mix."""
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("device cuda needs a CUDA GPU that this PyTorch can use, but it finds none. Use --device cpu.")
    version = torch.__version__ if runtime == "torch" else require("onnxruntime", "onnx").__version__
    identity = {
        "device": device,
        "processor": torch.cuda.get_device_name() if device == "cuda" else _processor(),
        "cores": os.cpu_count() or 1,
        "threads": threads,
        "batch": batch,
        "runtime": runtime,
        "runtime_version": str(version),
        "torch": str(torch.__version__),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    return identity


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
