"""Eight bits: the same function nearly, better with its biases corrected, refused where there is nothing to do."""

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from sartor.core.errors import BadInput
from sartor.core.registry import RUNTIMES
from sartor.deploy import probe
from sartor.deploy.export import OnnxModel
from sartor.deploy.module import Deployed, onnx_graph
from sartor.deploy.quantise import WAYS, Way, farthest, quantised, sketched

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (32, 3, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def graph():
    """A convolution, a depthwise one, a gate and a classifier, with batch-norms that have seen images."""
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
            self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8, bias=False), nn.BatchNorm2d(8), nn.ReLU())
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())
            self.last = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))

        def forward(self, x):
            x = self.stem(x)
            x = x + self.deep(x)
            return self.last(x * self.gate(x))

    net = Deployed(Net(), (128.0,) * 3, (64.0,) * 3).train()
    for _ in range(30):
        net(torch.from_numpy(IMAGES))
    net.net.last[2].weight.data *= 20
    return onnx_graph(net.eval(), (3, 8, 8), 32)


def logits(model):
    return OnnxModel(model).logits(IMAGES)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_is_nearly_the_same_function(graph, way, tmp_path):
    small, exact = quantised(graph, IMAGES, way), logits(graph)
    assert np.abs(logits(small) - exact).max() < 0.1 * np.abs(exact).max()
    kinds = [n.op_type for n in onnx.load_from_string(small).graph.node]
    assert "QuantizeLinear" in kinds
    for name, content in (("plain.onnx", graph), ("small.onnx", small), ("other.onnx", _other(small))):
        (tmp_path / name).write_bytes(content)
    assert farthest(tmp_path / "plain.onnx", tmp_path / "small.onnx") <= 0.51
    assert farthest(tmp_path / "plain.onnx", tmp_path / "other.onnx") > 1


def _other(small):
    """The same with one weight changed by two steps."""
    model = onnx.load_from_string(small)
    stored = next(t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8 and len(t.dims) == 4)
    values = onnx.numpy_helper.to_array(stored).copy()
    values.flat[0] += 2 if values.flat[0] < 100 else -2
    stored.CopyFrom(onnx.numpy_helper.from_array(values, stored.name))
    return model.SerializeToString()


def test_corrected_biases_bring_the_mean_back(graph):
    """With weights of three bits' worth of error, as a coarse scale gives them, the mean output is off; not after."""
    coarse = {way: quantised(graph, IMAGES, Way(per_channel=False, corrected=way), weight_bits=7) for way in (0, 1)}
    off = {way: np.abs((logits(model) - logits(graph)).mean(axis=0)).mean() for way, model in coarse.items()}
    assert off[1] < off[0]


def test_openvino_runs_it_too(graph, tmp_path):
    pytest.importorskip("openvino")
    file = tmp_path / "small.onnx"
    file.write_bytes(quantised(graph, IMAGES))
    found = RUNTIMES["openvino"](batch=32).run(file, IMAGES)
    assert np.abs(found - logits(graph)).max() < 0.1 * np.abs(logits(graph)).max()


def test_nothing_to_quantise_and_a_processor_without_vnni(monkeypatch):
    with pytest.raises(BadInput, match="nothing to quantise"):
        quantised(onnx_graph(nn.ReLU(), (3, 8, 8), 1), IMAGES)
    for processor, flags, bits in (("aarch64", "", 8), ("x86_64", "avx2", 7), ("x86_64", "avx2 avx_vnni", 8)):
        monkeypatch.setattr(probe.platform, "machine", lambda it=processor: it)
        monkeypatch.setattr(probe, "_read", lambda path, it=flags: it)
        assert probe.weight_bits() == bits


def test_layers_that_are_alike_are_all_in_8_bits():
    """Weights and biases that are equal are stored once by the exporter: those of every untrained network."""
    net = nn.Sequential(*(nn.Sequential(nn.Conv2d(3, 3, 3, 1, 1, bias=False), nn.BatchNorm2d(3)) for _ in range(3)))
    for conv, _ in net:
        nn.init.zeros_(conv.weight)
    plain = onnx_graph(net, (3, 8, 8), 1)
    for small in (quantised(plain, IMAGES[:2]), sketched(plain)):
        nodes = onnx.load_from_string(small).graph.node
        behind = {name for node in nodes if node.op_type == "DequantizeLinear" for name in node.output}
        layers = [node for node in nodes if node.op_type == "Conv"]
        assert len(layers) == 3 and all(set(node.input) <= behind for node in layers)


def test_a_sketch_has_the_operators_of_the_real_one(graph):
    kinds = [sorted(n.op_type for n in onnx.load_from_string(m).graph.node) for m in
             (sketched(graph), quantised(graph, IMAGES))]  # fmt: skip
    assert kinds[0] == kinds[1]
    nothing = onnx_graph(nn.Identity(), (3, 8, 8), 32)
    assert np.abs(logits(sketched(nothing)) - IMAGES.clip(-1.28, 1.27)).max() < 0.01


def test_a_runtime_quantises_what_it_is_given_as_a_module():
    net = nn.Conv2d(3, 3, 3)
    plain, small = (RUNTIMES.make("onnxruntime", {"precision": p}) for p in ("float32", "int8"))
    assert b"QuantizeLinear" in small.portable(net, (3, 8, 8)) and b"QuantizeLinear" not in plain.portable(
        net, (3, 8, 8)
    )
    assert small.identity() == {**plain.identity(), "precision": "int8", "weight_bits": probe.weight_bits()}
    with pytest.raises(BadInput, match="onnxruntime or openvino, but got torch"):
        RUNTIMES.make("torch", {"precision": "int8"})
