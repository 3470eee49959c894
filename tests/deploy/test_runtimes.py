"""Every runtime gives PyTorch's logits, whatever operators a space's networks have; what is missing is said."""

import numpy as np
import pytest
import quick
import torch
from torch import nn

from sartor.core.arch import Arch, canonical
from sartor.core.errors import BadInput, MissingDependency
from sartor.core.registry import RUNTIMES, SPACES
from sartor.core.task import Task
from sartor.costs.latency.cost import Latency
from sartor.deploy import litert
from sartor.deploy.export import OnnxModel
from sartor.deploy.module import Deployed, onnx_graph

PACKAGES = {"onnxruntime": "onnxruntime", "openvino": "openvino", "litert": "ai_edge_litert", "torch": "torch"}


class _EveryOperator(nn.Module):
    """The operators of all spaces: two batch-norms of which one stands alone, pools with and without their border."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.deep = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=8))
        self.grouped = nn.Conv2d(8, 8, 3, 1, 1, groups=2)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1), nn.Hardsigmoid())
        self.pools = nn.ModuleList([
            nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d(3, 2, 1), nn.MaxPool2d(3, 2, 1),
        ])  # fmt: skip
        self.last = nn.Linear(8 * 3 * 2 * 2, 5)

    def forward(self, x):
        x = self.stem(x)
        x = x + self.deep(x) * self.gate(x) + self.grouped(x)
        x = torch.cat([pool(x) for pool in self.pools], 1)[:, :, :2, :-1]
        return self.last(torch.flatten(x, 1))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    made = Deployed(_EveryOperator(), (120.0, 110.0, 100.0), (60.0, 50.0, 40.0)).train()
    made(torch.rand(32, 3, 12, 10) * 255)
    return made.eval()


@pytest.mark.parametrize("name", RUNTIMES.names())
def test_every_runtime_is_pytorch(net, name, tmp_path):
    pytest.importorskip(PACKAGES[name])
    images = np.random.default_rng(0).random((2, 3, 12, 10), np.float32) * 255
    with torch.no_grad():
        expected = net(torch.from_numpy(images)).numpy()
    runtime = RUNTIMES[name](batch=2)
    np.testing.assert_allclose(runtime.run(net, images), expected, atol=1e-4 * np.abs(expected).max())
    assert runtime.identity()["runtime_version"]
    if runtime.exported:
        file = tmp_path / "model.onnx"
        file.write_bytes(onnx_graph(net, (3, 12, 10), 2))
        np.testing.assert_allclose(runtime.run(file, images), expected, atol=1e-4 * np.abs(expected).max())
        file.write_bytes(b"nonsense")
        with pytest.raises(BadInput):
            runtime.run(file, images)


@pytest.mark.parametrize("name", [name for name in SPACES.names() if name != "freecells"])  # has the cells of darts
def test_every_space_has_networks_that_all_runtimes_run(name, tmp_path):
    """At a side that is halved to odd ones."""
    task = Task(3, 14, 1)
    space, rng = SPACES[name]().fitted(task), np.random.default_rng(3)
    images = rng.random((2, 1, 14, 14), np.float32) * 255
    first = canonical(space.choices, Arch((0,) * len(space.sizes)))  # often that with the least in it
    for arch in (first if all(rule.holds(first) for rule in space.rules) else space.sample(rng), space.sample(rng)):
        net = Deployed(space.network(arch, task), (120.0,), (60.0,)).eval()
        file = tmp_path / "model.onnx"
        file.write_bytes(onnx_graph(net, (1, 14, 14), 2))
        expected = OnnxModel(file).logits(images)
        for runtime in ("openvino", "litert"):
            pytest.importorskip(PACKAGES[runtime])
            found = RUNTIMES[runtime](batch=2).run(file, images)
            np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_a_network_is_timed_under_each(net):
    for name in ("openvino", "litert"):
        pytest.importorskip(PACKAGES[name])
        assert Latency(runtime=name, verify_s=0.02).measure(net, (3, 12, 10)).value > 0


SIGNALLED = """
import signal
from torch import nn
from sartor.costs.latency.cost import Latency

net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(800, 5)).eval()
Latency(runtime="openvino", verify_s=0.02).measure(net, (3, 12, 12))
signal.signal(signal.SIGTERM, lambda *_: print("heard", flush=True))
signal.raise_signal(signal.SIGTERM)
"""


def test_a_process_that_timed_under_openvino_still_hears_signals(tmp_path):
    """OpenVINO lends a thread the stack that handlers run on, and takes it back with its last object."""
    pytest.importorskip("openvino")
    done = quick.run(["-c", SIGNALLED], tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, ["heard"]), done.stderr


def test_batch_and_threads_are_part_of_the_device(net):
    one, four = (Latency(batch=b, threads=t).identity() for b, t in ((1, 1), (4, 2)))
    assert {k for k in one if one[k] != four[k]} == {"batch", "threads"}


class _Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x).flatten(1)


def test_what_litert_cannot_have_is_refused_by_name():
    pytest.importorskip("ai_edge_litert")
    with pytest.raises(BadInput, match="operator Sin"):
        litert.to_litert(onnx_graph(_Sine(), (1, 2, 2), 1))


@pytest.mark.parametrize("name", ["openvino", "litert"])
def test_a_runtime_that_is_not_there_is_named_with_its_extra(name, net, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, PACKAGES[name], None)
    monkeypatch.setitem(__import__("sys").modules, f"{PACKAGES[name]}.interpreter", None)
    with pytest.raises(MissingDependency, match=rf"sartor\[{name}\]"):
        Latency(runtime=name).measure(net, (3, 12, 10))
