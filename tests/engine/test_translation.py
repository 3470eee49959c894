"""timm's weights in our networks: the same logits wherever a space has that very network, also inside larger ones.

Weights are random: nothing is downloaded. What needs timm is skipped without it; a network with timm's names that is
written out here stands for all of them then.
"""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from sartor.core.arch import from_names
from sartor.core.errors import BadInput, MissingDependency
from sartor.core.registry import SPACES
from sartor.core.task import Task
from sartor.engine.origin import Origin
from sartor.engine.translation import KNOWN, put, tensors
from sartor.pipeline.options import recorded
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.runs.schema import ModelFile
from sartor.spaces.edge.space import Edge
from sartor.spaces.mobile.space import Mobile
from sartor.spaces.plain.space import Plain

TASK = Task(1000, 224, 3)
LARGE = Mobile(preset="paper", widths=(24, 40, 80, 112, 160), stem=16)  # MobileNetV3-Large's own frame
PLAIN = Plain(families=("mobilenetv2", "mobilenetv3large", "efficientnet"))


def random(net):
    """A network with statistics and biases as if it had been trained."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for m in net.modules():
            if isinstance(m, nn.BatchNorm2d):
                for tensor, low, high in ((m.weight, 0.5, 1.5), (m.bias, -0.3, 0.3), (m.running_mean, -0.3, 0.3)):
                    tensor.uniform_(low, high)
                m.running_var.uniform_(0.5, 1.5)
    return net.eval()


@torch.no_grad()
def assert_same(net, theirs, side=224):
    """The same logits, which are no constants."""
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    mine, wanted = net.eval()(x), theirs(x)
    assert wanted.std() > 1e-3 * wanted.abs().mean()
    torch.testing.assert_close(mine, wanted, rtol=1e-3, atol=1e-4 * float(wanted.abs().max()))


# timm's own --------------------------------------------------------------------------------------


def network(name):
    timm = pytest.importorskip("timm", reason="timm is not installed: its networks cannot be compared with")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return random(timm.create_model(name, pretrained=False))


@pytest.mark.parametrize("name", KNOWN)
def test_plain_has_timms_networks(name):
    theirs = network(name)
    net = PLAIN.network(from_names(PLAIN.choices, KNOWN[name][0]), TASK)
    weights, parts = put(net, tensors(theirs), classifier=True)
    assert (weights, parts) == (sum(p.numel() for p in theirs.parameters()), 0)
    assert_same(net, theirs)


@pytest.mark.parametrize("more", [{}, {"stage1.depth": "3", "stage1.block3": "e6_k5", "stage4.block1": "e6_k5_se",
                                       "stage1.block2": "e4_k3"}], ids=["itself", "inside a larger one"])  # fmt: skip
def test_mobile_has_mobilenetv3(more):
    theirs = network("mobilenetv3_large_100")
    unused = {c.name: c.options[0] for c in LARGE.choices}
    arch = from_names(LARGE.choices, unused | KNOWN["mobilenetv3_large_100"][1] | more)
    net, supernet = LARGE.network(arch, TASK), LARGE.supernet(TASK)
    weights, _ = put(net, tensors(theirs), classifier=True)
    assert weights == sum(p.numel() for p in theirs.parameters())
    assert_same(net, theirs)
    if not more:
        put(supernet, tensors(theirs), classifier=True)
        assert_same(supernet.extract(arch), theirs)


def test_edge_has_resnet18():
    theirs = network("resnet18")
    space = Edge(frames=("r224_s4_x4",), widths=(64,), heads=(0,), stem_kernel=7)
    stages = {f"stage{k}": f"res_w{32 * 2**k}" for k in (1, 2, 3, 4)} | {f"stage{k}.depth": "2" for k in (1, 2, 3, 4)}
    net = space.network(from_names(space.choices, {"frame": "r224_s4_x4", "stem": "64", "head": "0", **stages}), TASK)
    assert put(net, tensors(theirs), classifier=True) == (sum(p.numel() for p in theirs.parameters()), 0)
    assert_same(net, theirs)


def test_tensorflows_differ_by_a_constant_and_by_their_borders():
    """Their borders are ours where every map has an odd side; what is added to the variance is made up for."""
    theirs = network("tf_efficientnet_lite0")
    net = PLAIN.network(from_names(PLAIN.choices, {"network": "efficientnet-lite0"}), TASK)
    put(net, tensors(theirs), classifier=True)
    assert_same(net, theirs, side=225)


@pytest.mark.parametrize(
    "name", ["efficientnet_b0", "mobilenetv2_100", "mobilenetv3_large_100", "tf_efficientnet_lite0"]
)
def test_what_matches_is_taken_where_a_space_has_no_such_network(name):
    held, mobile, edge = tensors(network(name)), Mobile(preset="paper"), Edge().fitted(Task(3, 64, 3))
    net = mobile.network(mobile.heaviest, Task(3, 112, 3))
    weights, parts = put(net, held)
    assert parts
    assert weights > 1_000_000
    assert torch.equal(net.stages[1][0].expand[0].weight[0], held["blocks.2.0.conv_pw.weight"][0])
    stages = {f"stage{k}": f"mb3_e6_w{8 * 2**k}" for k in (1, 2, 3)} | {f"stage{k}.depth": "2" for k in (1, 2, 3)}
    small = edge.network(
        from_names(edge.choices, {"frame": "r64_s2_x3", "stem": "16", "head": "256", **stages}), Task(3, 64, 3)
    )
    assert put(small, held)[0] > 1000
    assert torch.equal(small[0][0][0].weight[:16], held["conv_stem.weight"][:16])


# written out -------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        if stride > 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs, eps=1e-2)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class Written(nn.Module):
    """A ResNet of three stages with timm's names."""

    def __init__(self, depth=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
        for k, width in enumerate((8, 16, 32)):
            inputs = (8, 8, 16)[k]
            blocks = [Block(inputs if b == 0 else width, width, 2 if k and not b else 1) for b in range(depth)]
            setattr(self, f"layer{k + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(32, 1000)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.fc(x.mean((2, 3)))


def edge(stem_kernel=3, widths=("8", "16", "32"), depth="1", task=TASK):
    space = Edge(frames=("r224_s1_x3",), widths=(8, 16), heads=(0,), stem_kernel=stem_kernel)
    names = {"frame": "r224_s1_x3", "stem": "8", "head": "0"}
    for k, width in enumerate(widths, 1):
        names |= {f"stage{k}": f"res_w{width}", f"stage{k}.depth": depth}
    return space.network(from_names(space.choices, names), task)


@pytest.mark.parametrize("larger", [{}, {"stem_kernel": 7}, {"depth": "2"}, {"widths": ("8", "32", "64")}], ids=str)
def test_a_larger_network_begins_as_the_one_inside_it(larger):
    theirs, net = random(Written()), edge(**larger)
    weights, parts = put(net, tensors(theirs), classifier=True)
    assert weights == sum(p.numel() for p in theirs.parameters())
    assert bool(parts) == ("stem_kernel" in larger or "widths" in larger)
    assert_same(net, theirs, side=32)


def test_a_file_with_timms_names_is_taken_and_the_classifier_stays(tmp_path):
    theirs, net = random(Written()), edge()
    save_file({n: t.contiguous() for n, t in theirs.state_dict().items()}, tmp_path / "a.safetensors")
    before = net[-1][0][-1].weight.clone()
    taken = Origin(str(tmp_path / "a.safetensors")).into(net, 1000)
    assert torch.equal(net[1].first[0].weight, theirs.layer1[0].conv1.weight)
    assert torch.equal(net[-1][0][-1].weight, before)
    assert taken.of - taken.weights == sum(p.numel() for p in theirs.fc.parameters())


def run_of(path, space, arch, task):
    """What a run leaves of a trained network."""
    net = random(space.network(arch, task))
    (path / "model").mkdir(parents=True)
    save_file({n: t.contiguous() for n, t in net.state_dict().items()}, path / "model/weights.safetensors")
    Run(path, Reporter(silent=True)).save(
        ModelFile(task, arch.named(space.choices), arch.picks, space.describe(arch), 0.0, recorded(SPACES, space))
    )
    return net, Origin(str(path))


FAMILIES = ("res", "group", "fused_e3", "mb3_e6", "mb5_e3_se")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_deeper_network_of_a_run_begins_as_the_one_inside_it(tmp_path, family):
    """A block more in the first stage moves the names of all that follow, and a resized image those of the stem."""
    small, large = Task(7, 32, 3), Task(4, 48, 3)
    space = Edge(frames=("r32_s1_x3",))

    def named(frame, depth):
        names = {"frame": frame, "stem": "8", "head": "256"}
        for k in (1, 2, 3):
            kind = {"mb5_e3_se": ("mb5_e3_se", "mb5_e3_se", "mb5_e6_se"), "fused_e3": ("fused_e3", "fused_e3", "res")}
            names |= {f"stage{k}": f"{kind.get(family, (family,) * 3)[k - 1]}_w{8 * 2**k // 2}"}
            names |= {f"stage{k}.depth": str(depth)}
        return names

    theirs, origin = run_of(tmp_path, space, from_names(space.choices, named("r32_s1_x3", 1)), small)
    wide = Edge(frames=("r32_s1_x3", "r48_s1_x3"))
    net = wide.network(from_names(wide.choices, named("r32_s1_x3", 2)), large)  # 48 pixels are brought to 32
    taken = origin.into(net, 4)
    known = sum(p.numel() for p in theirs.parameters()) - sum(p.numel() for p in theirs[-1][-1].parameters())
    assert (taken.weights, taken.sliced, taken.source) == (known, 0, "model/weights.safetensors")
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        seen = theirs[:-1](x)
        torch.testing.assert_close(theirs[-1][0](seen), net[-1][0](net.eval()[1:-1](net[0][1:](x))))


def test_a_networks_own_space_at_other_sides_has_it_too(tmp_path):
    space, other = Edge().fitted(Task(7, 64, 3)), Edge().fitted(Task(4, 128, 3))
    rng = np.random.default_rng(0)
    for _ in range(20):
        arch = space.sample(rng)
        frame = space.layout[arch.picks[0]]
        found = other.alike(arch.named(space.choices))
        frames = [other.layout[a.picks[0]] for a in found]
        assert {f for f in other.layout if f.stages == frame.stages} == set(frames)
        assert [f.stride for f in frames] == sorted((f.stride for f in frames), key=lambda s: s != frame.stride)
        same = [f.side for f in frames if f.stride == frame.stride]
        assert same == sorted(same, reverse=True)
        for a in found:
            assert {**a.named(other.choices), "frame": ""} == {**arch.named(space.choices), "frame": ""}
    assert not other.alike({"frame": "wide"}) and not other.alike({"frame": "r64_s2_x3", "cell": "3"})


def test_grey_images_see_the_sum_of_the_colours():
    theirs, net = random(Written()), edge(task=Task(1000, 224, 1))
    put(net, tensors(theirs), classifier=True)
    x = torch.rand(1, 1, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(x), theirs(x.expand(-1, 3, -1, -1)), rtol=1e-3, atol=1e-4)


def test_timms_networks_are_had_by_name(monkeypatch):
    known = {"written": lambda: random(Written()), "mobilenetv2_100": lambda: random(Written())}
    fake = SimpleNamespace(__version__="0", is_model=known.__contains__, create_model=lambda n, pretrained: known[n]())
    monkeypatch.setitem(sys.modules, "timm", fake)
    origin, net = Origin("timm:written"), edge()
    assert str(origin.into(net, 1000)).endswith("weights from timm's written")
    assert not [a for told in origin.told for a in PLAIN.alike(told)]
    assert Origin.found("timm:written").path == "timm:written"
    (chosen,) = (a for told in Origin("timm:mobilenetv2_100").told for a in PLAIN.alike(told))
    assert PLAIN.describe(chosen) == "mobilenetv2-x1"
    with pytest.raises(BadInput, match="must be a network of timm 0"):
        Origin("timm:unwritten")
    known["written"] = lambda: open("/nowhere/at/all")  # noqa: SIM115
    with pytest.raises(BadInput, match=r"could not be had.*needs a network.*safetensors"):
        Origin("timm:written")


def test_what_cannot_be_had_is_refused_with_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingDependency, match=r"pip install 'sartor\[timm\]'"):
        Origin("timm:resnet18")
    assert Origin.found("timm:resnet18") is None
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "timm")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingDependency, match=r"installed, but cannot be imported: operator torchvision.*--upgrade"):
        Origin("timm:resnet18")
    theirs = tensors(Written()) | {"layer1.0.conv3.weight": torch.zeros(8, 8, 1, 1)}
    with pytest.raises(BadInput, match=r"ResNets of basic blocks, but layer1\.0 is"):
        put(edge(), theirs)
