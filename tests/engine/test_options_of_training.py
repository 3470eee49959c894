"""Options that could only fail after hours are refused at once."""

import pytest

from sartor.core.errors import BadInput
from sartor.engine.recipe import Recipe
from sartor.methods.binas.method import BINAS


@pytest.mark.parametrize("wrong", [{"dropout": 1.0}, {"smoothing": -0.1}, {"momentum": 1.5}, {"weight_decay": -1.0}])
def test_a_recipe_out_of_range_is_refused(wrong):
    with pytest.raises(BadInput, match=f"{next(iter(wrong))} must be"):
        Recipe(epochs=1, **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"passes": -1},
        {"held_out": 2},
        {"sort_share": 0.0},
        {"batch": 0},
        {"heaviest_lr": 0.0},
        {"multipath_epochs": -1},
    ],
)
def test_a_search_out_of_range_is_refused(wrong):
    with pytest.raises(BadInput):
        BINAS(**wrong)
