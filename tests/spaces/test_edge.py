"""The edge space: its frames, the known networks that are points of it, and what is exported."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import tiny
import torch

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.costs.macs import Macs
from sartor.costs.params import Params
from sartor.deploy.module import onnx_graph, session
from sartor.engine import checkpoint
from sartor.engine.evaluate import recalibrate
from sartor.methods.binas.method import BINAS
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.edge.frame import Frame
from sartor.spaces.edge.shared import Make, Shared
from sartor.spaces.edge.space import Edge
from sartor.spaces.ops import ConvBnAct
from sartor.spaces.plain.space import Plain, build
from sartor.spaces.supernet import new_supernet

SMALL = Task(3, 16)


def sizes(net, task):
    shape = (task.channels, task.image, task.image)
    return Params().of(net, shape), Macs().of(net, shape)


@pytest.fixture(scope="module")
def tables():
    """Counted tables of two widths and two frames at 32 pixels."""
    task = Task(10, 32)
    space = Edge(widths=(8, 16), frames=("r32_s2_x3", "r32_s1_x4")).fitted(task)
    return task, space, Params().table(space, task).form, Macs().table(space, task).form


def test_the_tables_equal_the_true_counts_of_all_landmarks(tables):
    task, space, params, macs = tables
    for arch in [*list(space.landmarks(task).values())[::3], space.heaviest, space.sample(np.random.default_rng(0))]:
        with torch.device("meta"):
            assert (params(arch), macs(arch)) == sizes(space.network(arch, task), task)


@pytest.mark.parametrize("image", [8, 32, 64])
def test_resnets_are_those_of_the_plain_space(image):
    task = Task(10, image)
    space = Edge().fitted(task)
    known = space.landmarks(task)
    inside = [name for name in Plain().choices[0].options if name in known]
    assert {"resnet8-w8-s1", "resnet20-w16-s1", "resnet32-w48-s1"} <= set(inside)
    assert ("resnet14-w16-s2" in inside) == (image > 8)
    for name in inside[::4]:
        with torch.device("meta"):
            assert sizes(space.network(known[name], task), task) == sizes(build(name, task), task)


def test_known_networks_have_their_familys_blocks_and_size():
    task = Task(20, 64)
    space = Edge().fitted(task)
    known = space.landmarks(task)
    words = {name: space.describe(arch) for name, arch in known.items()}
    assert words["resnet14-w16-s2"] == "r64_s2_x3 stem16 res_w16x2 res_w32x2 res_w64x2 head0"
    assert words["mobilenetv2-w24-s2"] == (
        "r64_s2_x4 stem24 mb3_e6_w24x2 mb3_e6_w48x3 mb3_e6_w96x4 mb3_e6_w192x3 head1280"
    )
    assert words["latewidth8-w16-s2"] == "r64_s2_x3 stem16 res_w16x1 res_w32x1 res_w96x1 head0"
    assert words["widening14-w32-s1"] == "r64_s1_x3 stem32 res_w32x2 res_w96x2 res_w192x2 head0"
    assert not any(name.startswith("widening") and "-w48-" in name for name in words)  # there is no wider one
    assert "mb5_e6_se_w128x3" in words["mobilenetv3-w16-s2"]
    assert "mb5_e6_w128x4" in words["efficientnetlite-w16-s2"] and "_se" not in words["efficientnetlite-w16-s2"]
    assert "group_w128x5" in words["regnet-w16-s1"]
    with torch.device("meta"):
        count = {name: sizes(space.network(known[name], task), task) for name in list(known)[::8]}
        v2 = sizes(space.network(known["mobilenetv2-w24-s2"], task), task)
    inputs, expected = 24, 3 * 9 * 24 + 2 * 24
    for width, depth in ((24, 2), (48, 3), (96, 4), (192, 3)):
        for _ in range(depth):
            middle = 6 * inputs
            expected += inputs * middle + 9 * middle + middle * width + 2 * (2 * middle + width)
            inputs = width
    assert v2[0] == expected + 192 * 1280 + 2 * 1280 + 1280 * 20 + 20
    assert min(macs for _, macs in count.values()) < 4e6 and max(macs for _, macs in count.values()) > 5e8


def test_frames_follow_the_image_and_keep_maps_to_work_on():
    for image in range(8, 257):
        space = Edge().fitted(Task(3, image))
        assert 2 <= len(space.layout) <= 8
        assert all(f.maps[-1] >= 2 and f.maps[0] <= 64 and f.side <= image for f in space.layout)
        assert max(space.layout, key=lambda f: (f.maps[0], f.stages)) == space.layout[-1]
    assert [f.name for f in Edge().fitted(Task(3, 64)).layout] == [
        "r32_s2_x3", "r48_s2_x3", "r64_s2_x3", "r64_s2_x4", "r64_s1_x3", "r64_s1_x4",
    ]  # fmt: skip
    assert Frame.read("r48_s2_x3").maps == (24, 12, 6)


@pytest.mark.parametrize("frame", ["r6_s1_x3", "r8_s2_x3", "r16_s4_x3", "r12_s1_x4"])
@torch.no_grad()
def test_a_network_that_shrinks_its_images_is_exported_as_it_is(frame):
    task = Task(3, 16, 1)
    space = Edge(frames=(frame,), activation="hard_swish", zero_init=False).fitted(task)
    arch = space.sample(np.random.default_rng(1))
    torch.manual_seed(0)
    net = space.network(arch, task)
    for norm in (m for m in net.modules() if isinstance(m, torch.nn.BatchNorm2d)):
        norm.momentum = 1.0  # one batch settles the statistics: without them next to nothing reaches the end
    net.train()(torch.rand(8, 1, 16, 16))
    net.eval()
    x = torch.rand(1, 1, 16, 16)
    given = session(onnx_graph(net, (1, 16, 16), 1)).run(None, {"image": x.numpy()})[0]
    torch.testing.assert_close(torch.from_numpy(given), net(x), atol=1e-4, rtol=1e-4)
    assert net(x).std() > 1e-3


def test_inactive_stages_are_neither_drawn_into_words_nor_built():
    task = Task(3, 32)
    space = Edge().fitted(task)
    three, four = (Arch((i, 0, *(0,) * 6, 7, 3, 0)) for i in (0, len(space.layout) - 1))
    assert "stage4" not in three.named(space.choices) and "stage4" in four.named(space.choices)
    assert space.describe(three).count("_w") == 3 and space.describe(four).endswith("mb3_e3_w128x4 head0")
    with torch.device("meta"):
        assert len(space.network(three, task)) == 2 + 3 and len(space.network(four, task)) == 2 + 3 + 4
    drawn = space.draw(four)
    assert sorted(i for s in drawn.stages for i in (*s.blocks, s.depth) if i is not None) == list(range(11))
    assert all(o in drawn.options for c in space.choices if c.name in ("stage1", "stage4") for o in c.options)


def test_bad_options_are_refused():
    for options, words in {
        ("frames", ("r64_s3_x3",)): "a frame must be",
        ("widths", (8, 12)): "multiples of 8",
        ("widths", (16, 8)): "from small to large",
        ("activation", "gelu"): "relu or hard_swish",
    }.items():
        with pytest.raises(BadInput, match=words):
            Edge(**{options[0]: options[1]})
    with pytest.raises(BadInput, match="larger than the images' 32 pixels: r64_s1_x3"):
        Edge(frames=("r64_s1_x3",)).fitted(Task(2, 32))
    with pytest.raises(BadInput, match="at least 8 pixels"):
        Edge().fitted(Task(2, 7))
    with pytest.raises(BadInput, match="no shared weights"):
        new_supernet(Plain(), Task(2, 8))


def test_a_step_on_one_network_moves_its_own_slices_and_nothing_else():
    space = Edge(widths=(8, 16)).fitted(SMALL)
    torch.manual_seed(0)
    net, arch = space.supernet(SMALL).train(), space.sample(np.random.default_rng(0))
    net(torch.randn(4, 3, 16, 16), arch).square().sum().backward()
    moved = sum(int((p.grad != 0).sum()) for p in net.parameters() if p.grad is not None)
    own = sum(p.numel() for p in space.network(arch, SMALL).parameters())
    # Activations that are zero everywhere leave a few weights without a gradient.
    assert 0.9 * own < moved <= own < 0.2 * sum(p.numel() for p in net.parameters())


def test_statistics_are_plain_averages_of_what_each_number_of_inputs_has_seen():
    """Paths come and go: a row that missed the first batches does not keep what it had before them."""
    made = {(i, 8): Make(partial(ConvBnAct, i, 8, 1), i) for i in (4, 8)}
    shared, alone = Shared(made).train(), ConvBnAct(8, 8, 1).train()
    alone.load_state_dict({**alone.state_dict(), **{k: v.detach() for k, v in shared.slices((8, 8)).items()}})
    alone.norm.momentum = None  # PyTorch's own plain average
    batches = [(torch.randn(5, i, 6, 6) + n, i) for n, i in enumerate((4, 4, 8, 4, 8, 8))]
    for x, i in batches[:2]:
        shared(x, (i, 8))  # a training, which is to be forgotten
    recalibrate(shared, iter([(x, i) for x, i in batches]), lambda x, k: shared(x, (batches[k][1], 8)))
    for x, i in batches:
        if i == 8:
            alone(x)
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(shared.slices((8, 8))[f"1.{name}"], getattr(alone.norm, name))


def test_binas_scores_networks_of_all_widths_and_sides(tmp_path):
    job = tiny.job(tmp_path, space="edge")
    job = replace(job, space=Edge(widths=(8, 16), heads=(0, 32)).fitted(job.task))
    method = BINAS(heaviest_epochs=1, multipath_epochs=1, passes=2, held_out=4, batch=16, augment="light")
    found = method.search(job)
    assert solve(Problem(found.score, job.space.rules)).proven
    assert found.score.linear[0].std() > 0  # sides
    net = new_supernet(job.space, job.task)
    net.load_state_dict(checkpoint.load(tmp_path / "search/supernet.safetensors"))
    arch = job.space.sample(np.random.default_rng(0))
    assert torch.isfinite(net.eval().extract(arch)(torch.randn(2, 1, 8, 8))).all()
