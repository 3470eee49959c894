from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import tiny
import torch
from own import Own, conv
from torch import nn

from sartor.core.config import build
from sartor.core.errors import BadInput
from sartor.core.registry import COSTS, METHODS, SPACES
from sartor.core.task import Task
from sartor.spaces.base import Space
from sartor.spaces.slots import Slots
from sartor.spaces.supernet import new_supernet

TASK = Task(3, 8, 1)
SHORT = {**tiny.QUICK["method"], "steps": 2, "nu_networks": 2, "epochs": 1, "networks": 40, "rounds": 2}


@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_searches_a_module_of_ones_own(name, tmp_path):
    known = {f.name for f in fields(METHODS[name])}
    method = build(METHODS[name], {k: v for k, v in SHORT.items() if k in known}, "method")
    job = tiny.job(tmp_path, space="own:Own")
    found = method.search(job)
    assert found.score.sizes == job.space.sizes
    values = found.score.batch([job.space.sample(np.random.default_rng(k)).picks for k in range(5)])
    assert np.isfinite(values).all() and np.ptp(values) > 0


def test_the_network_is_the_users_module_and_its_weights_have_their_own_names():
    space = Own()
    net = space.network(space.heaviest, TASK)
    assert type(net).__name__ == "Net"
    assert "body.1.0.weight" in net.state_dict()
    assert net.body[1][0].kernel_size == (5, 5)
    assert space.describe(space.heaviest) == "body.0=conv5 body.1=conv5 body.2=conv5 down=conv5"
    assert [s.blocks for s in space.draw(space.heaviest).stages] == [(0, 1, 2, 3)]


def test_parts_are_the_options_that_compute_and_what_is_around_them():
    parts = list(Own().parts(TASK))
    assert [p.when for p in parts] == [((i, k),) for i in range(3) for k in (1, 2)] + [((3, k),) for k in range(3)] + [
        ()
    ]
    assert {p.in_shape for p in parts[:-1]} == {(8, 8, 8)}
    assert len({p.key for p in parts}) == 6  # two options of three equal places, three of the other, one around
    assert parts[-1].build()(torch.zeros(2, 1, 8, 8)).shape == (2, 3)
    other = [p.key for p in replace(Own(), width=4).parts(TASK)]
    assert not {p.key for p in parts} & set(other)


@dataclass(frozen=True)
class Wrong(Slots):
    """Places and networks that cannot be searched."""

    how: str

    def module(self, task):
        classes = task.classes + (self.how == "logits")
        return nn.Sequential(nn.Conv2d(task.channels, 4, 1), nn.Flatten(), nn.Linear(4 * task.image**2, classes))

    def places(self):
        same = {"a": nn.Identity, "b": lambda: conv(4, 4, 3)}
        return {
            "missing": {"body": same}, "empty": {"0": {}}, "nested": {"0": same, "0.1": same},
            "logits": {"0": {"a": lambda: conv(1, 4, 1)}}, "raises": {"0": {"a": lambda: conv(5, 4, 1)}},
            "shapes": {"0": {"a": lambda: conv(1, 4, 1), "b": lambda: conv(1, 4, 2)}},
        }[self.how]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("missing", "body is none of 0, 1, 2"),
        ("empty", "0 has no options"),
        ("nested", r"no place inside, but 0 has \['0.1'\]"),
        ("logits", "must give 3 logits for each image, but gives"),
        ("raises", "with 0=a must take images of 8 pixels"),
        ("shapes", "with 0=b must take images"),
    ],
)
def test_what_cannot_be_a_space_says_why(how, words):
    with pytest.raises(BadInput, match=words):
        assert Wrong(how).choices and list(Wrong(how).parts(TASK))


def test_options_of_different_shapes_are_refused_where_the_network_takes_both():
    class Two(Own):
        def places(self):
            return {"down": {"a": lambda: conv(8, 16, 3), "b": lambda: conv(8, 16, 3, 2)}}

    with pytest.raises(BadInput, match="all options of down must give outputs of one shape"):
        list(Two().parts(TASK))


def test_a_place_that_is_used_twice_is_refused():
    class Twice(nn.Sequential):
        def forward(self, x):
            return super().forward(self[0](x))

    class Repeated(Own):
        def module(self, task):
            return Twice(nn.Identity(), nn.Flatten(), nn.Linear(64, 3))

        def places(self):
            return {"0": {"a": nn.Identity, "b": nn.ReLU}}

    with pytest.raises(BadInput, match="0 must be used once in a forward pass, but is used 2 times"):
        list(Repeated().parts(TASK))


def test_a_space_without_shared_weights_is_refused_by_methods_that_need_them():
    class Plain(Space):
        choices, parts, network = (), None, None

    with pytest.raises(BadInput, match="Plain has no shared weights"):
        new_supernet(Plain(), TASK)


def test_costs_price_it_and_the_registry_finds_it():
    space = SPACES.make("own:Own", {"width": 6})
    table = COSTS["params"]().table(space, TASK)
    assert table.form(space.heaviest) == sum(p.numel() for p in space.network(space.heaviest, TASK).parameters())
    assert SPACES.reference(space) == "own:Own"
