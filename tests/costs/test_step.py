"""The work of a training step: what layers compute and write; a sum over parts, and no budget of its own."""

import pytest
from torch import nn

from sartor.core.registry import COSTS
from sartor.core.task import Task
from sartor.costs.macs import Macs
from sartor.costs.step import _GROUPED, _WRITTEN, Step
from sartor.spaces.edge import Edge


def test_it_counts_what_is_computed_and_what_is_written():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, 1, 1, groups=8))
    assert Step().of(net, (3, 8, 8)) == 8 * 16 * 27 + 8 * 16 * 9 + (_WRITTEN + _GROUPED) * 8 * 16


def test_a_network_is_the_sum_of_its_parts():
    task = Task(classes=4, image=16, channels=3)
    space = Edge().fitted(task)
    form = Step().table(space, task).form
    known = space.landmarks(task)
    for arch in (known["resnet8-w16-s1"], known["mobilenetv3-w24-s1"], space.heaviest):
        assert form(arch) == pytest.approx(Step().of(space.network(arch, task), (3, 16, 16)), rel=1e-6)
        assert form(arch) > Macs().of(space.network(arch, task), (3, 16, 16))


def test_nobody_can_ask_for_it_as_a_budget():
    assert "step" not in COSTS.names()
