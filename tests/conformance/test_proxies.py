"""Laws that every proxy obeys."""

import copy
import dataclasses
import math

import pytest
import torch

from sartor.core.registry import PROXIES
from sartor.core.task import Task
from sartor.proxies.base import Proxy
from sartor.spaces.nasbench201.space import NasBench201

TASK = Task(3, 8, 1)
NAMES = PROXIES.names()


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    space = NasBench201(cells=1, channels=4)
    return space.network(
        space.read("|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|none~0|avg_pool_3x3~1|skip_connect~2|"), TASK
    )


@pytest.fixture(scope="module")
def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 1, 8, 8, generator=generator), torch.arange(8) % 3


@pytest.mark.parametrize("name", NAMES)
def test_is_a_frozen_documented_proxy_with_keyword_options(name):
    cls = PROXIES[name]
    assert issubclass(cls, Proxy)
    assert cls.__dataclass_params__.frozen
    assert all(f.kw_only for f in dataclasses.fields(cls))
    assert PROXIES.summary(name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("norm", ["batch", "running", "off"])
def test_a_finite_number_that_leaves_the_network_and_the_random_state_alone(name, norm, net, batch):
    before, state = copy.deepcopy(net.state_dict()), torch.get_rng_state()
    proxy = PROXIES[name](norm=norm, init="kaiming")
    first = proxy(net, *batch)
    assert isinstance(first, float)
    assert math.isfinite(first)
    assert proxy(net, *batch) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_drawn_weights_matter_and_are_a_function_of_the_seed(name, net, batch):
    values = {PROXIES[name](init="kaiming", seed=seed)(net, *batch) for seed in (0, 1)}
    assert len(values) == (2 if PROXIES[name].needs_batch else 1)
