"""Repeated work: the same numbers, replayed or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sartor.core.task import Task
from sartor.engine.replay import Repeated
from sartor.spaces.mobile.space import Mobile
from sartor.spaces.supernet import StepDraw

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a CUDA device")


def recorded(repeated):
    return [known.graph is not None for known in repeated._known.values()]


def test_on_a_cpu_the_function_is_called_every_time():
    calls = []
    repeated = Repeated(lambda tensors, _: calls.append(1) or tensors[0] * 2, torch.device("cpu"))
    for n in range(5):
        assert repeated((torch.tensor(n),)) == 2 * n
    assert len(calls) == 5


def test_prepared_paths_are_the_paths():
    space, task = Mobile(preset="tiny"), Task(3, 8, 1)
    net, rng = space.fitted(task).supernet(task).eval(), np.random.default_rng(0)
    x, picks = torch.randn(36, 1, 8, 8), space.sample_picks(rng, 36)
    paths = net.prepared(picks, x.device)
    assert isinstance(paths, StepDraw)
    torch.testing.assert_close(net(x, paths), net(x, picks), rtol=0, atol=0)
    hash(paths.same)


@cuda
def test_a_replay_computes_what_the_function_does():
    net = nn.Linear(4, 2).cuda()

    def step(tensors, key=None):
        net.weight.grad = None
        net(tensors[0]).square().sum().backward()
        return net.weight.grad

    repeated = Repeated(step, torch.device("cuda"))
    for n in range(8):
        with torch.no_grad():
            net.weight.add_(0.1)  # the recording reads the weights where they lie
        x = torch.full((3, 4), float(n), device="cuda")
        replayed = repeated((x,)).clone()
        torch.testing.assert_close(replayed, step((x,)))
    assert recorded(repeated) == [True]
    assert repeated((torch.ones(5, 4, device="cuda"),)).shape == (2, 4)  # other shapes: another recording
    assert recorded(repeated) == [False]


@cuda
def test_a_tensor_that_is_differentiated_elsewhere_may_be_given():
    def gradient(tensors, key):
        leaf = tensors[0].detach().requires_grad_()
        return torch.autograd.grad(leaf.square().sum(), leaf)[0]

    repeated = Repeated(gradient, torch.device("cuda"))
    for n in range(6):
        given = torch.full((3,), float(n), device="cuda", requires_grad=True)
        torch.testing.assert_close(repeated((given,)), 2 * given.detach())


@cuda
def test_several_shapes_in_turn_are_all_replayed():
    repeated = Repeated(lambda tensors, _: tensors[0] * 2, torch.device("cuda"), keep=2)
    for n in range(12):
        x = torch.full((2 + n % 2,), float(n), device="cuda")
        torch.testing.assert_close(repeated((x,)), 2 * x)
    assert recorded(repeated) == [True, True]


@cuda
def test_work_that_waits_for_the_device_runs_as_it_is():
    repeated = Repeated(lambda tensors, _: float(tensors[0].sum().item()), torch.device("cuda"))
    assert [repeated((torch.full((2,), float(n), device="cuda"),)) for n in range(6)] == [2.0 * n for n in range(6)]
    assert torch.rand(2, device="cuda").shape == (2,)  # a recording that failed must not spoil what follows


@cuda
def test_a_replayed_multi_path_step_is_the_step():
    space, task = Mobile(), Task(10, 32)
    space = space.fitted(task)
    torch.manual_seed(0)
    net, rng = space.supernet(task).cuda().train(), np.random.default_rng(0)

    def step(tensors, same):
        for p in net.parameters():
            p.grad = None
        net(tensors[0], StepDraw(tuple(tensors[1:]), same)).square().mean().backward()
        return [p.grad for p in net.parameters()]

    repeated = Repeated(step, torch.device("cuda"))
    for _ in range(5):
        x = torch.randn(36, 3, 32, 32, device="cuda")
        paths = net.prepared(space.sample_picks(rng, 36), x.device)
        replayed = [g.clone() for g in repeated((x, *paths.tensors), paths.same)]
        for mine, theirs in zip(replayed, step((x, *paths.tensors), paths.same), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)
    assert recorded(repeated) == [True]
