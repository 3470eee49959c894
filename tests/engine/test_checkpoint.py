import json

import pytest
import quick
import torch
from safetensors.torch import save_file
from torch import nn

from sartor.core.errors import RunError
from sartor.engine import checkpoint


def same(a, b):
    assert type(a) is type(b)
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert a == b


def test_nested_state_comes_back_whole(tmp_path):
    shared = torch.arange(3.0)
    state = {
        "epoch": 3, "rate": 0.1, "none": None, "on": True, "text": "größe", "empty": {}, "nothing": [],
        "history": [{"loss": 1.5, "accuracy": 0.1}],
        "deep": {"a": [torch.randn(2, 3), {"b": torch.tensor(7)}], 5: torch.zeros(0, 4), "5": torch.ones(1)},
        "types": [torch.randn(3).bfloat16(), torch.randn(3).half(), torch.randn(3).double(), torch.tensor([True])],
        "strided": torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
        "a": {"b": torch.tensor([1.0])}, "a/b": torch.tensor([2.0]),
        "once": shared, "twice": shared, "view": shared[1:],
    }  # fmt: skip
    checkpoint.save(tmp_path / "x.safetensors", state)
    same(checkpoint.load(tmp_path / "x.safetensors"), state)


def test_state_without_tensors_comes_back(tmp_path):
    checkpoint.save(tmp_path / "x.safetensors", {"epoch": 3})
    same(checkpoint.load(tmp_path / "x.safetensors"), {"epoch": 3})


def test_an_optimiser_goes_on_as_if_nothing_happened(tmp_path):
    def made():
        torch.manual_seed(0)
        net = nn.Linear(4, 4)
        return net, torch.optim.SGD(net.parameters(), 0.1, 0.9, nesterov=True)

    def step(net, optimiser, k):
        optimiser.zero_grad()
        net(torch.full((2, 4), float(k))).square().sum().backward()
        optimiser.step()

    straight, resumed = made(), made()
    for k in range(3):
        step(*straight, k)
    for k in range(2):
        step(*resumed, k)
    state = {"net": resumed[0].state_dict(), "opt": resumed[1].state_dict()}
    checkpoint.save(tmp_path / "x.safetensors", state)
    net, optimiser = made()
    saved = checkpoint.load(tmp_path / "x.safetensors")
    net.load_state_dict(saved["net"])
    optimiser.load_state_dict(saved["opt"])
    step(net, optimiser, 2)
    same(dict(net.state_dict()), dict(straight[0].state_dict()))


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "x.safetensors"
    checkpoint.save(path, {"w": torch.arange(100.0), "epoch": 3})
    return path


@pytest.mark.parametrize("keep", [0, 4, 50, -8])
def test_a_truncated_file_is_refused_by_name(good, keep):
    good.write_bytes(good.read_bytes()[:keep])
    with pytest.raises(RunError, match=r"x\.safetensors is damaged"):
        checkpoint.load(good)


def test_a_missing_file_and_a_pickle_are_refused_by_name(good, tmp_path):
    with pytest.raises(RunError, match=r"none\.safetensors"):
        checkpoint.load(tmp_path / "none.safetensors")
    torch.save({"w": torch.zeros(1)}, good)
    with pytest.raises(RunError, match=r"x\.safetensors"):
        checkpoint.load(good)


@pytest.mark.parametrize(
    "header",
    [None, "", "[1, 2]", "3", "{}", '{"__tensor__": "none"}', '{"__items__": [1]}', '{"__items__": [[[1], 2]]}',
     "[" * 99_999],
    ids=["none", "empty", "list", "number", "object", "no tensor", "no pairs", "bad key", "deep"],
)  # fmt: skip
def test_a_malicious_header_is_refused_by_name(tmp_path, header):
    path = tmp_path / "x.safetensors"
    save_file({"w": torch.zeros(1)}, path, None if header is None else {"state": header})
    with pytest.raises(RunError, match=r"x\.safetensors is damaged"):
        checkpoint.load(path)


def test_a_failed_save_keeps_the_old_file(good):
    with pytest.raises(TypeError):
        checkpoint.save(good, {"w": torch.zeros(1), "thing": object()})
    assert checkpoint.load(good)["epoch"] == 3
    assert json.dumps([p.name for p in good.parent.iterdir()]) == '["x.safetensors"]'


INTERRUPTED = """
import signal
from pathlib import Path

import torch

from sartor.engine import checkpoint

path = Path("state")
checkpoint.save(path, {"a": torch.ones(2)})
real = checkpoint.safe_open


def stop(*_):
    raise KeyboardInterrupt


class Interrupted:
    def __init__(self, *given):
        self.file = real(*given).__enter__()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def get_tensor(self, name):
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:  # as torch turns what a handler raises inside it into an error of its own
            raise TypeError("could not determine the shape of object type 'UntypedStorage'") from None
        return self.file.get_tensor(name)

    def __getattr__(self, name):
        return getattr(self.file, name)


signal.signal(signal.SIGTERM, stop)
checkpoint.safe_open = Interrupted
try:
    checkpoint.load(path)
except KeyboardInterrupt:
    print("stopped")
"""


def test_a_signal_while_a_file_is_read_is_no_damage(tmp_path):
    """In a process of its own: one that came through would end those that run the tests."""
    done = quick.run(["-c", INTERRUPTED], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
