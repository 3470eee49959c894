"""What is deployed: a network with its normalisation inside, as an ONNX graph, in an ONNX Runtime session.

The latency cost times exactly what `sartor.deploy.export` writes, so both build their graphs here.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit._trace import TracerWarning  # what `torch.jit.TracerWarning` is, which is not exported by type

from sartor.core.errors import BadInput, SartorError, require
from sartor.deploy import probe
from sartor.deploy.graph import simplified, without_traces

INPUT, OUTPUT = "image", "logits"
OPSET = 18


class Deployed(nn.Module):
    """A network that takes pixels 0..255 as float32 (B, C, S, S) and normalises them itself.

    ``net((x - mean) / std)`` with the channels' mean and deviation in units of 0..255, computed as
    one multiplication and one addition a pixel.
    """

    def __init__(self, net: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean or min(std) <= 0:
            raise BadInput(f"mean and std must have one entry a channel, std > 0, but got {mean} and {std}.")
        self.net = net
        centre = torch.tensor(list(mean), dtype=torch.float64)
        spread = torch.tensor(list(std), dtype=torch.float64)
        self.register_buffer("scale", (1 / spread).float().reshape(1, -1, 1, 1))
        self.register_buffer("shift", (-centre / spread).float().reshape(1, -1, 1, 1))

    def forward(self, image: Tensor) -> Tensor:  # noqa: D102
        scale, shift = self.get_buffer("scale"), self.get_buffer("shift")
        out: Tensor = self.net(image * scale + shift)
        return out


@contextmanager
def evaluating(module: nn.Module) -> Iterator[nn.Module]:
    """The module in evaluation mode and without gradients; every sub-module's own mode comes back afterwards."""
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield module
    finally:
        for m, mode in modes:
            m.training = mode


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters' notices (deprecations, torchvision's absence, progress) off the terminal."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.onnx._internal.exporter", "onnxscript")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def onnx_graph(module: nn.Module, in_shape: Sequence[int], batch: int | None = None, trace: bool = True) -> bytes:
    """The module as an ONNX model with one input `image` and one output `logits`; the batch is dynamic unless given.

    By the tracing exporter where this torch still has it and nothing in the module depends on what an image shows
    (`trace`): it takes half a second where torch's current exporter takes five, and after the same simplification
    gives the same operators.
    """
    onnx = require("onnx", "onnx")
    with evaluating(module), _quiet():
        model = _traced(module, in_shape, batch) if trace else None
        if model is None:
            model = _captured(module, in_shape, batch)
    try:
        return bytes(without_traces(simplified(onnx.load_model_from_string(model))).SerializeToString())
    except ValueError as error:  # protobuf's limit of 2 GB a message
        raise SartorError(f"the network is too large for one ONNX file: {error}.") from error


def _traced(module: nn.Module, in_shape: Sequence[int], batch: int | None) -> bytes | None:
    """By the tracing exporter; None where this torch has it no more, or where a value would be baked in."""
    buffer: Any = io.BytesIO()  # torch's annotation knows paths only
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", TracerWarning)
            torch.onnx.export(
                module,
                (_example(module, batch or 2, in_shape),),
                buffer,
                dynamo=False,
                opset_version=OPSET,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_axes=None if batch else {INPUT: {0: "batch"}, OUTPUT: {0: "batch"}},
            )
    except (TypeError, ValueError, RuntimeError, AttributeError):  # no such option, or no such operator
        return None
    baked = any(issubclass(warning.category, TracerWarning) for warning in said)
    return None if baked and batch is None else bytes(buffer.getvalue())


def _captured(module: nn.Module, in_shape: Sequence[int], batch: int | None) -> bytes:
    """By `torch.export`; the batch is dynamic unless given."""
    require("onnxscript", "onnx")
    dynamic = None if batch is not None else ({0: torch.export.Dim("batch", min=1)},)
    program = torch.onnx.export(
        module, (_example(module, batch or 2, in_shape),),
        dynamo=True, opset_version=OPSET, input_names=[INPUT], output_names=[OUTPUT],
        dynamic_shapes=dynamic, verbose=False, external_data=False,
    )  # fmt: skip
    assert program is not None
    model: bytes = program.model_proto.SerializeToString()
    return model


def _example(module: nn.Module, batch: int, in_shape: Sequence[int]) -> Tensor:
    """An input on the module's device; a batch of 1 would be baked into a dynamic graph, so that uses 2."""
    tensors = [*module.parameters(), *module.buffers()]
    return torch.zeros(batch, *in_shape, device=tensors[0].device if tensors else "cpu")


def session(model: bytes | Path, threads: int = 1) -> Any:
    """A session as the measuring program has it (`probe.session`)."""
    require("onnxruntime", "onnx")
    try:
        return probe.session(model if isinstance(model, bytes) else str(model), threads)
    except Exception as error:  # onnxruntime's exceptions share no public base class
        name = "the graph" if isinstance(model, bytes) else str(model)
        reason = str(error).splitlines()[0]
        raise BadInput(f"{name} must be an ONNX model that onnxruntime can load, but: {reason}") from error
