"""PyTorch itself, on a CPU or a CUDA GPU."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.errors import BadInput
from sartor.deploy.module import evaluating
from sartor.deploy.runtimes.base import Pixels, Runtime
from sartor.deploy.timing import Workload


@final
@dataclass(frozen=True, kw_only=True)
class Torch(Runtime):
    """PyTorch's own inference, eager, on this machine's CPU or GPU."""

    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    exported: ClassVar[bool] = False
    form: ClassVar[str | None] = "torchscript"
    imports: ClassVar[str] = "import torch"
    call: ClassVar[str] = """\
net = torch.jit.load("{file}")
with torch.no_grad():
    logits = net(torch.from_numpy(pixels)).numpy()"""
    code: ClassVar[bool] = True

    def version(self) -> str:
        """Of the package."""
        return str(torch.__version__)

    def prepare(self, model: nn.Module | Path, pixels: Pixels) -> Workload:
        """A copy of the module on the device."""
        if not isinstance(model, nn.Module) and model.suffix != ".pt":
            raise BadInput(f"runtime torch must be given a module, but got the file {model}.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            model = model if isinstance(model, nn.Module) else torch.jit.load(str(model))  # type: ignore[no-untyped-call]
        with evaluating(model):
            net = copy.deepcopy(model).to(self.device).eval()
        x = torch.from_numpy(pixels).to(self.device)

        def on_cpu() -> Tensor:
            with torch.inference_mode():
                out: Tensor = net(x)
            return out

        def on_cuda() -> Tensor:
            out = on_cpu()
            torch.cuda.synchronize()  # a call has ended when its result is there, not when it is queued
            return out

        return on_cpu if self.device == "cpu" else on_cuda

    def run(self, model: nn.Module | Path, pixels: Pixels) -> np.ndarray[Any, Any]:
        """The logits, brought back from the device."""
        out: Any = self.prepare(model, pixels)()
        return np.asarray(out.cpu())

    def convert(self, source: Path, net: nn.Module, example: Pixels, folder: Path) -> list[Path]:
        """TorchScript, traced."""
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings(), evaluating(net):
            warnings.simplefilter("ignore", DeprecationWarning)
            torch.jit.trace(net, torch.from_numpy(example)).save(str(folder / "model.pt"))  # type: ignore[no-untyped-call]
        return [folder / "model.pt"]


PLUGIN = Torch
