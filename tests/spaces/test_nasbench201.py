"""NAS-Bench-201: its strings, its counts, its behaviour on odd images."""

import gzip
import itertools

import numpy as np
import pytest
import torch

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.costs.macs import Macs
from sartor.costs.params import Params
from sartor.spaces.nasbench201.space import OPERATIONS, NasBench201

CIFAR = Task(10, 32)
BEST = "|nor_conv_3x3~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|skip_connect~0|nor_conv_3x3~1|nor_conv_3x3~2|"


def counts(arch):
    return arch.picks.count(OPERATIONS.index("nor_conv_3x3")), arch.picks.count(OPERATIONS.index("nor_conv_1x1"))


def test_cell_strings_are_read_and_written():
    space = NasBench201()
    assert space.describe(space.read(BEST)) == BEST
    for picks in itertools.islice(itertools.product(range(5), repeat=6), 0, None, 97):
        assert space.read(space.describe(Arch(picks))) == Arch(picks)


@pytest.mark.parametrize(
    "text", ["", "nonsense", BEST[:-30], BEST.replace("3x3~0", "5x5~0", 1), BEST.replace("~2", "~1")]
)
def test_other_strings_are_refused(text):
    with pytest.raises(BadInput, match="must be written"):
        NasBench201().read(text)


def test_every_strings_row_of_the_benchmark_has_its_parameters_and_flops(test_data):
    """The formula of the benchmark's columns for every cell, and its own columns where the data is at hand."""
    import csv

    space = NasBench201()
    params, macs = (cost.table(space, CIFAR).form for cost in (Params(), Macs()))
    with gzip.open(test_data / "nasbench201/nasbench201.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    picks = np.array([space.read(row["arch"]).picks for row in rows])
    assert len({tuple(p) for p in picks.tolist()}) == 5**6
    assert np.array_equal(params.batch(picks), [float(row["params_cifar10"]) for row in rows])
    # NAS-Bench-201 counts the ten biases of the classifier as well; products and sums are otherwise counted alike.
    flops = [float(row["flops_cifar10_m"]) for row in rows]
    np.testing.assert_allclose((macs.batch(picks) + 10) / 1e6, flops, atol=6e-6)


@pytest.mark.parametrize("text", [BEST, NasBench201().describe(Arch((2, 1, 4, 0, 3, 2)))])
def test_built_networks_have_the_benchmarks_counts(text):
    space = NasBench201()
    arch = space.read(text)
    n3, n1 = counts(arch)
    with torch.device("meta"):
        net = space.network(arch, CIFAR)
    assert Params().of(net, (3, 32, 32)) == 73_306 + 243_040 * n3 + 28_000 * n1
    assert Macs().of(net, (3, 32, 32)) + 10 == 7_783_050 + 35_389_440 * n3 + 3_932_160 * n1


@pytest.mark.parametrize("task", [Task(10, 8, 1), Task(3, 9), Task(2, 13, 1), Task(7, 30)])
def test_any_image_passes(task):
    space = NasBench201(cells=1, channels=4).fitted(task)
    x = torch.randn(2, task.channels, task.image, task.image)
    assert space.network(space.heaviest, task)(x).shape == (2, task.classes)
    arch = space.sample(np.random.default_rng(0))
    macs = Macs().table(space, task).form(arch)
    assert macs == Macs().of(space.network(arch, task), (task.channels, task.image, task.image))


def test_images_too_small_for_two_reductions_are_refused():
    with pytest.raises(BadInput, match="at least 8 pixels"):
        NasBench201().fitted(Task(10, 7))


def test_a_cell_by_hand():
    """Skip 0->1, skip 1->2 and 0->2, average 2->3: twice the 3x3 average of the input."""
    space = NasBench201(cells=1, channels=2)
    arch = space.read("|skip_connect~0|+|skip_connect~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|")
    net = space.network(arch, Task(2, 8))
    x = torch.randn(1, 2, 8, 8)
    padded, ones = torch.nn.functional.pad(x, (1,) * 4), torch.nn.functional.pad(torch.ones_like(x), (1,) * 4)
    total = sum(padded[..., i : i + 8, j : j + 8] for i in range(3) for j in range(3))
    count = sum(ones[..., i : i + 8, j : j + 8] for i in range(3) for j in range(3))
    torch.testing.assert_close(net.stages[0](x), 2 * total / count)


def test_a_sketch_has_the_same_choices_in_a_smaller_network():
    space = NasBench201()
    assert space.sketch().choices == space.choices
    assert (space.sketch().cells, space.sketch().channels) == (1, 8)
    with pytest.raises(BadInput, match=r"space\.cells must be at least 1"):
        NasBench201(cells=0)


def test_even_the_empty_cell_depends_on_its_input():
    """A graph without an input could be neither exported nor timed."""
    space = NasBench201(cells=1, channels=2)
    x = torch.randn(1, 3, 8, 8, requires_grad=True)
    net = space.network(space.smallest, Task(2, 8)).eval()
    (grad,) = torch.autograd.grad(net(x).sum(), x)
    assert not grad.any()
