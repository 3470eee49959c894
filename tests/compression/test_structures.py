"""The ten structures against table S3 written out in loops."""

import itertools

import pytest
import torch
from torch import nn

from sartor.compression.structures import STRUCTURES, of_layer, parse, shrink, view
from sartor.core.errors import BadInput

N, C, M, K = 3, 4, 2, 5
EVERY = slice(None)
# The group with index (c, m, k) (those it needs), as table S3 names it: a list of slices of W.
TABLE = {
    "shape": lambda n, c, m, k: [(EVERY, c, m, k)],
    "row": lambda n, c, m, k: [(EVERY, c, m, EVERY)],
    "column": lambda n, c, m, k: [(EVERY, c, EVERY, k)],
    "row-column": lambda n, c, m, k: [(EVERY, c, m, EVERY), (EVERY, c, EVERY, k)],
    "channel": lambda n, c, m, k: [(EVERY, c, EVERY, EVERY)],
    "group-shape": lambda n, c, m, k: [(EVERY, EVERY, m, k)],
    "group-row": lambda n, c, m, k: [(EVERY, EVERY, m, EVERY)],
    "group-column": lambda n, c, m, k: [(EVERY, EVERY, EVERY, k)],
    "group-row-column": lambda n, c, m, k: [(EVERY, EVERY, m, EVERY), (EVERY, EVERY, EVERY, k)],
    "filter": lambda n, c, m, k: [(n, EVERY, EVERY, EVERY)],
}


def at(groups, n, c, m, k):
    """The entry of a group tensor that broadcasts to this index."""
    return groups[tuple(i if size > 1 else 0 for i, size in zip((n, c, m, k), groups.shape, strict=True))]


@pytest.mark.parametrize("name", STRUCTURES)
def test_norms_and_membership_follow_the_table(name):
    torch.manual_seed(0)
    weight, structure = torch.randn(N, C, M, K, dtype=torch.float64), STRUCTURES[name]
    norms = structure.norms(weight)
    counts = torch.zeros_like(weight)
    seen = set()
    for index in itertools.product(range(N), range(C), range(M), range(K)):
        parts = TABLE[name](*index)
        expected = torch.cat([weight[p].flatten() for p in parts]).norm()
        torch.testing.assert_close(at(norms, *index), expected)
        if str(parts) not in seen:
            seen.add(str(parts))
            for p in parts:
                counts[p] += 1
    assert norms.numel() == len(seen)
    torch.testing.assert_close(structure.spread(torch.ones_like(norms)).expand_as(weight), counts)


@pytest.mark.parametrize("name", [n for n, s in STRUCTURES.items() if not s.cross])
def test_shrinking_is_the_proximal_step(name):
    """argmin 1/2 ||V - W||^2 + t sum ||V_g||: the norm of every group falls by t, to zero at most."""
    torch.manual_seed(1)
    weight, structure = torch.randn(N, C, M, K, dtype=torch.float64), STRUCTURES[name]
    before, step = structure.norms(weight), float(structure.norms(weight).median())
    shrunk = weight.clone()
    shrink(shrunk, structure, torch.full_like(before, step))
    torch.testing.assert_close(structure.norms(shrunk), (before - step).clamp_min(0))
    small = (before <= step).expand_as(weight)
    assert (shrunk[small] == 0).all()
    assert (shrunk * weight >= 0).all()


def test_matrices_have_rows_and_columns_and_depthwise_kernels_channels():
    linear, depthwise = nn.Linear(7, 5), nn.Conv2d(6, 6, 3, groups=6)
    groups = {n: of_layer(linear, [n])[0].norms(view(linear, linear.weight)).numel() for n in STRUCTURES}
    assert {n: groups[n] for n in ("row", "filter", "column", "channel", "shape")} == {
        "row": 5, "filter": 5, "column": 7, "channel": 7, "shape": 7}  # fmt: skip
    assert groups["group-shape"] == 1  # with m = k = 1: the whole layer
    assert of_layer(linear, ["row", "filter"]) == of_layer(linear, ["row"])  # the same groups count once
    for name, count in (("filter", 6), ("channel", 6), ("shape", 54)):
        assert of_layer(depthwise, [name])[0].norms(view(depthwise, depthwise.weight)).numel() == count


def test_names_and_letters():
    assert parse("filter, a") == ("filter", "shape")
    assert parse(["j", "filter"]) == ("filter",)
    with pytest.raises(BadInput, match=r"must be one of shape \(a\).*'filters'"):
        parse("filters")
