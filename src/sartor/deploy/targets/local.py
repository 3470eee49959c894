"""The machine that the search itself runs on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch

from sartor.core.errors import BadInput
from sartor.deploy.targets.base import Target


@final
@dataclass(frozen=True, kw_only=True)
class Local(Target):
    """The machine that Sartor itself runs on."""

    def identity(self, device: str) -> dict[str, Any]:
        """Processor, cores and platform."""
        if device == "cuda" and not torch.cuda.is_available():
            raise BadInput("device cuda needs a CUDA GPU that this PyTorch can use, but it finds none: --device cpu.")
        return {
            "device": device,
            "processor": torch.cuda.get_device_name() if device == "cuda" else _processor(),
            "cores": os.cpu_count() or 1,
            "platform": f"{platform.system()} {platform.machine()}",
        }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


PLUGIN = Local
