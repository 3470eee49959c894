"""A batch in several hands: the gradients of its parts together, the same whenever it is computed."""

from dataclasses import replace

import pytest
import tiny
import torch
from torch import nn

from sartor.engine.device import Engine, Way
from sartor.engine.fit import Training, fit, nothing
from sartor.engine.hands import Hands, suited
from sartor.engine.network import train_network
from sartor.engine.plan import fastest
from sartor.engine.recipe import Recipe


def small(norm=True):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3), *([nn.BatchNorm2d(8)] if norm else []), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)]
    return nn.Sequential(*layers)


@pytest.fixture
def engine():
    made = Engine("cpu")
    made.use(Way(2, 1))
    yield made
    made.use(Way(1, 1))


def images(count=24):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, 8, 8, generator=generator), torch.arange(count) % 5


def gradients(net, answer, y):
    nn.functional.cross_entropy(answer, y).backward()
    return [p.grad for p in net.parameters()]


@pytest.mark.parametrize("count", [24, 25])
def test_without_batch_norms_the_gradient_is_that_of_the_whole_batch(engine, count):
    x, y = images(count)
    alone, shared = small(norm=False), small(norm=False)
    expected, found = gradients(alone, alone(x), y), gradients(shared, Hands(shared, engine)(x), y)
    for a, b in zip(expected, found, strict=True):
        torch.testing.assert_close(a, b)


def test_batch_norms_see_their_part_and_their_statistics_become_the_mean(engine):
    (x, y), shared = images(), small()
    found = gradients(shared, Hands(shared, engine)(x), y)
    halves = [small(), small()]
    answers = torch.cat([net(part) for net, part in zip(halves, x.chunk(2), strict=True)])
    nn.functional.cross_entropy(answers, y).backward()
    for n, p in enumerate(found):
        torch.testing.assert_close(p, sum(list(net.parameters())[n].grad for net in halves))
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(shared[1], name), sum(getattr(net[1], name) for net in halves) / 2)


def test_a_parameter_that_is_not_used_or_not_trained_gets_no_gradient(engine):
    (x, y), net = images(), small()
    net.spare, forward = nn.Linear(2, 2), nn.Sequential.forward
    net.forward = lambda x: forward(nn.Sequential(*list(net)[:-1]), x)
    net[0].weight.requires_grad_(False)
    gradients(net, Hands(net, engine)(x), y)
    assert net.spare.weight.grad is None and net[0].weight.grad is None and net[0].bias.grad is not None


def test_evaluation_goes_through_the_network_itself(engine):
    (x, _), net = images(), small().eval()
    shared = Hands(net, engine)
    assert torch.equal(shared(x), net(x)) and not shared.nets
    net.train()
    with torch.no_grad():
        shared(x)
    assert not shared.nets


def test_what_a_thread_meets_is_raised_where_the_step_is(engine):
    net = small()
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        Hands(net, engine)(torch.randn(8, 3, 9, 9))


def test_mixed_precision_reaches_the_threads(engine):
    (x, _), net = images(), small()
    with torch.autocast("cpu", torch.bfloat16):
        assert Hands(net, engine)(x).dtype == torch.bfloat16
    assert Hands(net, engine)(x).dtype == torch.float32


def test_what_is_drawn_inside_a_network_is_not_shared():
    assert suited(Recipe(epochs=1))
    for option in ("dropout", "drop_path", "auxiliary"):
        assert not suited(Recipe(epochs=1, **{option: 0.2}))


def trained(path, hands, stop=None):
    """A network after two epochs in so many hands, stopped once after `stop` steps and taken up."""
    job = tiny.job(path)
    job.engine.use(Way(hands, 1))
    torch.manual_seed(0)
    net, seen = job.engine.place(job.space.network(job.space.heaviest, job.task)), []
    shared, recipe = Hands(net, job.engine), Recipe(epochs=2, batch=32, augment="light")

    def loss(x, y, drawn):
        seen.append(len(x))
        if len(seen) == stop:
            raise KeyboardInterrupt
        return {"loss": job.task.loss(shared(x), y)}

    training = Training("shared", net, loss, recipe, job.feed, job.splits.train, job.run, draw=nothing)
    if stop is not None:
        with pytest.raises(KeyboardInterrupt):
            fit(training)
    fit(training)
    return net.state_dict()


def test_the_same_again_and_after_an_interruption(tmp_path):
    whole, again = trained(tmp_path / "a", 2), trained(tmp_path / "b", 2, stop=2)
    other = trained(tmp_path / "c", 1)
    assert all(torch.equal(value, again[name]) for name, value in whole.items())
    assert not all(torch.equal(value, other[name]) for name, value in whole.items())


def test_the_fastest_way_is_taken_and_one_thread_is_enough_for_short_steps(tmp_path, monkeypatch):
    job, took = tiny.job(tmp_path), {}
    monkeypatch.setattr(Engine, "cores", 4)
    times = {Way(1, 1): 0.4, Way(1, 4): 0.3, Way(2, 2): 0.2, Way(4, 1): 0.25}

    def timed(t, patience, hopeless):
        way = Way(t.engine.hands, torch.get_num_threads())
        took[way] = times[way]
        return times[way]

    monkeypatch.setattr("sartor.engine.plan.seconds_per_step", timed)
    net = small()
    t = Training("way", net, None, Recipe(epochs=1, batch=64), job.feed, job.splits.train, job.run, draw=nothing)
    try:
        assert fastest(t, 1.0) == (0.2, Way(2, 2)) and took == times and job.engine.hands == 2
        took.clear()
        assert fastest(replace(t, recipe=replace(t.recipe, batch=32)), 1.0)[1] == Way(2, 2)
        assert Way(4, 1) not in took  # eight images are too few for a thread
        took.clear()
        assert fastest(replace(t, recipe=replace(t.recipe, dropout=0.2)), 1.0)[1] == Way(1, 4)
        assert set(took) == {Way(1, 1), Way(1, 4)}
        times[Way(1, 1)] = 0.001
        assert fastest(t, 1.0)[1] == Way(1, 1)
    finally:
        job.engine.use(Way(1, 1))


def test_a_planned_training_keeps_its_way_when_it_is_taken_up(tmp_path, monkeypatch):
    job = tiny.job(tmp_path)
    monkeypatch.setattr("sartor.engine.plan.fastest", lambda t, patience: (0.01, Way(2, 1)))
    net = job.engine.place(job.space.network(job.space.heaviest, job.task))
    recipe = Recipe(epochs=0, batch=32, augment="light")
    try:
        train_network(net, None, recipe, job.feed, job.splits, job.run, "kept", seconds=0.1)
        assert job.engine.hands == 2 and job.run.read("search/kept.plan.json")["hands"] == 2
        job.engine.use(Way(1, 1))
        train_network(net, None, recipe, job.feed, job.splits, job.run, "kept", seconds=0.1)
        assert job.engine.hands == 2
    finally:
        job.engine.use(Way(1, 1))
