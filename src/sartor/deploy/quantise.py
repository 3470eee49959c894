"""An exported network in 8 bits: QuantizeLinear and DequantizeLinear around its layers, calibrated on images.

How a network is best quantised is not known in advance, so that several ways are tried and the one that gets most
validation images right is kept (`sartor.pipeline.precision`). Weights are of 7 bits where the target's processor
would overflow (x86 without VNNI). `corrected` takes out of every bias what rounding its weights adds to the layer's
mean output (Nagel et al., Data-free quantization, 2019, equation 15). To be timed, a network needs neither images nor
good weights: `sketched`.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sartor.core.errors import BadInput, require
from sartor.deploy import probe
from sartor.deploy.module import INPUT, session

Array = np.ndarray[Any, np.dtype[Any]]
_LAYERS = ("Conv", "Gemm", "MatMul")
# What computes in 8 bits; others would be put between two conversions and be slower for it.
_TYPES = (*_LAYERS, "Add", "Mul", "Relu", "Clip", "MaxPool", "AveragePool", "GlobalAveragePool", "Concat", "Flatten")
_BATCH = 32


@dataclass(frozen=True)
class Way:
    """One way of quantising."""

    per_channel: bool = True
    corrected: bool = True  # the biases
    ends: bool = True  # whether the first and the last layer are in 8 bits too
    gates: bool = True  # whether layers on a single pixel (squeeze-and-excitation) are, too

    def __str__(self) -> str:
        words = ["a scale for each channel" if self.per_channel else "a scale for each tensor"]
        words += ["biases corrected"] * self.corrected + ["ends in float"] * (not self.ends)
        return ", ".join(words + ["gates in float"] * (not self.gates))


WAYS = (Way(), Way(corrected=False), Way(per_channel=False), Way(gates=False), Way(ends=False, gates=False))


def quantised(model: Path | bytes, images: Array, way: Way = WAYS[0], weight_bits: int | None = None) -> bytes:
    """The network in 8 bits, its ranges those that `images` (pixels, B C S S) take in it.

    Its weights have as many bits as this machine's processor can multiply, unless told.
    """
    onnx, quantization = require("onnx", "onnx"), require("onnxruntime.quantization", "onnx")
    proto = _apart(onnx.load_model_from_string(model) if isinstance(model, bytes) else onnx.load(str(model)))
    left = _in_float(proto, way)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        source, target = Path(folder) / "float.onnx", Path(folder) / "int8.onnx"
        onnx.save(proto, str(source))
        quantization.quantize_static(
            str(source), str(target), _reader(quantization, images, _batch(proto)), per_channel=way.per_channel,
            reduce_range=(weight_bits or probe.weight_bits()) < 8,
            activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
            op_types_to_quantize=list(_TYPES), nodes_to_exclude=left,
        )  # fmt: skip
        made = onnx.load(str(target))
    if way.corrected:
        _correct(made, proto, images)
    props = {p.key: p.value for p in proto.metadata_props} | {"precision": "int8"}
    onnx.helper.set_model_props(made, dict(sorted(props.items())))
    return bytes(_brief(made).SerializeToString())


def sketched(model: bytes, weight_bits: int | None = None, strict: bool = False) -> bytes:
    """A network or a part of one in 8 bits whose ranges are made up: as fast as it would be, and good for nothing else.

    What has nothing to quantise is rounded to 8 bits and back: what every part pays that is called alone. Where that is
    no part but a network (`strict`), it is refused.
    """
    onnx, quantization = require("onnx", "onnx"), require("onnxruntime.quantization", "onnx")
    calibrate = require("onnxruntime.quantization.calibrate", "onnx")
    proto = onnx.shape_inference.infer_shapes(_apart(onnx.load_model_from_string(model)))
    try:
        left = _in_float(proto, Way())
    except BadInput:
        if strict:
            raise
        left = []
    names = [proto.graph.input[0].name, *(name for node in proto.graph.node for name in node.output)]
    ranges = {name: (np.float32(-1), np.float32(1)) for name in names}
    with _quiet():
        maker = require("onnxruntime.quantization.qdq_quantizer", "onnx").QDQQuantizer(
            proto, True, (weight_bits or probe.weight_bits()) < 8,
            quantization.QuantType.QInt8, quantization.QuantType.QUInt8,
            calibrate.TensorsData(quantization.CalibrationMethod.MinMax, ranges), [], left, list(_TYPES), {},
        )  # fmt: skip
        maker.quantize_model()
    made = maker.model.model
    if not any(node.op_type == "QuantizeLinear" for node in made.graph.node):
        _through_eight_bits(made)
    return bytes(_brief(made).SerializeToString())


def _brief(proto: Any) -> Any:
    """With short names for all but the layers, in place: those of what rounds take more room than small layers do."""
    graph = proto.graph
    kept = {value.name for value in (*graph.input, *graph.output)} | {""}
    made = (name for node in graph.node for name in node.output)
    names = [*(t.name for t in graph.initializer), *made]
    short = {name: f"v{n}" for n, name in enumerate(dict.fromkeys(names)) if name not in kept}
    for tensor in graph.initializer:
        tensor.name = short.get(tensor.name, tensor.name)
    for node in graph.node:
        node.name = node.name if node.op_type in _LAYERS else ""
        for names in (node.input, node.output):
            names[:] = [short.get(name, name) for name in names]
    del graph.value_info[:]
    return proto


def _through_eight_bits(proto: Any) -> None:
    """Round the input before anything else, in place."""
    onnx = require("onnx", "onnx")
    given = proto.graph.input[0].name
    scale, zero = (np.array(v) for v in (np.float32(0.01), np.uint8(128)))
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in (("step", scale), ("zero", zero)))
    for node in proto.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = "rounded" if name == given else name
    whole = onnx.helper.make_node("QuantizeLinear", [given, "step", "zero"], ["whole"])
    back = onnx.helper.make_node("DequantizeLinear", ["whole", "step", "zero"], ["rounded"])
    rest = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend([whole, back, *rest])


def _apart(proto: Any) -> Any:
    """The network with weights and biases of its own for every layer, in place.

    Exporters store equal ones once and hand them on by Identity, which hides them from the quantiser: the layer would
    stay in float. Those of networks that are not trained yet are all alike.
    """
    onnx = require("onnx", "onnx")
    stored = {t.name: t for t in proto.graph.initializer}
    handed = {n.output[0]: n.input[0] for n in proto.graph.node if n.op_type == "Identity" and n.input[0] in stored}
    taken = set()
    for n, node in enumerate(proto.graph.node):
        for i, given in enumerate(node.input if node.op_type in _LAYERS else ()):
            name = handed.get(given, given)
            if name not in stored:
                continue
            if name in taken:
                copy = onnx.TensorProto()
                copy.CopyFrom(stored[name])
                name = copy.name = f"{name}_{n}_{i}"
                proto.graph.initializer.append(copy)
            taken.add(name)
            node.input[i] = name
    read = {name for node in proto.graph.node for name in node.input} | {o.name for o in proto.graph.output}
    for node in [n for n in proto.graph.node if n.op_type == "Identity" and n.output[0] not in read]:
        proto.graph.node.remove(node)
    return proto


def _batch(proto: Any) -> int:
    """Images a call: as many as the graph says, or some."""
    return int(proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value) or _BATCH


def _parts(images: Array, batch: int) -> list[Array]:
    """Whole batches."""
    return [images[i : i + batch] for i in range(0, max(1, len(images) - batch + 1), batch)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without advice on preparing the model, which is prepared."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _reader(quantization: Any, images: Array, batch: int) -> Any:
    batches = iter([{INPUT: part} for part in _parts(images, batch)])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Any:
            return next(batches, None)

    return Reader()


def layers(proto: Any) -> list[Any]:
    """The operators with constant weights, in order; refused where there are none."""
    constants = {t.name for t in proto.graph.initializer}
    found = [n for n in proto.graph.node if n.op_type in _LAYERS and len(n.input) > 1 and n.input[1] in constants]
    if not found:
        raise BadInput("there is nothing to quantise: the network has no convolution or fully connected layer.")
    return found


def _in_float(proto: Any, way: Way) -> list[str]:
    """The names of the operators that stay: the normalisation before the first layer in any case."""
    for n, node in enumerate(proto.graph.node):
        node.name = node.name or f"{node.op_type}_{n}"
    computing = layers(proto)
    first = next(n for n, node in enumerate(proto.graph.node) if node.name == computing[0].name)
    left = [node.name for node in proto.graph.node[:first]]
    if not way.ends:
        left += [computing[0].name, computing[-1].name]
    if not way.gates:
        pooled = {out for n in proto.graph.node if n.op_type == "GlobalAveragePool" for out in n.output}
        for node in proto.graph.node:  # all that follows a pool over the whole image, but the last layer
            if any(name in pooled for name in node.input) and node.name != computing[-1].name:
                pooled.update(node.output if node.op_type not in ("Mul", "Add", "Flatten") else ())
                left.append(node.name)
    return left


def _correct(made: Any, proto: Any, images: Array) -> None:
    """Take ``(rounded W - W) mean(x)`` out of every layer's bias, in place."""
    onnx = require("onnx", "onnx")
    plain = {t.name: onnx.numpy_helper.to_array(t) for t in proto.graph.initializer}
    stored = {t.name: t for t in made.graph.initializer}
    behind = {n.output[0]: n.input for n in made.graph.node if n.op_type == "DequantizeLinear"}
    means = _means(proto, images)
    float_of = {n.name: n for n in layers(proto)}
    for node in made.graph.node:
        given = float_of.get(node.name)
        if given is None or len(node.input) < 3 or node.input[1] not in behind or node.input[2] not in behind:
            continue
        weight, off = plain[given.input[1]], _rounded(onnx, stored, behind[node.input[1]])
        mean, transposed = means[given.input[0]], given.op_type == "Gemm" and _flag(given, "transB")
        error = (off - weight if given.op_type == "Conv" or transposed else (off - weight).T).astype(np.float64)
        if given.op_type == "Conv":
            error = error.sum(axis=(2, 3))
            groups, inner = weight.shape[0], error.shape[1]
            share = mean.reshape(-1, inner)  # one row a group
            mean = np.repeat(share, groups // len(share), axis=0)
        delta = (error * mean).sum(axis=1)
        name, scale = behind[node.input[2]][0], onnx.numpy_helper.to_array(stored[behind[node.input[2]][1]])
        bias = onnx.numpy_helper.to_array(stored[name]).astype(np.int64) - np.rint(delta / scale).astype(np.int64)
        stored[name].CopyFrom(onnx.numpy_helper.from_array(bias.astype(np.int32), name))


def _flag(node: Any, name: str) -> bool:
    return any(a.name == name and a.i for a in node.attribute)


def _rounded(onnx: Any, stored: Any, parts: Any) -> Array:
    """A stored weight as the numbers that it stands for."""
    whole, scale, zero = (onnx.numpy_helper.to_array(stored[name]).astype(np.float64) for name in parts[:3])
    shape = (-1, *(1,) * (whole.ndim - 1)) if scale.ndim else ()
    found: Array = (whole - zero.reshape(shape)) * scale.reshape(shape)
    return found


def _means(proto: Any, images: Array) -> dict[str, Array]:
    """The mean of every layer's input, channel by channel."""
    onnx = require("onnx", "onnx")
    names = list(dict.fromkeys(n.input[0] for n in layers(proto)))
    told = onnx.ModelProto()
    told.CopyFrom(proto)
    known = {o.name for o in told.graph.output}
    told.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in known and n != INPUT)
    wanted, run, totals = [n for n in names if n != INPUT], session(told.SerializeToString()), dict[str, Array]()
    parts = _parts(images, _batch(proto))
    for part in parts:
        for name, v in {**dict(zip(wanted, run.run(wanted, {INPUT: part}), strict=True)), INPUT: part}.items():
            mean = v.mean(axis=(0, *range(2, v.ndim)), dtype=np.float64) / len(parts)
            totals[name] = totals[name] + mean if name in totals else mean
    return totals


def farthest(plain: Path, small: Path) -> float:
    """How far the weights of the 8-bit file lie from those of the other, at most, in steps of their rounding."""
    onnx = require("onnx", "onnx")
    one, other = (onnx.load(str(path), load_external_data=False) for path in (plain, small))
    _in_float(_apart(one), Way())  # names the operators as the quantiser did
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in one.graph.initializer}
    stored = {t.name: t for t in other.graph.initializer}
    behind = {n.output[0]: n.input for n in other.graph.node if n.op_type == "DequantizeLinear"}
    named, found = {n.name: n for n in other.graph.node}, []
    for node in layers(one):
        twin, weight = named.get(node.name), weights[node.input[1]]
        if twin is None or len(twin.input) < 2:
            return float("inf")
        if twin.input[1] in behind:
            parts = behind[twin.input[1]]
            scale = onnx.numpy_helper.to_array(stored[parts[1]]).astype(np.float64)
            step = scale.reshape(-1, *(1,) * (weight.ndim - 1)) if scale.ndim else scale
            rounded = _rounded(onnx, stored, parts)
            found.append(float(np.abs((rounded - weight) / step).max()) if rounded.shape == weight.shape else np.inf)
        elif not np.array_equal(onnx.numpy_helper.to_array(stored[twin.input[1]]), weight):  # left in float
            return float("inf")
    return max(found, default=float("inf"))
