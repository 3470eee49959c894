"""Laws that every space obeys."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

from sartor.core.arch import Arch, canonical, from_names
from sartor.core.registry import SPACES
from sartor.core.task import Task
from sartor.spaces.base import Gates, Space
from sartor.spaces.supernet import SharedSpace

TASK = Task(4, 12, 3)
NAMES = (*SPACES.names(), "own:Own")
FEWER = {"edge": {"widths": (8, 24)}}  # a space with thousands of parts obeys the laws with hundreds


@pytest.fixture(scope="module", params=NAMES)
def space(request):
    return SPACES[request.param](**FEWER.get(request.param, {})).fitted(TASK)


@pytest.fixture(scope="module")
def net(space):
    """A supernet in evaluation mode whose batch-norms have all seen something."""
    if not isinstance(space, SharedSpace):
        pytest.skip("its networks share no weights")
    torch.manual_seed(0)
    made = space.supernet(TASK).train()
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _ in range(3):
            made(torch.randn(24, 3, 12, 12, generator=generator) * 2 + 0.5, space.sample_picks(rng, 24))
        for m in made.modules():
            if hasattr(m, "running_mean") and m.weight is not None:
                m.weight.add_(0.3 * torch.randn(m.weight.shape, generator=generator))
                m.bias.add_(0.3 * torch.randn(m.bias.shape, generator=generator))
    return made.eval()


@pytest.fixture(scope="module")
def archs(space):
    rng = np.random.default_rng(1)
    return [space.heaviest, Arch((0,) * len(space.sizes)), *(space.sample(rng) for _ in range(6))]


@pytest.fixture
def x():
    return torch.randn(5, 3, 12, 12, generator=torch.Generator().manual_seed(2))


def one_hot(space, arch):
    return Gates(tuple(torch.eye(n)[p] for n, p in zip(space.sizes, arch.picks, strict=True)))


def close(a, b):
    assert a.std() > 1e-4  # logits that are all alike would agree with anything
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_is_a_frozen_space_that_settles_once(space):
    assert isinstance(space, Space)
    assert type(space).__dataclass_params__.frozen
    assert dataclasses.replace(space) == space
    assert space.fitted(TASK) == space
    names = [c.name for c in space.choices]
    assert len(set(names)) == len(names)
    assert all(len(set(c.options)) == len(c.options) > 0 for c in space.choices)


@torch.no_grad()
def test_one_hot_gates_equal_the_architecture_equal_constant_picks(space, net, archs, x):
    for arch in archs:
        logits = net(x, arch)
        close(logits, net(x, one_hot(space, arch)))
        close(logits, net(x, np.repeat([arch.picks], len(x), 0)))


@torch.no_grad()
def test_extract_gives_the_supernets_own_logits(net, archs, x):
    for arch in archs:
        child = net.extract(arch)
        assert not child.training
        close(net(x, arch), child(x))


@torch.no_grad()
def test_every_image_on_a_path_of_its_own_equals_each_alone(space, net, x):
    rng = np.random.default_rng(3)
    for _ in range(3):
        picks = space.sample_picks(rng, len(x))
        alone = [net(x[n : n + 1], Arch(tuple(picks[n].tolist()))) for n in range(len(x))]
        close(net(x, picks), torch.cat(alone))


@torch.no_grad()
def test_traces_end_with_the_logits_and_have_the_same_shapes_in_every_way(space, net, archs, x):
    shapes = []
    for who in (archs[0], np.repeat([archs[1].picks], len(x), 0), one_hot(space, archs[2])):
        features, logits = net.trace(x, who)
        assert torch.equal(logits, net(x, who))
        shapes.append([f.shape for f in features])
    assert shapes[0] == shapes[1] == shapes[2]


@torch.no_grad()
def test_inactive_choices_change_nothing(space, net, x):
    rng = np.random.default_rng(4)
    for _ in range(4):
        arch = Arch(tuple(int(rng.integers(n)) for n in space.sizes))
        torch.testing.assert_close(net(x, arch), net(x, canonical(space.choices, arch)))
        assert space.describe(arch) == space.describe(canonical(space.choices, arch))


def test_extracted_and_fresh_networks_have_the_same_tensors(space, net, archs):
    for arch in archs[:4]:
        extracted, fresh = net.extract(arch).state_dict(), space.network(arch, TASK).state_dict()
        assert {k: v.shape for k, v in extracted.items()} == {k: v.shape for k, v in fresh.items()}


def test_samples_are_valid_canonical_and_varied(space):
    rng = np.random.default_rng(5)
    drawn = [space.sample(rng) for _ in range(50)]
    for arch in drawn:
        assert len(arch.picks) == len(space.sizes)
        assert all(0 <= p < n for p, n in zip(arch.picks, space.sizes, strict=True))
        assert canonical(space.choices, arch) == arch
    assert len(set(drawn)) > 25
    picks = space.sample_picks(rng, 4000)
    for i, n in enumerate(space.sizes):
        shares = np.bincount(picks[:, i], minlength=n) / len(picks)
        assert np.abs(shares - 1 / n).max() < 0.05


def test_named_architectures_survive_json(space, archs):
    for arch in archs:
        arch = canonical(space.choices, arch)
        assert from_names(space.choices, json.loads(json.dumps(arch.named(space.choices)))) == arch


def test_parts_depend_on_the_frame_and_two_choices_at_most_and_share_keys_only_when_alike(space):
    seen, built = {}, {}
    for part in space.parts(TASK):
        assert len({i for i, _ in part.when}) == len(part.when) <= 2 + any(i == 0 for i, _ in part.when)
        assert all(0 <= i < len(space.sizes) and 0 <= a < space.sizes[i] for i, a in part.when)
        recipe = (part.build.func, part.build.args, *sorted(part.build.keywords.items()))
        if recipe not in built:
            with torch.device("meta"):
                built[recipe] = str(part.build())
        fingerprint = (built[recipe], part.in_shape)
        assert seen.setdefault(part.key, fingerprint) == fingerprint
    assert len(seen) == len(set(seen.values()))  # and one module under one key


def test_parts_of_an_architecture_hold_all_of_its_parameters(space, archs):
    parts = list(space.parts(TASK))
    for arch in archs:
        here = [p for p in parts if all(arch.picks[i] == a for i, a in p.when)]
        with torch.device("meta"):
            count = sum(q.numel() for p in here for q in p.build().parameters())
            assert count == sum(q.numel() for q in space.network(arch, TASK).parameters())


def test_the_heaviest_network_is_the_largest(space, archs):
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in space.network(a, TASK).parameters()) for a in archs]
    assert max(sizes) == sizes[0]


def test_a_supernet_depends_on_torchs_random_state_alone(space, net):
    def made(seed):
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(space.supernet(TASK).parameters())

    assert torch.equal(made(1), made(1))
    assert not torch.equal(made(1), made(2))
