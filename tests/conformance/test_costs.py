"""Laws that every cost obeys on every space."""

import dataclasses

import numpy as np
import pytest

from sartor.core.registry import COSTS, SPACES
from sartor.core.task import Task
from sartor.core.units import show
from sartor.costs.base import Cost, CostTable

TASK = Task(10, 12, 3)
IMAGE = (3, 12, 12)
FEWER = {"edge": {"widths": (8, 24)}}  # a space with thousands of parts obeys the laws with hundreds
COUNTED = [name for name in COSTS.names() if not COSTS[name].measured]


@pytest.mark.parametrize("name", COSTS.names())
def test_is_a_frozen_cost_with_a_known_unit(name):
    cls = COSTS[name]
    assert issubclass(cls, Cost)
    assert dataclasses.fields(cls) is not None
    assert cls.__dataclass_params__.frozen
    assert show(1.5, cls.kind)
    assert COSTS.summary(name)


@pytest.mark.parametrize("cost_name", COUNTED)
@pytest.mark.parametrize("space_name", [*SPACES.names(), "own:Own"])
def test_table_equals_the_count_of_the_built_network(cost_name, space_name):
    cost, space = COSTS[cost_name](), SPACES[space_name](**FEWER.get(space_name, {})).fitted(TASK)
    table = cost.table(space, TASK)
    rng = np.random.default_rng(0)
    for arch in [space.heaviest, *(space.sample(rng) for _ in range(4))]:
        assert table.form(arch) == cost.of(space.network(arch, TASK), IMAGE)


@pytest.mark.parametrize("cost_name", COUNTED)
def test_table_survives_json(cost_name):
    space = SPACES["mobile"]().fitted(TASK)
    table = COSTS[cost_name]().table(space, TASK)
    again = CostTable.from_json(table.to_json())
    assert again.prices == dict(table.prices)
    assert again.form(space.heaviest) == table.form(space.heaviest)
