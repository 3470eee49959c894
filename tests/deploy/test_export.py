import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from sartor.core.arch import Arch
from sartor.core.errors import BadInput, RunError, SartorError
from sartor.core.task import Task
from sartor.costs.latency.cost import Latency
from sartor.deploy.export import (
    OnnxModel,
    export_onnx,
    load_weights,
    preprocessing,
    save_weights,
    write_labels,
    write_preprocessing,
)
from sartor.deploy.module import INPUT, OUTPUT, Deployed, onnx_graph, session
from sartor.spaces.mobile.space import Mobile

onnx = pytest.importorskip("onnx")
TASK = Task(5, 8, 3)
SPACE = Mobile(preset="tiny")
ARCH = Arch((0, 1, 1, 0, 0) * 5)  # two blocks a stage, all with squeeze-excitation
MEAN, STD = (120.0, 110.0, 100.0), (60.0, 50.0, 40.0)


def network(seed=0):
    """A network with squeeze-excitation and with batch-norm statistics of real activations."""
    torch.manual_seed(seed)
    net = Deployed(SPACE.network(ARCH, TASK), MEAN, STD).train()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None  # a plain average, so that one batch is enough
    net(torch.rand(64, 3, 8, 8) * 255)
    net.net.head.classifier.weight.data *= 100
    return net.eval()


@pytest.fixture(scope="module")
def model():
    return network()


@pytest.fixture(scope="module")
def file(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    assert export_onnx(model, TASK, path) < 1e-3
    return path


def test_normalisation_is_inside():
    net = Deployed(nn.Identity(), MEAN, STD)
    x = torch.rand(2, 3, 4, 4) * 255
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (MEAN, STD))
    torch.testing.assert_close(net(x), (x - mean) / std)
    with pytest.raises(BadInput):
        Deployed(nn.Identity(), MEAN, (1.0, 0.0, 1.0))


def test_export_is_one_quiet_file_with_a_dynamic_batch(model, tmp_path, capfd):
    path = tmp_path / "out" / "model.onnx"
    export_onnx(model.train(), TASK, path)
    assert model.training
    model.eval()
    out, err = capfd.readouterr()
    assert out == ""
    assert "torchvision" not in err
    assert "Warning" not in err
    assert [p.name for p in path.parent.iterdir()] == ["model.onnx"]
    proto = onnx.load(path)
    onnx.checker.check_model(proto)
    assert proto.opset_import[0].version >= 18
    shape = proto.graph.input[0].type.tensor_type.shape.dim
    assert proto.graph.input[0].name == INPUT
    assert proto.graph.output[0].name == OUTPUT
    assert shape[0].dim_param
    assert [d.dim_value for d in shape[1:]] == [3, 8, 8]


def test_loaded_model_equals_torch(model, file):
    images = np.random.default_rng(1).integers(0, 256, (7, 3, 8, 8), np.uint8)
    with torch.no_grad():
        expected = model(torch.from_numpy(images).float())
    loaded = OnnxModel(file)
    assert expected.std(0).min() > 1e-3  # the images are told apart, so agreement means something
    np.testing.assert_allclose(loaded.logits(images), expected.numpy(), rtol=1e-4, atol=1e-4)
    probabilities = TASK.probabilities(loaded.logits(images))
    np.testing.assert_allclose(probabilities, expected.softmax(1).numpy(), atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)


def test_simplified_graph_is_the_same_function_with_fewer_operators(model):
    x = np.random.default_rng(0).random((1, 3, 8, 8), np.float32) * 255
    with torch.no_grad():
        expected = model(torch.from_numpy(x)).numpy()
    for batch, trace in ((1, True), (None, True), (None, False)):  # both exporters
        graph = onnx_graph(model, (3, 8, 8), batch, trace)
        kinds = [node.op_type for node in onnx.load_from_string(graph).graph.node]
        assert kinds.count("HardSigmoid") == 10
        assert kinds.count("GlobalAveragePool") == 11
        assert not {"Clip", "Div", "ReduceMean"} & set(kinds)
        np.testing.assert_allclose(session(graph).run(None, {INPUT: x})[0], expected, rtol=1e-4, atol=1e-4)


class _Means(nn.Module):
    """Means and clips that look like a pool and a gate and are neither."""

    def forward(self, x):
        a = x.mean((1, 2), keepdim=True) + x.mean((2, 3), keepdim=False)[:, :, None, None]
        shifted = x + 3.0
        return torch.clamp(shifted, 0.0, 6.0) / 6.0 * shifted + torch.clamp(x + 3.0, 0.0, 5.0) / 6.0 + a


def test_look_alikes_are_left_alone():
    x = torch.randn(1, 3, 5, 5) * 4
    for batch, trace in ((1, True), (None, True), (None, False)):
        graph = onnx_graph(_Means(), (3, 5, 5), batch, trace)
        got = session(graph).run(None, {INPUT: x.numpy()})[0]
        np.testing.assert_allclose(got, _Means()(x).numpy(), rtol=1e-5, atol=1e-5)


def test_exported_file_can_be_timed(file):
    timing = Latency(verify_s=0.05).time(file, (3, 8, 8))
    assert timing.p50 > 0
    assert timing.drift is None


class _Branches(nn.Module):
    """What it does depends on what an image shows."""

    def forward(self, x):
        return x.flatten(1)[:, :5] * (2 if x.mean() > 0 else 3)


def test_what_a_trace_would_bake_in_is_not_traced():
    with pytest.raises(Exception, match=r"(?i)data-dependent|torch.cond|control flow|Could not guard"):
        onnx_graph(_Branches(), (3, 8, 8))


class _Random(nn.Module):
    """Not a function of its input alone: no export can agree with it."""

    def forward(self, x):
        return x.flatten(1)[:, :5] * (1 if torch.onnx.is_in_onnx_export() or torch.compiler.is_compiling() else 2)


def test_a_graph_that_disagrees_is_not_written(tmp_path):
    with pytest.raises(SartorError, match="differ"):
        export_onnx(Deployed(_Random(), MEAN, STD), TASK, tmp_path / "m.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "images",
    [
        np.zeros((3, 8, 8)),
        np.zeros((0, 3, 8, 8)),
        np.zeros((1, 1, 8, 8)),
        np.full((1, 3, 8, 8), np.nan),
        np.full((1, 3, 8, 8), 256.0),
        np.full((1, 3, 8, 8), -1),
        np.full((1, 3, 8, 8), "a"),
    ],
)
def test_wrong_images_are_refused(file, images):
    with pytest.raises(BadInput):
        OnnxModel(file).logits(images)


def test_files_that_are_no_model_are_refused(file, tmp_path):
    bad = tmp_path / "bad.onnx"
    for content in (b"", b"garbage", file.read_bytes()[:1000]):
        bad.write_bytes(content)
        with pytest.raises(BadInput):
            OnnxModel(bad)
    with pytest.raises(BadInput, match="no such file"):
        OnnxModel(tmp_path / "none.onnx")
    proto = onnx.load(file)
    tensor = proto.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    bad.write_bytes(proto.SerializeToString())
    with pytest.raises(BadInput, match="other files"):
        OnnxModel(bad)


def test_weights_round_trip(model, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_weights(model.to(memory_format=torch.channels_last), path, {"arch": "net"})
    other = network(seed=1)
    assert load_weights(other, path)["arch"] == "net"
    for (name, a), b in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_weights_of_another_network_change_nothing(model, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_weights(model, path)
    small = Deployed(SPACE.network(SPACE.smallest, TASK), MEAN, STD)
    before = {k: v.clone() for k, v in small.state_dict().items()}
    with pytest.raises(BadInput, match="exactly"):
        load_weights(small, path)
    wider = Deployed(SPACE.network(ARCH, Task(6, 8, 3)), MEAN, STD)
    with pytest.raises(BadInput, match="shape"):
        load_weights(wider, path)
    assert all(torch.equal(v, before[k]) for k, v in small.state_dict().items())


def test_damaged_and_malicious_weights_are_refused(model, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_weights(model, path)
    whole = path.read_bytes()
    pickled = tmp_path / "p.pt"
    torch.save({"a": torch.zeros(1)}, pickled)
    huge = (2**62).to_bytes(8, "little") + b"{}"
    for content in (b"", whole[:100], whole[:-10], pickled.read_bytes(), huge):
        path.write_bytes(content)
        with pytest.raises(RunError):
            load_weights(model, path)
    with pytest.raises(RunError, match="missing"):
        load_weights(model, tmp_path / "none.safetensors")


def test_labels_and_preprocessing(tmp_path):
    write_labels(tmp_path / "m", ["cat", "häst", "two\nlines"])
    assert json.loads((tmp_path / "m" / "labels.json").read_text()) == ["cat", "häst", "two\nlines"]
    assert (tmp_path / "m" / "labels.txt").read_text().splitlines() == ["cat", "häst", "two lines"]
    data = preprocessing(TASK, MEAN, STD)
    assert data["image"] == 8
    assert data["normalisation"]["in_graph"] is True
    assert json.loads(json.dumps(data)) == data
    write_preprocessing(tmp_path / "p" / "preprocessing.json", TASK, MEAN, STD, list("abcde"))
    assert json.loads((tmp_path / "p" / "preprocessing.json").read_text())["labels"] == list("abcde")
    assert (tmp_path / "p" / "labels.txt").exists()


def test_the_exported_file_knows_no_path_of_this_machine(tmp_path):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    export_onnx(Deployed(net, (0.0,) * 3, (1.0,) * 3), Task(4, 8), tmp_path / "model.onnx")
    held = (tmp_path / "model.onnx").read_bytes()
    assert b".py" not in held and str(Path(__file__).parents[2]).encode() not in held
