"""Plain networks: the papers' sizes, and images of any side."""

import pytest
import torch

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.costs.macs import Macs
from sartor.costs.params import Params
from sartor.spaces.plain.space import Plain, build, family
from sartor.spaces.supernet import new_supernet

PUBLISHED = {  # parameters and multiply-accumulates; ResNets as in table 6 of their paper, with 1x1 shortcuts
    ("resnet20-w16-s1", Task(10, 32, 3)): (0.27e6, 40.8e6),
    ("resnet32-w16-s1", Task(10, 32, 3)): (0.466e6, 69.1e6),
    ("mobilenetv2-x1", Task(1000, 224, 3)): (3.5e6, 300e6),
    ("mobilenetv2-x1.4", Task(1000, 224, 3)): (6.11e6, 582e6),
    ("mobilenetv3large-x1", Task(1000, 224, 3)): (5.48e6, 217e6),
    ("mobilenetv3small-x1", Task(1000, 224, 3)): (2.54e6, 56.5e6),
    ("efficientnet-b0", Task(1000, 224, 3)): (5.29e6, 388e6),
    ("efficientnet-lite0", Task(1000, 224, 3)): (4.65e6, 386e6),
}


@pytest.mark.parametrize(("name", "task"), PUBLISHED)
def test_sizes_are_the_published_ones(name, task):
    with torch.device("meta"):
        net = build(name, task)
    shape = (task.channels, task.image, task.image)
    assert (Params().of(net, shape), Macs().of(net, shape)) == pytest.approx(PUBLISHED[name, task], rel=0.01)


@pytest.mark.parametrize("side", [8, 12, 28, 32, 48, 64, 96, 224])
@pytest.mark.parametrize(
    "name", ["mobilenetv2-x0.25", "mobilenetv3small-x0.35", "efficientnet-lite0", "resnet8-w8-s1", "resnet8-w8-s2"]
)
@torch.no_grad()
def test_maps_never_vanish(name, side):
    x = torch.rand(2, 1, side, side)
    net = build(name, Task(3, side, 1)).eval()
    assert net(x).shape == (2, 3)
    for layer in list(net)[:-1]:
        x = layer(x)
    least = 4 if not name.startswith("resnet") else -(-side // 8)
    assert x.shape[-1] >= least // (2 if side >= 96 else 1)


def test_families_are_listed_from_small_to_large_whatever_their_order():
    assert Plain(families=("resnet", "mobilenetv2")) != Plain(families=("mobilenetv2",))
    names = Plain(families=("resnet", "mobilenetv2")).choices[0].options
    assert [family(n) for n in names] == ["mobilenetv2"] * 6 + ["resnet"] * 56
    assert len(Plain().choices[0].options) == 70
    with pytest.raises(BadInput, match=r"space\.families must be some of .*, but got vgg"):
        Plain(families=("vgg",))
    with pytest.raises(BadInput, match="at least 8 pixels"):
        Plain().fitted(Task(2, 7, 3))
    with pytest.raises(BadInput, match="no shared weights"):
        new_supernet(Plain(), Task(2, 8, 3))


@torch.no_grad()
def test_residual_blocks_begin_as_the_identity_unless_told_otherwise():
    task, arch = Task(3, 16, 1), Arch((Plain().choices[0].options.index("resnet14-w8-s1"),))
    x = torch.rand(4, 8, 16, 16)
    block = Plain().network(arch, task)[2]
    assert torch.equal(block(x), x)  # the first stage: no shortcut, and what goes in is not negative
    assert not torch.equal(Plain(zero_init=False).network(arch, task)[2](x), x)
