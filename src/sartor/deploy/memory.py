"""What a network's activations take under ONNX Runtime, as it is deployed and at least.

ONNX Runtime rewrites a graph before it runs it: batch-norms, activations and sums become part of convolutions,
channels are filled up to the processor's blocks, tensors are reordered between the two layouts. A session with its
defaults, as a network is deployed, gives tensors the memory of earlier ones (`enable_mem_reuse`), and from the second
call on one block for all of them (`enable_mem_pattern`): what it then holds it reports itself (`held`). At least it
takes what lives at once, each tensor until the last operator that reads it, counted in the rewritten graph and its
order (`alive`): a session without these two takes that much, and longer for each call. The image is the caller's;
weights, and what operators need while they compute, do not count.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from sartor.core.errors import require
from sartor.deploy import probe

if TYPE_CHECKING:
    from onnx import GraphProto

_REPORTED = "mem_bytes_requested_in_use"  # after an operator, in ONNX Runtime's own profile
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity"})  # show the memory of their input
# The input that an operator writes over where nothing reads it later: a convolution's is the other term of its sum.
_OVER = {"Conv": 3, "FusedConv": 3} | dict.fromkeys(
    ("Relu", "LeakyRelu", "Clip", "HardSigmoid", "Sigmoid", "Tanh", "Elu", "Softplus", "Abs", "Neg", "Sqrt"), 0
)


def held(model: bytes | Path, in_shape: tuple[int, ...]) -> int | None:
    """Bytes that a session as deployed holds for activations at the worst moment; None where it does not report it."""
    runtime, calls = require("onnxruntime", "onnx"), 2
    with TemporaryDirectory() as folder:
        options = probe.options(1)
        options.enable_profiling, options.profile_file_prefix = True, str(Path(folder) / "profile")
        source = model if isinstance(model, bytes) else str(model)
        run = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        for _ in range(calls):
            run.run(None, {run.get_inputs()[0].name: np.zeros((1, *in_shape), np.float32)})
        events = json.loads(Path(run.end_profiling()).read_text(encoding="utf-8"))
    nodes = [event["args"] for event in events if event["name"].endswith("_kernel_time")]
    if not nodes or _REPORTED not in nodes[0]:
        return None
    rest = int(nodes[0][_REPORTED]) - int(nodes[0]["mem_requested_in_use_delta"])
    return max(int(node[_REPORTED]) for node in nodes) - rest


def alive(model: bytes | Path, in_shape: tuple[int, ...]) -> int:
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
