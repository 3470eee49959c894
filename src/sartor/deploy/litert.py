"""An exported network as a LiteRT (TensorFlow Lite) file, written directly.

Google's converters need TensorFlow or JAX, gigabytes of them, for what is a dozen operators here: the flatbuffer is
built with the schema that the runtime itself brings. LiteRT wants channels last, so that is how the image goes in:
(B, S, S, C), pixels 0..255 as float32. An operator that is not known here is refused by name.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sartor.core.errors import BadInput, require

Array = np.ndarray[Any, np.dtype[Any]]
_LAST = (0, 2, 3, 1)  # from channels first
_FIRST = (0, 3, 1, 2)


def to_litert(graph: bytes, batch: int = 1) -> bytes:
    """The same function of so many images as a LiteRT file."""
    schema, flatbuffers = require("ai_edge_litert.schema_py_generated", "litert"), require("flatbuffers", "litert")
    builder = flatbuffers.Builder(1024)
    builder.Finish(_Builder(schema, _plain(graph, batch)).model().Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _plain(graph: bytes, batch: int) -> Any:
    """The model at a fixed batch with constants folded and batch-norms inside convolutions, with every shape."""
    onnx, runtime = require("onnx", "onnx"), require("onnxruntime", "onnx")
    try:
        model = onnx.load_model_from_string(graph)
    except Exception as error:  # protobuf's parser raises several unrelated types
        raise BadInput("what LiteRT is to run must be an ONNX model, but cannot be read as one.") from error
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = batch
    del model.graph.value_info[:]
    model.graph.output[0].type.tensor_type.ClearField("shape")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    with tempfile.TemporaryDirectory() as folder:
        options.optimized_model_filepath = str(Path(folder) / "plain.onnx")
        runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        model = onnx.load(options.optimized_model_filepath)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


class _Builder:
    """One subgraph, operator by operator; tensors of four dimensions are kept with channels last."""

    def __init__(self, schema: Any, model: Any) -> None:
        onnx = require("onnx", "onnx")
        self.schema, self.graph = schema, model.graph
        self.attribute = onnx.helper.get_attribute_value
        self.buffers, self.tensors, self.operators = [schema.BufferT()], list[Any](), list[Any]()
        self.codes, self.known = list[int](), dict[str, int]()
        self.constants: dict[str, Array] = {t.name: onnx.numpy_helper.to_array(t) for t in self.graph.initializer}
        values = (*self.graph.input, *self.graph.value_info, *self.graph.output)
        self.shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}

    def model(self) -> Any:
        """The whole file."""
        s, image, logits = self.schema, self.graph.input[0].name, self.graph.output[0].name
        first = self.tensor(image)
        for node in self.graph.node:
            known: Callable[[Any], None] | None = getattr(self, f"on_{node.op_type}", None)
            if known is None or node.domain not in ("", "ai.onnx"):
                raise BadInput(
                    f"the LiteRT form of a network can have no operator {node.op_type} yet. Deploy it under "
                    "onnxruntime or openvino, or choose another space."
                )
            known(node)
        sub, made = s.SubGraphT(), s.ModelT()
        sub.tensors, sub.operators, sub.name = self.tensors, self.operators, b"main"
        sub.inputs, sub.outputs = [first], [self.known[logits]]
        made.version, made.description, made.subgraphs, made.buffers = 3, b"Sartor", [sub], self.buffers
        made.operatorCodes = []
        for code in self.codes:
            entry = s.OperatorCodeT()
            entry.builtinCode, entry.deprecatedBuiltinCode, entry.version = code, min(code, 127), 1
            made.operatorCodes.append(entry)
        return made

    # tensors -----------------------------------------------------------------------------------

    def tensor(self, name: str, shape: Sequence[int] | None = None, data: Array | None = None) -> int:
        """A new tensor; that of an ONNX name has its shape, channels last."""
        s, made = self.schema, self.schema.TensorT()
        given = self.shapes.get(name, ()) if shape is None else tuple(shape)
        if not given or 0 in given:
            raise BadInput(f"the LiteRT form of a network needs the shape of {name}, which its ONNX form leaves open.")
        made.shape = [given[i] for i in _LAST] if shape is None and len(given) == 4 else list(given)
        made.name, made.type, made.buffer = name.encode(), s.TensorType.FLOAT32, 0
        if data is not None:
            made.type = s.TensorType.INT32 if data.dtype == np.int32 else s.TensorType.FLOAT32
            buffer = s.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            self.buffers.append(buffer)
            made.buffer = len(self.buffers) - 1
        self.tensors.append(made)
        self.known.setdefault(name, len(self.tensors) - 1) if shape is None else None
        return len(self.tensors) - 1

    def constant(self, data: Array) -> int:
        """A tensor of numbers."""
        values = np.atleast_1d(data if data.dtype == np.int32 else data.astype(np.float32))
        return self.tensor(f"constant_{len(self.tensors)}", values.shape, values)

    def value(self, name: str) -> int:
        """The tensor of an ONNX name, which may be a constant."""
        if name not in self.known and name in self.constants:
            data = self.constants[name]
            self.known[name] = self.constant(data.transpose(_LAST) if data.ndim == 4 else data)
        return self.known[name]

    def shape(self, index: int) -> list[int]:
        """As LiteRT has it."""
        return list(self.tensors[index].shape)

    # operators ---------------------------------------------------------------------------------

    def add(self, kind: str, inputs: Sequence[int], output: int, options: str | None = None, **values: Any) -> int:
        """One operator; `options` names the table of its settings."""
        s, code = self.schema, getattr(self.schema.BuiltinOperator, kind)
        if code not in self.codes:
            self.codes.append(code)
        made = s.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = self.codes.index(code), list(inputs), [output]
        if options is not None:
            made.builtinOptionsType = getattr(s.BuiltinOptions, options)
            made.builtinOptions = getattr(s, f"{options}T")()
            for name, value in values.items():
                setattr(made.builtinOptions, name, value)
        self.operators.append(made)
        return output

    def settings(self, node: Any) -> dict[str, Any]:
        """A node's attributes."""
        return {a.name: self.attribute(a) for a in node.attribute}

    def between(self, shape: Sequence[int]) -> int:
        """A tensor that ONNX has not."""
        return self.tensor(f"between_{len(self.tensors)}", shape)

    def padded(self, x: int, pads: Sequence[int], fill: float = 0.0) -> int:
        """The image `x` with a border."""
        top, left, bottom, right = pads
        return self.bordered(x, [[0, 0], [top, bottom], [left, right], [0, 0]], fill) if any(pads) else x

    def bordered(self, x: int, borders: Sequence[Sequence[int]], fill: float, out: int | None = None) -> int:
        """A tensor with so many more numbers before and after each dimension."""
        wide = np.array(borders, np.int32)
        shape = [n + int(b.sum()) for n, b in zip(self.shape(x), wide, strict=True)]
        more = [self.constant(np.array([fill], np.float32))] if fill else []
        kind, options = ("PADV2", "PadV2Options") if fill else ("PAD", "PadOptions")
        return self.add(kind, [x, self.constant(wide), *more], self.between(shape) if out is None else out, options)

    def on_Pad(self, node: Any) -> None:
        """A border of one number, which may be around the channels."""
        pads, x = self.constants[node.input[1]].reshape(2, -1).T, self.value(node.input[0])
        if self.settings(node).get("mode", b"constant") != b"constant" or (pads < 0).any():
            raise BadInput("the LiteRT form of a network can have no border but one of a constant number yet.")
        fill = float(self.constants[node.input[2]]) if len(node.input) > 2 and node.input[2] else 0.0
        borders = [pads[i] for i in _LAST] if len(pads) == 4 else list(pads)
        self.bordered(x, [b.tolist() for b in borders], fill, self.tensor(node.output[0]))

    def on_Resize(self, node: Any) -> None:
        """To another side, linear between the middles of pixels."""
        told = self.settings(node)
        if told.get("mode") != b"linear" or told.get("coordinate_transformation_mode") != b"half_pixel":
            raise BadInput("the LiteRT form of a network can resize bilinearly between half pixels only.")
        x, out = self.value(node.input[0]), self.tensor(node.output[0])
        side = self.constant(np.array(self.shape(out)[1:3], np.int32))
        options = {"alignCorners": False, "halfPixelCenters": True}
        self.add("RESIZE_BILINEAR", [x, side], out, "ResizeBilinearOptions", **options)

    def on_Conv(self, node: Any) -> None:
        """Plain, grouped or depthwise."""
        told, weight = self.settings(node), self.constants[node.input[1]]
        groups, (out, _, *_) = told.get("group", 1), weight.shape
        x = self.padded(self.value(node.input[0]), told.get("pads", (0, 0, 0, 0)))
        bias = self.constants[node.input[2]] if len(node.input) > 2 else np.zeros(out, np.float32)
        (down, across), (tall, wide) = told.get("strides", (1, 1)), told.get("dilations", (1, 1))
        common: dict[str, Any] = {"padding": self.schema.Padding.VALID, "strideH": down, "strideW": across,
                                  "dilationHFactor": tall, "dilationWFactor": wide}  # fmt: skip
        depthwise = groups > 1 and weight.shape[1] == 1 and groups == self.shape(x)[3]
        if depthwise:
            kind, options, filters = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", weight.transpose(1, 2, 3, 0)
            common["depthMultiplier"] = out // groups
        else:
            kind, options, filters = "CONV_2D", "Conv2DOptions", weight.transpose(0, 2, 3, 1)
        inputs = [x, self.constant(filters), self.constant(bias)]
        self.add(kind, inputs, self.tensor(node.output[0]), options, **common)

    def on_Gemm(self, node: Any) -> None:
        """A fully connected layer."""
        told, weight = self.settings(node), self.constants[node.input[1]]
        weight = weight if told.get("transB") else weight.T
        bias = self.constants[node.input[2]] if len(node.input) > 2 else np.zeros(len(weight), np.float32)
        inputs = [self.value(node.input[0]), self.constant(weight * told.get("alpha", 1.0)), self.constant(bias)]
        self.add("FULLY_CONNECTED", inputs, self.tensor(node.output[0]), "FullyConnectedOptions")

    def pooled(self, node: Any, kind: str, fill: float = 0.0) -> None:
        """A pool over a window; an average that leaves out the border is one with it, made larger at the border."""
        told, x = self.settings(node), self.value(node.input[0])
        if set(told.get("dilations", (1, 1))) != {1}:
            raise BadInput("the LiteRT form of a network can have no pool with dilation yet.")
        pads, steps, window = told.get("pads", (0, 0, 0, 0)), told.get("strides", (1, 1)), told["kernel_shape"]
        out, sides = self.tensor(node.output[0]), self.shape(x)[1:3]
        # Half windows at the end, of pools that round up, hang over the border.
        over = [
            max(0, (n - 1) * step + w - side - pads[i] - pads[i + 2])
            for i, (n, step, w, side) in enumerate(zip(self.shape(out)[1:3], steps, window, sides, strict=True))
        ]
        border = (pads[0], pads[1], pads[2] + over[0], pads[3] + over[1])
        seen = np.full((sides[0] + pads[0] + pads[2], sides[1] + pads[1] + pads[3]), told.get("count_include_pad", 0))
        seen[pads[0] : pads[0] + sides[0], pads[1] : pads[1] + sides[1]] = 1
        uneven = kind == "AVERAGE_POOL_2D" and (not seen.all() or any(over))
        made = self.between(self.shape(out)) if uneven else out
        self.add(kind, [self.padded(x, border, fill)], made, "Pool2DOptions", padding=self.schema.Padding.VALID,
                 strideH=steps[0], strideW=steps[1], filterHeight=window[0], filterWidth=window[1])  # fmt: skip
        if uneven:
            share = _shares(np.pad(seen, ((0, over[0]), (0, over[1]))), window, steps, self.shape(out)[1:3])
            self.add("MUL", [made, self.constant(share[None, :, :, None])], out, "MulOptions")

    def on_MaxPool(self, node: Any) -> None:
        self.pooled(node, "MAX_POOL_2D", float(np.finfo(np.float32).min))

    def on_AveragePool(self, node: Any) -> None:
        self.pooled(node, "AVERAGE_POOL_2D")

    def on_GlobalAveragePool(self, node: Any) -> None:
        axes = self.constant(np.array([1, 2], np.int32))
        self.add(
            "MEAN", [self.value(node.input[0]), axes], self.tensor(node.output[0]), "ReducerOptions", keepDims=True
        )

    def both(self, node: Any, kind: str, options: str) -> None:
        """An operator on two tensors."""
        self.add(kind, [self.value(name) for name in node.input], self.tensor(node.output[0]), options)

    def on_Add(self, node: Any) -> None:
        self.both(node, "ADD", "AddOptions")

    def on_Mul(self, node: Any) -> None:
        self.both(node, "MUL", "MulOptions")

    def on_BatchNormalization(self, node: Any) -> None:
        """One that no convolution took in: a product and a sum for each channel."""
        scale, shift, mean, variance = (self.constants[name].astype(np.float64) for name in node.input[1:5])
        by = scale / np.sqrt(variance + self.settings(node).get("epsilon", 1e-5))
        x = self.value(node.input[0])
        x = self.add("MUL", [x, self.constant(by)], self.between(self.shape(x)), "MulOptions")
        self.add("ADD", [x, self.constant(shift - mean * by)], self.tensor(node.output[0]), "AddOptions")

    def on_Relu(self, node: Any) -> None:
        self.add("RELU", [self.value(node.input[0])], self.tensor(node.output[0]))

    def on_HardSwish(self, node: Any) -> None:
        self.add("HARD_SWISH", [self.value(node.input[0])], self.tensor(node.output[0]), "HardSwishOptions")

    def on_Sigmoid(self, node: Any) -> None:
        self.add("LOGISTIC", [self.value(node.input[0])], self.tensor(node.output[0]))

    def on_Identity(self, node: Any) -> None:
        self.known[node.output[0]] = self.value(node.input[0])

    def on_Clip(self, node: Any) -> None:
        """Between 0 and 6 only."""
        least, most = (float(self.constants[name]) for name in node.input[1:3])
        if (least, most) != (0.0, 6.0):
            raise BadInput(f"the LiteRT form of a network can clip from 0 to 6 only, but is asked for {least, most}.")
        self.add("RELU6", [self.value(node.input[0])], self.tensor(node.output[0]))

    def on_HardSigmoid(self, node: Any) -> None:
        """``relu6(6 a x + 6 b) / 6``."""
        told, x = self.settings(node), self.value(node.input[0])
        for kind, by in (("MUL", 6 * told.get("alpha", 0.2)), ("ADD", 6 * told.get("beta", 0.5))):
            options = f"{kind.capitalize()}Options"
            if kind == "ADD" or not np.isclose(by, 1.0, rtol=1e-6):
                x = self.add(kind, [x, self.constant(np.array([by]))], self.between(self.shape(x)), options)
        x = self.add("RELU6", [x], self.between(self.shape(x)))
        self.add("MUL", [x, self.constant(np.array([1 / 6]))], self.tensor(node.output[0]), "MulOptions")

    def on_Concat(self, node: Any) -> None:
        axis, out = self.settings(node)["axis"], self.tensor(node.output[0])
        axis = _LAST.index(axis % 4) if len(self.shape(out)) == 4 else axis
        self.add("CONCATENATION", [self.value(n) for n in node.input], out, "ConcatenationOptions", axis=axis)

    def on_Slice(self, node: Any) -> None:
        """Whole steps of one from constant borders: a crop."""
        x, out = self.value(node.input[0]), self.tensor(node.output[0])
        starts, ends, axes = (self.constants[name].tolist() for name in node.input[1:4])
        shape = self.shape(x)
        begin, size = [0] * len(shape), list(shape)
        for start, end, axis in zip(starts, ends, axes, strict=True):
            place = _LAST.index(axis % 4) if len(shape) == 4 else axis
            low, high, _ = slice(start, end).indices(shape[place])
            begin[place], size[place] = low, high - low
        edges = [self.constant(np.array(v, np.int32)) for v in (begin, size)]
        self.add("SLICE", [x, *edges], out, "SliceOptions")

    def on_Gather(self, node: Any) -> None:
        """Rows, columns or channels by constant places."""
        x, out, places = self.value(node.input[0]), self.tensor(node.output[0]), self.constants[node.input[1]]
        axis = self.settings(node).get("axis", 0) % len(self.shape(x))
        axis = _LAST.index(axis) if len(self.shape(x)) == 4 else axis
        self.add("GATHER", [x, self.constant(places.astype(np.int32))], out, "GatherOptions", axis=axis)

    def on_ReduceSum(self, node: Any) -> None:
        """Over constant dimensions of what is no image."""
        x, told = self.value(node.input[0]), self.settings(node)
        if len(self.shape(x)) == 4:
            raise BadInput("the LiteRT form of a network can have no sum over an image's dimensions yet.")
        axes = self.constant(self.constants[node.input[1]].astype(np.int32))
        out = self.tensor(node.output[0])
        self.add("SUM", [x, axes], out, "ReducerOptions", keepDims=bool(told.get("keepdims", 1)))

    def on_Flatten(self, node: Any) -> None:
        """In ONNX's order, channels first."""
        x, out = self.value(node.input[0]), self.tensor(node.output[0])
        shape = self.shape(x)
        if len(shape) == 4 and shape[1] * shape[2] > 1:
            order = self.constant(np.array(_FIRST, np.int32))
            x = self.add("TRANSPOSE", [x, order], self.between([shape[i] for i in _FIRST]), "TransposeOptions")
        flat = [-1, *self.shape(out)[1:]]  # of any batch
        if len(flat) == 3:  # the batch is not the first dimension
            flat = [int(n) for n in self.constants[node.input[1]]]
        self.add("RESHAPE", [x, self.constant(np.array(flat, np.int32))], out, "ReshapeOptions", newShape=flat)

    on_Reshape = on_Flatten


def _shares(seen: Array, window: Sequence[int], steps: Sequence[int], sides: Sequence[int]) -> Array:
    """By how much more of every window there is than counts."""
    (tall, wide), (down, across), (high, broad) = window, steps, sides
    counts = [[seen[i * down :][:tall, j * across :][:, :wide].sum() for j in range(broad)] for i in range(high)]
    found: Array = tall * wide / np.array(counts)
    return found
