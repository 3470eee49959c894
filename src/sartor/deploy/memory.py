"""What a network's activations take under ONNX Runtime, counted in the graph that it executes.

ONNX Runtime rewrites a graph before it runs it: batch-norms, activations and sums become part of convolutions, channels
are filled up to the processor's blocks, tensors are reordered between the two layouts. So lifetimes are counted in the
rewritten graph, in its order. A tensor's memory is free after the last operator that reads it, as in a session without
`enable_mem_reuse` and `enable_mem_pattern`, which keep memory for later tensors and so take more. The image is the
caller's; weights, and what operators need while they compute, do not count.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from sartor.core.errors import require

if TYPE_CHECKING:
    from onnx import GraphProto

SESSION = "without enable_mem_reuse and enable_mem_pattern"
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity"})  # show the memory of their input
# The input that an operator writes over where nothing reads it later: a convolution's is the other term of its sum.
_OVER = {"Conv": 3, "FusedConv": 3} | dict.fromkeys(
    ("Relu", "LeakyRelu", "Clip", "HardSigmoid", "Sigmoid", "Tanh", "Elu", "Softplus", "Abs", "Neg", "Sqrt"), 0
)


def activations(model: bytes | Path, in_shape: tuple[int, ...]) -> int:
    """Bytes of the activations that live at once, at the worst moment of one image."""
    graph, sizes = _executed(model, in_shape)
    last = {name: n for n, node in enumerate(graph.node) for name in (*node.input, *node.output)}
    last |= {result.name: len(graph.node) for result in graph.output}
    homes: dict[str, str] = {}  # the memory of every tensor that lives, named after the first that was there
    most = 0
    for n, node in enumerate(graph.node):
        over = _OVER.get(node.op_type, len(node.input))
        shared = node.input[0] if node.op_type in _VIEWS else ""
        if over < len(node.input) and last[node.input[over]] == n:
            shared = node.input[over]
        homes |= {out: out for out in node.output}
        if shared in homes and sizes[shared] == sizes[node.output[0]]:
            homes[node.output[0]] = homes[shared]
        most = max(most, sum(sizes[memory] for memory in {*homes.values()}))
        homes = {name: memory for name, memory in homes.items() if last[name] > n}
    return most


def _executed(model: bytes | Path, in_shape: tuple[int, ...]) -> tuple[GraphProto, dict[str, int]]:
    """The graph as ONNX Runtime rewrites it, and the bytes of every tensor that its operators give."""
    onnx, runtime = require("onnx", "onnx"), require("onnxruntime", "onnx")
    source = model if isinstance(model, bytes) else str(model)
    with TemporaryDirectory() as folder:
        file, options = Path(folder) / "executed.onnx", runtime.SessionOptions()
        options.optimized_model_filepath, options.log_severity_level = str(file), 3
        runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        rewritten = onnx.load_model(file)
    told = onnx.ModelProto()
    told.CopyFrom(rewritten)
    del told.graph.output[:]
    told.graph.output.extend(onnx.ValueInfoProto(name=out) for node in told.graph.node for out in node.output)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    run = runtime.InferenceSession(told.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = run.run(None, {run.get_inputs()[0].name: np.zeros((1, *in_shape), np.float32)})
    return rewritten.graph, {out.name: value.nbytes for out, value in zip(run.get_outputs(), found, strict=True)}
