"""OpenVINO on a CPU."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from torch import nn

from sartor.core.errors import BadInput, require
from sartor.deploy.runtimes.base import Pixels, Runtime
from sartor.deploy.timing import Workload


@final
@dataclass(frozen=True, kw_only=True)
class OpenVino(Runtime):
    """OpenVINO on this machine's CPU: the exported file, compiled for so many images a call, in 32 bits."""

    int8: ClassVar[bool] = True
    form: ClassVar[str | None] = "openvino"
    imports: ClassVar[str] = "import openvino"
    call: ClassVar[str] = """\
net = openvino.Core().compile_model("{file}", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
logits = net(pixels)[0]"""

    def version(self) -> str:
        """Of the package."""
        return str(require("openvino", "openvino").__version__)

    def prepare(self, model: nn.Module | Path, pixels: Pixels) -> Workload:
        """A compiled network with its input in place."""
        openvino, core = require("openvino", "openvino"), _core()
        try:
            source = self.graph(model, pixels.shape[1:]) if isinstance(model, nn.Module) else str(model)
            read = core.read_model(source)
            read.reshape(list(pixels.shape))
            # Left to itself it computes in 16 bits where the processor can.
            settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": self.threads, "NUM_STREAMS": 1,
                        "INFERENCE_PRECISION_HINT": "f32"}  # fmt: skip
            request = core.compile_model(read, "CPU", settings).create_infer_request()
        except RuntimeError as error:
            name = "the graph" if isinstance(model, nn.Module) else str(model)
            raise BadInput(f"{name} must be a network that OpenVINO can load, but: {str(error)[-200:]}") from error
        request.set_input_tensor(openvino.Tensor(np.ascontiguousarray(pixels)))

        def call() -> Any:
            request.infer()
            return request.get_output_tensor().data

        return call

    def convert(self, source: Path, net: nn.Module, example: Pixels, folder: Path) -> list[Path]:
        """OpenVINO's own two files, in the precision of the source."""
        openvino = require("openvino", "openvino")
        folder.mkdir(parents=True, exist_ok=True)
        openvino.save_model(_core().read_model(str(source)), str(folder / "model.xml"), compress_to_fp16=False)
        return [folder / "model.xml", folder / "model.bin"]


@cache
def _core() -> Any:
    """One for the life of the process.

    Its CPU plugin gives the thread that loads it a stack for signal handlers, and frees it with the last core,
    whichever thread drops that: a signal such as Ctrl-C then ended the process (SIGSEGV).
    """
    return require("openvino", "openvino").Core()


PLUGIN = OpenVino
