"""What an ONNX file itself says about its size: nothing is believed but its tensors and the shapes that follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.core.errors import BadInput, require
from sartor.deploy.module import INPUT

_COMPUTING = ("Conv", "Gemm", "MatMul")
_UNKNOWN = ("ConvTranspose", "Einsum", "Attention", "LSTM", "GRU", "RNN", "If", "Loop", "Scan", "QLinearConv")


@dataclass(frozen=True)
class Counted:
    """Multiply-accumulates of one image, and between how many parameters the network had that was exported.

    The exporter folds a batch-norm into the convolution before it: of two numbers a channel the file then holds one, or
    none where the convolution had a bias already.
    """

    macs: float
    least: float
    most: float


def counted(path: Path) -> Counted | None:
    """Count an exported network; None where it has operators that are not counted here."""
    onnx = require("onnx", "onnx")
    try:
        model = onnx.load(str(path), load_external_data=False)
        graph = model.graph
        image = next(v for v in graph.input if v.name == INPUT)
        image.type.tensor_type.shape.dim[0].dim_value = 1
        del graph.value_info[:]  # what the file says of its own shapes is no evidence
        graph.output[0].type.tensor_type.ClearField("shape")
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:  # protobuf and onnx raise several unrelated types
        raise BadInput(f"{path} must be an ONNX model with the input {INPUT}, but cannot be read as one.") from error
    if any(node.op_type in _UNKNOWN for node in graph.node):
        return None
    shapes = {v.name: _shape(v) for v in (*inferred.input, *inferred.value_info, *inferred.output)}
    shapes |= {t.name: tuple(t.dims) for t in inferred.initializer}
    return _totals(inferred, shapes)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(d.dim_value for d in value.type.tensor_type.shape.dim)


def _totals(graph: Any, shapes: dict[str, tuple[int, ...]]) -> Counted | None:
    """Sums over the operators that multiply; a tensor that is used twice counts once."""
    weights = {t.name: math.prod(t.dims) for t in graph.initializer if t.data_type == 1}  # float32
    macs, folded, known = 0.0, 0, set[str]()
    for node in graph.node:
        if node.op_type in _COMPUTING:
            left, right, out = (shapes.get(n, ()) for n in (node.input[0], node.input[1], node.output[0]))
            if not out or 0 in (*left, *right, *out):
                return None
            macs += math.prod(out) * _inner(node, left, right)
            known.update(n for n in node.input[1:] if n in weights)
            folded += 2 * right[0] if node.op_type == "Conv" else 0
        elif node.op_type == "BatchNormalization":
            known.update(n for n in node.input[1:3] if n in weights)
    sure = float(sum(weights[n] for n in known))
    rest = sum(size for name, size in weights.items() if name not in known)
    return Counted(macs, sure, sure + folded + rest)


def _inner(node: Any, left: tuple[int, ...], right: tuple[int, ...]) -> int:
    """Products summed for one number of the output."""
    if node.op_type == "Conv":
        return math.prod(right[1:])
    transposed = any(a.name == "transA" and a.i for a in node.attribute)
    return left[-2] if transposed else left[-1]
