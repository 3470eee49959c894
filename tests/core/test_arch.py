import numpy as np
import pytest

from sartor.core.arch import Arch, Choice, active, canonical, from_names, hub, hubs, needed_hubs
from sartor.core.errors import BadInput

CHOICES = (
    Choice("depth", ("1", "2", "3")),
    Choice("a", ("x", "y")),
    Choice("b", ("x", "y"), ((0, (1, 2)),)),
    Choice("c", ("x", "y"), ((0, (2,)),)),
)


def test_a_choice_matters_only_with_what_it_needs():
    assert [active(c, (1, 0, 0, 0)) for c in CHOICES] == [True, True, True, False]


def test_networks_that_differ_in_inactive_choices_only_are_equal_once_canonical():
    assert canonical(CHOICES, Arch((0, 1, 1, 1))) == canonical(CHOICES, Arch((0, 1, 0, 1))) == Arch((0, 1, 0, 0))
    assert canonical(CHOICES, Arch((2, 1, 1, 1))) == Arch((2, 1, 1, 1))


def test_names_leave_out_inactive_choices_and_read_back():
    assert Arch((1, 1, 0, 1)).named(CHOICES) == {"depth": "2", "a": "y", "b": "x"}
    for picks in np.ndindex(3, 2, 2, 2):
        arch = canonical(CHOICES, Arch(picks))
        assert from_names(CHOICES, arch.named(CHOICES)) == arch


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"depth": "1", "a": "x", "z": "x"}, "does not have.*'z'"),
        ({"depth": "1", "a": "w"}, "a must be one of x, y, but got 'w'"),
        ({"depth": "3", "a": "x", "b": "x"}, "must decide c"),
        ({}, "must decide depth, a"),
        ({"depth": 1, "a": "x"}, "depth must be one of"),
    ],
)
def test_wrong_names_are_refused_by_name(names, message):
    with pytest.raises(BadInput, match=message):
        from_names(CHOICES, names)


def test_an_architecture_has_exactly_one_pick_a_choice():
    with pytest.raises(ValueError):
        Arch((0, 0)).named(CHOICES)


def test_architectures_are_hashable_values():
    assert len({Arch((1, 2)), Arch((1, 2)), Arch((2, 1))}) == 2


def test_a_choice_has_one_hub_or_none():
    everywhere = (*CHOICES, Choice("d", ("x", "y"), ((0, (0, 1, 2)),)))  # needs what always holds
    assert [hub(everywhere, i) for i in range(5)] == [None, None, (0, (1, 2)), (0, (2,)), None]
    assert hubs(everywhere) == (0,)


def test_two_hubs_and_no_hub_are_refused_by_name():
    two = (*CHOICES, Choice("d", ("x", "y"), ((0, (1,)), (1, (0,)))))
    with pytest.raises(BadInput, match="may need one other choice, but d needs 2: depth, a"):
        hubs(two)
    assert hubs(CHOICES[:2]) == ()
    with pytest.raises(BadInput, match="bilinear score needs choices that switch others on"):
        needed_hubs(CHOICES[:2], "a bilinear score")
