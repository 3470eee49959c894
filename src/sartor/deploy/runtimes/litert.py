"""LiteRT (TensorFlow Lite) on a CPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
from torch import nn

from sartor.core.errors import BadInput, require
from sartor.deploy.litert import to_litert
from sartor.deploy.module import onnx_graph
from sartor.deploy.runtimes.base import Pixels, Runtime
from sartor.deploy.timing import Workload
from sartor.runs.directory import atomic


@contextmanager
def _unannounced() -> Iterator[None]:
    """Without the line that the library writes to the terminal itself, past Python, when it sets itself up."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@final
@dataclass(frozen=True, kw_only=True)
class LiteRt(Runtime):
    """LiteRT with XNNPACK on this machine's CPU: the exported network in its form (`sartor.deploy.litert`)."""

    form: ClassVar[str | None] = "litert"
    imports: ClassVar[str] = "from ai_edge_litert.interpreter import Interpreter"
    call: ClassVar[str] = """\
net = Interpreter("{file}")
net.allocate_tensors()
net.set_tensor(net.get_input_details()[0]["index"], pixels.transpose(0, 2, 3, 1))  # channels last
net.invoke()
logits = net.get_tensor(net.get_output_details()[0]["index"])"""

    def version(self) -> str:
        """Of the package."""
        require("ai_edge_litert.interpreter", "litert")
        return version("ai-edge-litert")

    def prepare(self, model: nn.Module | Path, pixels: Pixels) -> Workload:
        """An interpreter with its input in place, channels last; a file may be .tflite already."""
        litert = require("ai_edge_litert.interpreter", "litert")
        if isinstance(model, nn.Module):
            content = to_litert(onnx_graph(model, pixels.shape[1:], self.batch), self.batch)
        else:
            content = model.read_bytes()
            content = content if model.suffix == ".tflite" else to_litert(content, self.batch)
        try:
            with _unannounced():
                made = litert.Interpreter(model_content=content, num_threads=self.threads)
                given, result = made.get_input_details()[0]["index"], made.get_output_details()[0]["index"]
                image = np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))
                made.resize_tensor_input(given, image.shape)
                made.allocate_tensors()
            made.set_tensor(given, image)
        except (RuntimeError, ValueError) as error:
            name = "the graph" if isinstance(model, nn.Module) else str(model)
            raise BadInput(f"{name} must be a network that LiteRT can load, but: {str(error)[-200:]}") from error

        def call() -> Any:
            made.invoke()
            return made.get_tensor(result)

        return call

    def convert(self, source: Path, net: nn.Module, example: Pixels, folder: Path) -> list[Path]:
        """A .tflite file."""
        require("ai_edge_litert.interpreter", "litert")
        with atomic(folder / "model.tflite") as tmp:
            tmp.write_bytes(to_litert(source.read_bytes()))
        return [folder / "model.tflite"]


PLUGIN = LiteRt
