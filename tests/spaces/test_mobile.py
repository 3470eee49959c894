import math

import numpy as np
import pytest
import torch
from torch import nn

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.spaces.mobile.elastic import CONFIGS
from sartor.spaces.mobile.grouped_norm import GroupedNorm
from sartor.spaces.mobile.multipath import prepare, stage_plans
from sartor.spaces.mobile.space import FRAMES, Mobile

PAPER = Task(1000, 224, 3)
TASK = Task(5, 8, 1)


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def lively(net, seed=0):
    """Random batch-norm parameters and statistics: fresh ones would hide what is mixed up."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for m in net.modules():
            if isinstance(m, nn.BatchNorm2d | GroupedNorm):
                for tensor, low in ((m.weight, 0.5), (m.bias, -0.5), (m.running_mean, -0.5), (m.running_var, 0.5)):
                    tensor.copy_(low + torch.rand(tensor.shape, generator=generator))
    return net


def supernet(task=TASK, seed=0, **options):
    torch.manual_seed(seed)
    return lively(Mobile(**options).fitted(task).supernet(task), seed)


def images(count, task=TASK, seed=1):
    return torch.randn(count, task.channels, task.image, task.image, generator=torch.Generator().manual_seed(seed))


# the paper's counts -----------------------------------------------------------------------------


def test_the_papers_numbers():
    space = Mobile().fitted(PAPER)
    assert space.preset == "paper"
    assert sum(space.sizes) == 255
    ways = sum(12**d for d in (2, 3, 4))
    assert ways == 22_608
    assert ways**5 == pytest.approx(5.906e21, rel=1e-4)
    with torch.device("meta"):
        assert parameters(space.supernet(PAPER)) == 9_074_560
        assert parameters(space.network(space.smallest, PAPER)) == 3_246_072
        assert parameters(space.network(space.heaviest, PAPER)) == 8_949_984


def test_configurations_are_in_the_papers_order():
    assert CONFIGS[0] == (3, 3, False)
    assert [c + 1 for c, (_, _, se) in enumerate(CONFIGS) if se] == [2, 4, 6, 8, 10, 12]
    assert [c + 1 for c, (_, k, _) in enumerate(CONFIGS) if k == 5] == [3, 4, 7, 8, 11, 12]
    assert [e for e, _, _ in CONFIGS] == [3] * 4 + [4] * 4 + [6] * 4


def test_only_blocks_three_and_four_can_be_left_out():
    space = Mobile()
    names = [c.name for c in space.choices]
    assert names[:6] == ["stage1.depth", *(f"stage1.block{b}" for b in range(1, 5)), "stage2.depth"]
    for s in range(5):
        needs = [c.needs for c in space.choices[5 * s : 5 * s + 5]]
        assert needs == [(), (), ((5 * s, (0, 1, 2)),), ((5 * s, (1, 2)),), ((5 * s, (2,)),)]


def test_describe_writes_the_customary_string():
    picks = [0, 2, 3, 0, 0] + [0, 2, 11, 0, 0] + [0, 11, 11, 0, 0] * 3  # HC-A: 53 53s|53 56s|56s 56s|...
    words = Mobile().describe(Arch(tuple(picks))).split()
    assert words[:5] == [
        "ds_r1_k3_s1_e1_c16_nre", "ir_r1_k5_s2_e3_c24_nre", "ir_r1_k5_s1_e3_c24_nre_se0.25",
        "ir_r1_k5_s2_e3_c40_nre", "ir_r1_k5_s1_e6_c40_nre_se0.25",
    ]  # fmt: skip
    assert words[5] == "ir_r1_k5_s2_e6_c80_se0.25"
    assert words[-1] == "cn_r1_k1_s1_c960"
    assert len(words) == 12


# sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "channels"), [(8, 1), (9, 3), (28, 1), (32, 3), (47, 3), (65, 1), (96, 3), (224, 3)])
def test_every_size_has_a_preset_whose_parts_fit_together(side, channels):
    task = Task(4, side, channels)
    space = Mobile().fitted(task)
    rng = np.random.default_rng(side)
    for arch in (space.smallest, space.heaviest, space.sample(rng)):
        here = [p for p in space.parts(task) if all(arch.picks[i] == a for i, a in p.when)]
        x = torch.zeros(1, channels, side, side, device="meta")
        with torch.device("meta"):
            for part in here:
                assert tuple(x.shape[1:]) == part.in_shape
                x = part.build()(x) if part is here[-1] else part.build().eval()(x)
            assert x.shape == (1, 4)
            assert sum(parameters(p.build()) for p in here) == parameters(space.network(arch, task))
        assert here[-1].in_shape[1] >= 2  # a feature map to work on is left at the end


@pytest.mark.parametrize("task", [Task(3, 28, 1), Task(3, 65, 3)])
def test_odd_sizes_run_in_all_three_ways(task):
    space = Mobile().fitted(task)
    net, x = space.supernet(task).eval(), images(3, task)
    rng = np.random.default_rng(0)
    with torch.no_grad():
        assert net(x, space.sample(rng)).shape == net(x, space.sample_picks(rng, 3)).shape == (3, 3)


@pytest.mark.parametrize(
    "options",
    [
        {"preset": "huge"},
        {"widths": (8, 8)},
        {"widths": (8, 8, 8, 8, 0)},
        {"strides": (1,) * 6},
        {"strides": (-1,) * 5},
    ],
)
def test_wrong_options_are_refused(options):
    with pytest.raises(BadInput, match=r"space\."):
        Mobile(**options)


def test_images_too_small_for_any_network_are_refused():
    with pytest.raises(BadInput, match="at least 4 pixels"):
        Mobile().fitted(Task(3, 3, 1))


def test_own_widths_and_strides_are_used_everywhere():
    space = Mobile(preset="tiny", widths=(8, 8, 16, 16, 24), strides=(2, 1, 1, 1, 1)).fitted(TASK)
    arch = space.smallest
    net = space.network(arch, TASK)
    assert [stage[0].project[0].out_channels for stage in net.stages] == [8, 8, 16, 16, 24]
    assert "ir_r1_k3_s2_e3_c8_nre" in space.describe(arch)
    built = sum(parameters(p.build()) for p in space.parts(TASK) if all(arch.picks[i] == a for i, a in p.when))
    assert built == parameters(net)


def test_presets_shrink_with_the_image():
    chosen = [Mobile().fitted(Task(2, side)).preset for side in (8, 19, 20, 47, 48, 111, 112, 224)]
    assert chosen == ["tiny", "tiny", "small", "small", "medium", "medium", "paper", "paper"]
    assert set(chosen) == set(FRAMES)


# multi-path -------------------------------------------------------------------------------------


def test_gradient_of_one_image_on_its_path_equals_the_architectures():
    net, x = supernet().eval(), images(1)
    space, rng = Mobile(), np.random.default_rng(3)
    for arch in [space.heaviest, space.smallest, *(space.sample(rng) for _ in range(4))]:
        grads = []
        for who in (arch, np.array([arch.picks])):
            net.zero_grad()
            net(x, who).logsumexp(1).sum().backward()
            grads.append([torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in net.parameters()])
        for one, many in zip(*grads, strict=True):
            torch.testing.assert_close(many, one, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"strides": (2, 2, 2, 1, 2)}], ids=["tiny", "down to one pixel"])
def test_training_steps_work_with_single_images_and_groups_of_one(count, options):
    net, space, rng = supernet(**options).train(), Mobile(), np.random.default_rng(0)
    if count == 1 and options:
        net.head.eval()  # the head's own batch-norm cannot normalise one value
    for _ in range(6):
        net.zero_grad()
        loss = net(images(count), space.sample_picks(rng, count)).square().mean()
        loss.backward()
        assert math.isfinite(loss.item())
        assert all(torch.isfinite(p.grad).all() for p in net.parameters() if p.grad is not None)
    assert all(torch.isfinite(b).all() for b in net.buffers())


def test_training_on_one_shared_path_equals_multi_path_with_constant_picks():
    space, x = Mobile(), images(6)
    arch = space.sample(np.random.default_rng(5))
    one, many = supernet().train(), supernet().train()
    a, b = one(x, space.heaviest), many(x, np.repeat([space.heaviest.picks], 6, 0))
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
    for (name, p), (_, q) in zip(one.named_buffers(), many.named_buffers(), strict=True):
        if "num_batches" not in name:
            torch.testing.assert_close(p, q, atol=1e-4, rtol=1e-4, msg=name)
    assert one(x, arch).shape == (6, 5)


# batch-norm of groups ---------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_grouped_norm_equals_a_batch_norm_a_group_in_training(shift):
    torch.manual_seed(0)
    groups, channels = 3, 4
    norm = lively(GroupedNorm(groups, channels))
    separate = []
    for g in range(groups):
        separate.append(nn.BatchNorm2d(channels))
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(separate[g], name).data.copy_(getattr(norm, name)[g])
    group = torch.tensor([0, 2, 0, 2, 2, 0, 2, 0])  # group 1 stays empty
    x = (torch.randn(8, channels, 3, 3) + shift).requires_grad_()
    weights = torch.randn(8, channels, 3, 3)
    out = norm(x, group)
    (out * weights).sum().backward()
    mine = x.grad.clone()
    x.grad = None
    before = separate[1].running_mean.clone()
    for g in (0, 2):
        theirs = separate[g](x[group == g])
        torch.testing.assert_close(out[group == g], theirs, atol=1e-4, rtol=1e-4)
        (theirs * weights[group == g]).sum().backward()
    torch.testing.assert_close(mine, x.grad, atol=1e-4, rtol=1e-4)
    for g in (0, 2):
        for name in ("weight", "bias"):
            torch.testing.assert_close(
                getattr(norm, name).grad[g], getattr(separate[g], name).grad, atol=1e-4, rtol=1e-4
            )
        for name in ("running_mean", "running_var"):
            torch.testing.assert_close(getattr(norm, name)[g], getattr(separate[g], name), atol=1e-4, rtol=1e-4)
    assert torch.equal(norm.running_mean[1], before)
    assert not norm.weight.grad[1].any()


def test_grouped_norm_in_evaluation_uses_each_groups_statistics():
    norm = lively(GroupedNorm(2, 3)).eval()
    x, group = torch.randn(4, 3, 2, 2), torch.tensor([1, 0, 0, 1])
    out = norm(x, group)
    for g in (0, 1):
        torch.testing.assert_close(out[group == g], norm.one(x[group == g], g), atol=1e-6, rtol=1e-5)


def test_a_group_with_one_single_value_falls_back_to_its_running_statistics():
    norm = lively(GroupedNorm(2, 3)).train()
    kept = norm.running_mean.clone(), norm.running_var.clone()
    x = torch.randn(3, 3, 1, 1, requires_grad=True)
    out = norm(x, torch.tensor([0, 1, 1]))
    expected = (x[0, :, 0, 0] - kept[0][0]) / (kept[1][0] + norm.eps).sqrt() * norm.weight[0] + norm.bias[0]
    torch.testing.assert_close(out[0, :, 0, 0], expected)
    assert torch.equal(norm.running_mean[0], kept[0][0])
    assert not torch.equal(norm.running_mean[1], kept[0][1])
    out.sum().backward()
    assert torch.isfinite(x.grad).all()


# channels and inheritance -----------------------------------------------------------------------


def test_sorting_channels_keeps_the_heaviest_network_and_puts_the_important_first():
    net, space, x = supernet().eval(), Mobile(), images(4)
    before = net(x, space.heaviest)
    narrow = net(x, space.smallest).detach()
    before.logsumexp(1).sum().backward()
    block = net.elastic_blocks()[3]
    importance = sum(
        (p * p.grad).abs().flatten(1).sum(1)
        for p in (block.expand.weight, block.excite.weight, block.depthwise[1].weight)
    ).detach()
    hidden = (block.reduce.weight * block.reduce.weight.grad).abs().flatten(1).sum(1).detach()
    old, old_hidden = block.expand.weight.detach().clone(), block.reduce.bias.detach().clone()
    net.sort_channels()
    torch.testing.assert_close(net(x, space.heaviest), before, atol=1e-5, rtol=1e-5)
    assert torch.equal(block.expand.weight, old[importance.argsort(descending=True, stable=True)])
    assert not torch.equal(block.expand.weight, old)
    assert torch.equal(block.reduce.bias, old_hidden[hidden.argsort(descending=True, stable=True)])
    assert not torch.allclose(net(x, space.smallest), narrow)  # narrower networks keep other channels now


def test_inherit_gives_unused_options_what_the_heaviest_learnt():
    net, space, x = supernet().eval(), Mobile(), images(2)
    before = net(x, space.heaviest)
    net.inherit()
    assert torch.equal(net(x, space.heaviest), before)
    for block in net.elastic_blocks():
        small, large = block.depthwise
        assert torch.equal(small.weight, large.weight[:, :, 1:4, 1:4])
        assert torch.equal(block.depthwise_norm[0].running_var, block.depthwise_norm[1].running_var)
        for g in range(6):
            assert torch.equal(block.project_norm.running_mean[g], block.project_norm.running_mean[5])
            assert torch.equal(block.project_norm.weight[g], block.project_norm.weight[5])


def test_extract_leaves_the_supernet_alone():
    net, space = supernet(), Mobile()
    child = net.extract(space.heaviest)
    kept = {k: v.clone() for k, v in net.state_dict().items()}
    with torch.no_grad():
        for p in child.parameters():
            p.add_(1.0)
    assert all(torch.equal(v, kept[k]) for k, v in net.state_dict().items())


def test_grouped_norm_of_evenly_sorted_images_is_the_general_one():
    torch.manual_seed(0)
    general, even = GroupedNorm(6, 5), GroupedNorm(6, 5)
    with torch.no_grad():
        general.weight.uniform_(0.5, 2.0), general.bias.normal_()
    even.load_state_dict(general.state_dict())
    groups = torch.arange(6).repeat_interleave(3).repeat(2)
    x = torch.randn(36, 5, 4, 3, requires_grad=True)
    z = x.detach().clone().requires_grad_()
    weights = torch.randn(36, 5, 4, 3)
    one, other = general(x, groups), even.sorted_evenly(z, 2)
    (one * weights).sum().backward()
    (other * weights).sum().backward()
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(x.grad, z.grad)
    for name, value in general.named_parameters():
        torch.testing.assert_close(value.grad, even.get_parameter(name).grad)
    for name, value in general.named_buffers():
        torch.testing.assert_close(value, even.get_buffer(name))


def test_dealt_paths_give_one_set_of_shapes_and_every_option_alike():
    space = Mobile(preset="small")
    shapes, layouts, picks = set(), set(), []
    for seed in range(30):
        drawn = space.sample_picks(np.random.default_rng(seed), 72)
        layouts.add(prepare(drawn, torch.device("cpu")).same)  # one recording of the step serves all of them
        picks.append(drawn)
        plans = stage_plans(prepare(drawn, torch.device("cpu")))
        shapes.add(tuple((len(take), plan.small, plan.even) for stage in plans for take, _, plan in stage.steps))
    assert shapes == {tuple((n, n // 2, True) for _ in range(5) for n in (72, 72, 48, 24))}
    assert len(layouts) == 1
    drawn = np.concatenate(picks)
    for i, size in enumerate(space.sizes):
        counts = np.bincount(drawn[:, i], minlength=size)
        assert np.ptp(counts) <= 0.02 * len(drawn)
