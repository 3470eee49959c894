import pytest
import torch
from torch import nn

from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.costs.base import CostTable
from sartor.costs.macs import Macs
from sartor.costs.memory import Memory
from sartor.costs.params import Params
from sartor.spaces.mobile.space import Mobile


@pytest.mark.parametrize(
    ("which", "params", "macs"), [("smallest", 3246072, 136826032), ("heaviest", 8949984, 520947808)]
)
def test_published_counts_of_the_paper_space(which, params, macs):
    space, task = Mobile(preset="paper"), Task(1000, 224)
    with torch.device("meta"):
        net = space.network(getattr(space, which), task)
    assert Params().of(net, (3, 224, 224)) == params
    assert Macs().of(net, (3, 224, 224)) == macs
    assert Memory().of(net, (3, 224, 224)) == 4 * params


def test_macs_by_hand():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 5, 1, 2, groups=8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip
    assert Macs().of(net, (3, 16, 16)) == 8 * 8 * 8 * 27 + 8 * 8 * 8 * 25 + 80


def test_counting_leaves_the_module_as_it_was():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout())
    net[1].eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    Macs().of(net, (3, 8, 8))
    assert [m.training for m in net] == [True, False, True]
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.device.type == "cpu" for p in net.parameters())


def test_frozen_weights_count():
    net = nn.Linear(3, 4).requires_grad_(False)
    assert Params().of(net, (3, 1, 1)) == 16


@pytest.mark.parametrize("data", [{}, {"prices": 3}, {"prices": {"a": ["x", 1, 2]}}])
def test_a_damaged_table_is_bad_input(data):
    with pytest.raises(BadInput):
        CostTable.from_json(data)
