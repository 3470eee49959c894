"""bfloat16 on a CPU: where it is used, that depthwise layers stay in 32 bits, and that trainings are as good."""

import subprocess
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from sartor.engine import half
from sartor.engine.device import Engine
from sartor.engine.fit import Training, fit, nothing
from sartor.engine.recipe import Recipe
from sartor.spaces.depthwise import Depthwise, in_32_bits

PROMISED = "fpu avx512f avx512_bf16"


@pytest.fixture
def fresh():
    half.computed.cache_clear()
    yield
    half.computed.cache_clear()


def test_processors_that_promise_nothing_are_not_tried(fresh, monkeypatch):
    monkeypatch.setattr(half, "_flags", lambda: "fpu avx512f avx512_vnni")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("tried"))
    assert not half.computed()


@pytest.mark.parametrize(("code", "works"), [(0, True), (-4, False), (1, False)])
def test_it_is_tried_in_a_process_of_its_own_and_remembered(fresh, monkeypatch, tmp_path, code, works):
    tries = []
    monkeypatch.setenv("SARTOR_CACHE", str(tmp_path))
    monkeypatch.setattr(half, "_flags", lambda: PROMISED)
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: tries.append(a) or SimpleNamespace(returncode=code))
    assert half.computed() is works
    half.computed.cache_clear()
    assert half.computed() is works and len(tries) == 1
    monkeypatch.setattr(half, "_flags", lambda: PROMISED + " amx_bf16")  # another processor
    half.computed.cache_clear()
    assert half.computed() is works and len(tries) == 2


def test_one_that_hangs_is_not_used(fresh, monkeypatch):
    def hang(*args, timeout, **kwargs):
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(half, "_flags", lambda: PROMISED)
    monkeypatch.setattr(subprocess, "run", hang)
    assert not half.computed()


@pytest.fixture
def able():
    if not half.computed():
        pytest.skip("this CPU does not compute in bfloat16")


def test_dense_layers_are_halved_and_depthwise_ones_are_not(able):
    torch.manual_seed(0)
    engine = Engine("cpu")
    net = engine.place(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3, groups=2)))
    in_32_bits(net)
    assert [type(layer) is Depthwise for layer in net] == [False, True, False]
    x, seen = torch.randn(2, 3, 12, 12), []
    exact = net(x)
    for layer in net:
        layer.register_forward_hook(lambda layer, given, out: seen.append(out.dtype))
    with engine.autocast(True):
        rough = net(x)
    assert seen == [torch.bfloat16, torch.float32, torch.bfloat16]
    torch.testing.assert_close(rough.float(), exact, atol=0.03, rtol=0.05)
    rough.float().square().sum().backward()
    assert all(p.grad.dtype is torch.float32 for p in net.parameters())
    with engine.autocast():
        assert net(x).dtype is torch.float32


def _trained(path, mixed):
    job = tiny.job(path)
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.Flatten()]
    layers += [nn.LazyLinear(job.task.classes)]
    net = nn.Sequential(*layers)
    net(torch.zeros(2, 1, job.task.image, job.task.image))
    net, kinds = job.engine.place(net), set()

    def loss(x, y, drawn):
        logits = net(x)
        kinds.add(logits.dtype)
        return {"loss": job.task.loss(logits, y)}

    recipe = Recipe(epochs=3, batch=16, augment="light", mixed=mixed)
    history = fit(Training("half", net, loss, recipe, job.feed, np.arange(48), job.run, draw=nothing))
    return history, kinds


def test_a_training_computes_in_it_where_its_recipe_says_so(able, tmp_path):
    whole, exact = _trained(tmp_path / "whole", mixed=False)
    history, rough = _trained(tmp_path / "half", mixed=True)
    assert exact == {torch.float32} and rough == {torch.bfloat16}
    assert [h["loss"] for h in history] == pytest.approx([h["loss"] for h in whole], rel=0.05)
    assert [h["loss"] for h in history] != [h["loss"] for h in whole]
