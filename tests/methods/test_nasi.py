"""NASI against its equations: gradients by finite differences, the accumulated step by hand."""

import dataclasses

import numpy as np
import pytest
import tiny
import torch

from sartor.core.config import build
from sartor.core.errors import BadInput
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.engine.curvature.kernel import batch_trace, ntk_factors, prepare, squared_norm, weights
from sartor.methods.nasi import NASI, Reward, _noise, _smaller
from sartor.spaces.base import Gates
from sartor.spaces.nasbench201.space import OPERATIONS, NasBench201

TASK = Task(3, 8, 1)
SPACE = NasBench201(sketch_cells=1, sketch_channels=16)


def reward(**options):
    method = NASI(**{"batch": 4, "nu_networks": 3, "steps": 4, **options})
    seeds = Seeds(5)
    made = Reward(method, SPACE, TASK, seeds, _noise(TASK, method.batch, seeds, "cpu"), "cpu")
    return method, made


@pytest.mark.parametrize(("loss", "norm"), [("cross_entropy", "off"), ("mse", "batch"), ("logits", "off")])
def test_the_logits_gradient_equals_finite_differences_of_the_reward(loss, norm):
    """Through the relaxed gates that the straight-through estimator stands for, in double precision."""
    _, made = reward(loss=loss, norm=norm)
    made.net.double()
    images, labels = made.source(0)
    made.source = lambda step: (images.double(), labels)
    _, slope = made(0)
    hard = made.gates(0, made.logits()).weights
    weights = [torch.tensor(g.detach().round().double().numpy(), requires_grad=True) for g in hard]

    def x(gates):
        return float(made.value(0, Gates(tuple(gates)), graph=True).detach())

    step, by_gate = 1e-8, []  # small: x jumps where a ReLU changes its state
    for i, gate in enumerate(weights):
        for k in range(len(gate)):
            ends = []
            for sign in (1, -1):
                moved = [g.detach().clone() for g in weights]
                moved[i][k] += sign * step
                ends.append(x(moved))
            by_gate.append((ends[0] - ends[1]) / (2 * step))
    expected = []  # dx/dalpha = sum over gates of dx/dgate dsoftmax/dalpha
    for i, (alpha, slope_i) in enumerate(zip(made.logits(), torch.tensor(by_gate).split(5), strict=True)):
        soft = made.gates(0, [*made.logits()[:i], alpha, *made.logits()[i + 1 :]]).weights[i]
        expected.append(torch.autograd.grad((soft.double() * slope_i).sum(), alpha)[0])
    torch.testing.assert_close(slope, torch.cat(expected).double(), rtol=2e-4, atol=2e-4 * float(slope.abs().max()))


def test_x_is_the_squared_gradient_norm_of_the_drawn_network_alone():
    _, made = reward(norm="batch")
    for step in (0, -1):
        picks = tuple(int(g.argmax()) for g in made.gates(step, made.logits()).weights)
        found = made.size(step)  # draws the step's weights
        child = made.net.extract(type(SPACE.heaviest)(picks)).train()
        assert found == pytest.approx(batch_trace(child, *made.source(step)), rel=1e-4)
        assert made(step)[0] == pytest.approx(found, rel=1e-4)


@pytest.mark.parametrize(("redraw", "drawn"), [(0, 1), (1, 4), (3, 2)])
def test_weights_are_drawn_anew_every_so_many_steps(redraw, drawn):
    _, made = reward(redraw=redraw)
    seen = set()
    for step in range(4):
        made.size(step)
        seen.add(float(made.net.stem[0].weight.detach().sum()))
    assert len(seen) == drawn


def test_large_images_are_averaged_down():
    asked = []

    def source(step):
        x = torch.arange(2 * 32 * 32, dtype=torch.float32).view(2, 1, 32, 32)
        asked.append(step)
        return x, torch.tensor([0, 1])

    small = _smaller(source, 2)(0)[0]
    assert small.shape == (2, 1, 16, 16)
    assert float(small[0, 0, 0, 0]) == (0 + 1 + 32 + 33) / 4
    score, _ = NASI(batch=2, steps=1, nu_networks=1).at_initialisation(SPACE, Task(3, 32, 1), Seeds(0), source)
    assert asked == [0, -1, 0]
    assert np.ptp(score.linear[0]) > 0


def test_gates_are_one_hot_forwards_uniform_and_never_what_is_left_out():
    _, made = reward()
    counts = np.zeros((6, 5))
    for step in range(400):
        for i, gate in enumerate(made.gates(step, made.logits()).weights):
            assert sorted(gate.round(decimals=5).tolist()) == [0, 0, 0, 0, 1]
            counts[i, int(gate.argmax())] += 1
    assert not counts[:, OPERATIONS.index("none")].any()
    assert np.abs(counts[:, 1:] / 400 - 0.25).max() < 0.1


def delta_by_hand(xs, slopes, mu, limits):
    gradients = [s * (1 - mu * (x > limit)) for x, s, limit in zip(xs, slopes, limits, strict=True)]
    norms = [np.linalg.norm(g) for g in gradients]
    return np.mean([g / max(norms[: t + 1]) for t, g in enumerate(gradients)], 0)


def test_the_accumulated_step_with_fixed_and_adaptive_nu_and_with_every_step_of_the_same_length():
    rng = np.random.default_rng(0)
    xs, slopes, nu = [3.0, 9.0, 1.0, 6.0], rng.normal(size=(4, 7)), 5.0
    seen = [(x, torch.tensor(s)) for x, s in zip(xs, slopes, strict=True)]
    found, above = NASI(mu=2.0, nu="fixed", normalise="largest").delta(seen, nu)
    np.testing.assert_allclose(found, delta_by_hand(xs, slopes, 2.0, [5.0] * 4))
    assert above == 0.5
    found, _ = NASI(mu=1.5, nu="adaptive", normalise="largest").delta(seen, nu)
    np.testing.assert_allclose(found, delta_by_hand(xs, slopes, 1.5, [5.0, 8 / 2, 17 / 3, 18 / 4]))
    found, _ = NASI(mu=2.0).delta(seen, nu)
    signs = np.where(np.array(xs) > nu, -1, 1)[:, None]
    np.testing.assert_allclose(found, (signs * slopes / np.linalg.norm(slopes, axis=1, keepdims=True)).mean(0))
    none, _ = NASI(mu=1.0).delta([(9.0, torch.ones(2))], nu)
    assert not none.any()


def test_nu_is_equation_40s_mean_or_median_a_number_or_starts_large():
    around = [reward()[1].size(-1 - n) for n in range(3)]
    mean = np.mean(around)
    assert reward()[0]._nu(reward()[1]) == pytest.approx(np.median(around))
    for options, times in (({"nu": "fixed"}, 1.0), ({"nu": "fixed", "nu_scale": 3.0}, 3.0), ({"nu": "adaptive"}, 5.0)):
        method, made = reward(**options)
        assert method._nu(made) == pytest.approx(times * mean)  # the paper: "a relatively large nu_0"
    for nu in ("median", "fixed", "adaptive"):
        assert NASI(nu=nu, nu_start=500.0)._nu(None) == 500.0  # without looking at a network


class Jacot(torch.nn.Module):
    """A convolution or linear layer as section 3.1 has it: weights of variance one, over the root of the fan-in."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.fan = layer, layer.weight[0].numel()
        self.raw = torch.nn.Parameter(layer.weight.detach() * self.fan**0.5)

    def forward(self, x):
        return torch.func.functional_call(self.layer, {"weight": self.raw / self.fan**0.5}, (x,))


def test_the_ntk_parameterisation_is_jacots():
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)]
    net = torch.nn.Sequential(*layers)
    prepare(net, "lecun", "off")
    x, y = torch.randn(5, 3, 8, 8), torch.arange(5) % 4
    gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(net(x), y), weights(net))
    found = float(squared_norm(gradients, ntk_factors(net)))
    wrapped = torch.nn.Sequential(Jacot(layers[0]), layers[1], layers[2], Jacot(layers[3]))
    raw = [wrapped[0].raw, wrapped[3].raw, layers[3].bias]
    assert float(raw[0].detach().var()) == pytest.approx(1.0, abs=0.2)
    loss = torch.nn.functional.cross_entropy(wrapped(x), y)
    assert found == pytest.approx(float(squared_norm(torch.autograd.grad(loss, raw))), rel=1e-4)
    _, made = reward(parameterisation="ntk", init="lecun")
    _, plain = reward(init="lecun")
    assert made.size(0) < 0.5 * plain.size(0)
    with pytest.raises(BadInput, match="init=lecun"):
        NASI(parameterisation="ntk")


def test_a_search_needs_no_data_and_repeats_itself():
    method = NASI(batch=4, steps=3, nu_networks=2)
    first, facts = method.at_initialisation(SPACE, TASK, Seeds(0))
    state = torch.get_rng_state()
    again, _ = method.at_initialisation(SPACE, TASK, Seeds(0))
    assert first.to_json() == again.to_json()
    assert torch.equal(torch.get_rng_state(), state)
    assert set(facts) == {"steps", "nu", "above_nu", "x", "seconds"}
    assert facts["x"]["least"] <= facts["x"]["median"] <= facts["x"]["most"]
    for i in range(6):
        assert np.argmin(first.linear[i]) == OPERATIONS.index("none")
    other, _ = method.at_initialisation(SPACE, TASK, Seeds(1))
    assert other.to_json() != first.to_json()


def test_labels_and_images_are_those_asked_for(tmp_path):
    job = tiny.job(tmp_path, space="nasbench201")
    true = NASI(batch=8)._source(job)
    random = NASI(batch=8, labels="random")._source(job)
    assert torch.equal(true(3)[0], random(3)[0])
    assert not torch.equal(true(3)[1], random(3)[1])
    assert not torch.equal(true(3)[0], true(4)[0])
    assert not torch.equal(true(3)[0], true(-3)[0])
    assert NASI(images="gaussian")._source(job) is None
    small = NASI(batch=10_000)._source(job)
    assert len(small(0)[1]) == len(job.splits.train)


def test_nothing_is_left_out_where_nothing_would_remain():
    _, made = reward(without=OPERATIONS)
    assert all(bool(a.all()) for a in made.allowed)


def test_parameters_count_beside_delta_and_not_at_size_0():
    """Against networks that are built and counted."""
    method = NASI(batch=4, steps=3, nu_networks=2, size=0.0)
    alone, _ = method.at_initialisation(SPACE, TASK, Seeds(0))
    both, _ = dataclasses.replace(method, size=2.0).at_initialisation(SPACE, TASK, Seeds(0))
    assert (alone.batch([SPACE.heaviest.picks]) < 6).all() and not alone.pairs
    archs = [SPACE.sample(np.random.default_rng(n)) for n in range(40)]
    counted = [sum(p.numel() for p in SPACE.network(a, TASK).parameters()) for a in archs]
    found, delta = (score.batch([a.picks for a in archs]) for score in (both, alone))
    design = np.stack([np.ones(40), delta, counted], 1)
    fitted, left, *_ = np.linalg.lstsq(design / np.abs(design).max(0), found, rcond=None)
    assert np.abs(left).max() < 1e-9
    share = [w / np.abs(c).max() * np.std(c) for c, w in zip(design.T[1:], fitted[1:], strict=True)]
    assert share == pytest.approx([1.0, 2.0], rel=0.25)  # in units of deviations, those of 500 other networks


def test_no_option_is_ignored():
    with pytest.raises(BadInput, match=r"nu_scale = 2 would be ignored"):
        NASI(nu_start=100.0, nu_scale=2.0)
    with pytest.raises(BadInput, match=r"method\.redraw=0"):
        NASI(init="keep")
    assert NASI(init="keep", redraw=0).init == "keep"


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"batch": 0}, {"mu": -1.0}, {"temperature": 0.0}, {"gain": -1.0}, {"nu_start": 0.0}]
)
def test_bad_options_are_refused(wrong):
    with pytest.raises(BadInput, match="must"):
        build(NASI, wrong, "method")
