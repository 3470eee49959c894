"""Half precision on a CPU: bfloat16, where the processor has instructions for it.

A training step of a network of dense convolutions takes 1.4 to 1.7 times less then, one with depthwise convolutions,
which stay in 32 bits (`spaces/depthwise.py`), 1.1 to 1.6 times less. Weights, their moving average and whatever is
measured keep 32 bits.

Libraries have ended the whole process on processors that promised such instructions and did not have them, so it is
tried in a process of its own first, once for a machine.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import platform
import subprocess
import sys
from pathlib import Path

import torch

from sartor.runs.directory import cache_folder

_PROMISES = {"avx512_bf16", "amx_bf16"}  # bf16 without them is emulated, and slower
_PATIENCE = 60.0  # seconds
_TRY = """
import torch
torch.set_num_threads(1)
for inputs, outputs, size, stride in ((3, 8, 3, 2), (8, 16, 1, 1), (16, 24, 3, 1), (24, 96, 1, 1), (96, 96, 3, 2)):
    layers = torch.nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), torch.nn.BatchNorm2d(outputs)
    net = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(outputs, 10))
    net, x = net.to(memory_format=torch.channels_last), torch.randn(4, inputs, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(x.contiguous(memory_format=torch.channels_last)).float().square().sum()
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())
x = torch.randn(2, 96, 200).bfloat16()  # as orthogonal steps multiply
assert torch.isfinite(x @ x.mT).all() and torch.isfinite((x @ x.mT) @ x).all()
"""


@functools.cache
def computed() -> bool:
    """Whether this machine's CPU computes in bfloat16, and survives it."""
    flags = _flags()
    if not _PROMISES & set(flags.split()):
        return False
    folder = cache_folder("half")
    told = f"{torch.__version__} {platform.node()} {flags} {_TRY}"
    file = None if folder is None else folder / hashlib.sha256(told.encode()).hexdigest()[:16]
    if file is not None and file.is_file():
        return file.read_text() == "works\n"
    try:
        tried = subprocess.run([sys.executable, "-c", _TRY], capture_output=True, check=False, timeout=_PATIENCE)
        works = tried.returncode == 0
    except subprocess.TimeoutExpired:
        works = False
    if file is not None:
        with contextlib.suppress(OSError):  # next time it is tried again
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("works\n" if works else "fails\n")
    return works


def _flags() -> str:
    """What the processor says it can do, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
