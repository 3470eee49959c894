"""ONNX Runtime on a CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, final

from torch import nn

from sartor.core.errors import require
from sartor.deploy.module import session
from sartor.deploy.runtimes.base import Pixels, Runtime
from sartor.deploy.timing import Workload


@final
@dataclass(frozen=True, kw_only=True)
class OnnxRuntime(Runtime):
    """ONNX Runtime on a CPU: the exported file, one operator after another."""

    int8: ClassVar[bool] = True

    def version(self) -> str:
        """Of the package."""
        return str(require("onnxruntime", "onnx").__version__)

    def prepare(self, model: nn.Module | Path, pixels: Pixels) -> Workload:
        """A session with its input in place."""
        run = session(self.portable(model, pixels.shape[1:]) if isinstance(model, nn.Module) else model, self.threads)
        feed = {run.get_inputs()[0].name: pixels}
        return lambda: run.run(None, feed)[0]

    def portable(self, model: nn.Module | Path, in_shape: Sequence[int]) -> bytes:
        """The ONNX graph."""
        return self.graph(model, in_shape) if isinstance(model, nn.Module) else model.read_bytes()


PLUGIN = OnnxRuntime
