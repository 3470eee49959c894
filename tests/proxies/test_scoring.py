"""Proxies of many networks: who measures them does not matter."""

import numpy as np
import pytest
import torch

from sartor.core.errors import BadInput
from sartor.core.registry import PROXIES
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.proxies.scoring import Scoring
from sartor.spaces.nasbench201.space import NasBench201

TASK, SPACE = Task(3, 8), NasBench201(cells=1, channels=4)
NAMES = ("params", "snip", "flops", "naswot")


def scoring(**more):
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(4, 3, 8, 8, generator=generator), torch.arange(4) % 3
    return Scoring(space=SPACE, task=TASK, names=NAMES, options={}, batch=batch, seeds=Seeds(0), **more)


def sampled(count):
    rng = np.random.default_rng(0)
    return [SPACE.sample(rng) for _ in range(count)]


def test_two_workers_measure_what_one_does():
    archs = sampled(5)
    one, speed = scoring()(archs)
    two, _ = scoring(workers=2)(archs)
    assert list(one) == list(two) == list(speed) == list(NAMES)
    for name in NAMES:
        assert np.array_equal(one[name], two[name])
        assert speed[name] > 0


def test_tables_price_what_the_proxy_counts():
    """`cost` names the additive cost that the proxy is."""
    archs = sampled(4)
    values, _ = scoring()(archs)
    for name in ("params", "flops"):
        nets = [SPACE.network(a, TASK) for a in archs]
        assert [PROXIES[name]()(n, torch.zeros(1, 3, 8, 8), torch.zeros(1)) for n in nets] == values[name].tolist()


@pytest.mark.parametrize(
    ("more", "match"), [({"device": "tpu"}, "cpu or cuda"), ({"workers": 0}, "workers must be at least 1")]
)
def test_says_what_must_hold(more, match):
    with pytest.raises(BadInput, match=match):
        scoring(**more)
