import signal

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from sartor.core.errors import BadInput, Diverged, RunError
from sartor.engine import checkpoint
from sartor.engine.evaluate import accuracy, correct, recalibrate
from sartor.engine.fit import Training, fit
from sartor.engine.network import calibration, train_network
from sartor.engine.recipe import Recipe

RECIPE = Recipe(epochs=4, batch=12, lr=0.05, augment="light", dropout=0.2)


class Stop(Exception):
    """What interrupts a training here."""


class Training4:
    """A small training on the tiny job, with `hook(epoch of this process, batch, images)` before every loss."""

    def __init__(self, path, recipe=RECIPE, hook=lambda *_: None, seed=0, name="phase"):
        self.job = tiny.job(path, seed)
        torch.manual_seed(0)
        self.net = self.job.engine.place(self.job.space.supernet(self.job.task))
        self.calls, self.hook = 0, hook
        self.training = Training(name, self.net, self.loss, recipe, self.job.feed, self.job.splits.train, self.job.run)

    def loss(self, x, y, rng):
        self.hook(self.calls, x)
        self.calls += 1
        logits = self.net(x, self.job.space.sample_picks(rng, len(y)))
        return {"loss": self.job.task.loss(logits, y, 0.1), "size": torch.tensor(float(len(y)))}

    def run(self):
        history = fit(self.training)
        return history, {k: v.clone() for k, v in self.net.state_dict().items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    torch.set_num_threads(1)
    return Training4(tmp_path_factory.mktemp("whole")).run()


def same(a, b):
    for key, value in a.items():
        assert torch.equal(value, b[key]), key


def losses(history):
    return [{k: v for k, v in row.items() if k != "images_per_second"} for row in history]


def at(call, error):
    def hook(calls, x):
        if calls == call:
            raise error

    return hook


def test_history_has_one_row_an_epoch_with_every_named_loss(whole):
    history, _ = whole
    assert len(history) == 4
    assert all(set(row) == {"loss", "size", "images_per_second"} for row in history)
    assert all(row["size"] == 12 and row["images_per_second"] > 0 for row in history)


@pytest.mark.parametrize("calls", [0, 4, 7, 11])
def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path, whole, calls):
    with pytest.raises(Stop):
        Training4(tmp_path, hook=at(calls, Stop())).run()
    torch.manual_seed(99)  # whatever happened in between
    again = Training4(tmp_path)
    history, state = again.run()
    assert again.calls == 12 - calls // 3 * 3  # epochs of three steps; complete ones are not repeated
    assert losses(history) == losses(whole[0])
    same(whole[1], state)


def test_interrupted_at_every_epoch_equals_uninterrupted(tmp_path, whole):
    for _ in range(3):
        with pytest.raises(Stop):
            Training4(tmp_path, hook=at(4, Stop())).run()
    same(whole[1], Training4(tmp_path).run()[1])


@pytest.mark.parametrize("call, number", [(1, signal.SIGINT), (5, signal.SIGTERM)])
def test_stopped_within_an_epoch_it_goes_on_from_that_step(tmp_path, whole, call, number):
    """As `main` does, SIGTERM is made an exception; the step that runs ends first, and none is done twice."""
    before = {n: signal.signal(n, signal.default_int_handler) for n in (signal.SIGINT, signal.SIGTERM)}
    first = Training4(tmp_path, hook=lambda calls, x: signal.raise_signal(number) if calls == call else None)
    try:
        with pytest.raises(KeyboardInterrupt):
            first.run()
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
    assert first.calls == call + 1
    assert first.training.within.exists()
    torch.manual_seed(99)
    again = Training4(tmp_path)
    history, state = again.run()
    assert again.calls == 12 - first.calls
    assert losses(history) == losses(whole[0])
    same(whole[1], state)
    assert not again.training.within.exists()


def test_a_checkpoint_a_minute_serves_who_is_killed_between_epochs(tmp_path, whole, monkeypatch):
    monkeypatch.setattr("sartor.engine.fit._SAVE_EVERY", -1.0)  # every step is a minute long
    for _ in range(3):
        with pytest.raises(Stop):
            Training4(tmp_path, hook=at(3, Stop())).run()
    last = Training4(tmp_path)
    same(whole[1], last.run()[1])
    assert last.calls == 3


def test_a_checkpoint_within_an_epoch_that_was_completed_since_counts_no_more(tmp_path, whole, monkeypatch):
    monkeypatch.setattr("sartor.engine.fit._SAVE_EVERY", -1.0)
    with pytest.raises(Stop):
        Training4(tmp_path, hook=at(2, Stop())).run()
    kept = (within := Training4(tmp_path).training.within).read_bytes()
    with pytest.raises(Stop):
        Training4(tmp_path, hook=at(2, Stop())).run()
    within.write_bytes(kept)
    again = Training4(tmp_path)
    same(whole[1], again.run()[1])
    assert again.calls == 9


def test_a_finished_training_is_not_repeated(tmp_path, whole):
    Training4(tmp_path).run()
    again = Training4(tmp_path)
    history, state = again.run()
    assert again.calls == 0
    assert losses(history) == losses(whole[0])
    same(whole[1], state)


def test_another_seed_or_phase_gives_other_weights(tmp_path, whole):
    for folder, options in (("a", {"seed": 1}), ("b", {"name": "other"})):
        state = Training4(tmp_path / folder, **options).run()[1]
        assert not all(torch.equal(v, whole[1][k]) for k, v in state.items())


def test_nothing_to_train_leaves_the_network_as_it_was(tmp_path):
    training = Training4(tmp_path, Recipe(epochs=0))
    before = {k: v.clone() for k, v in training.net.state_dict().items()}
    history, state = training.run()
    assert history == []
    same(before, state)


def test_a_loss_that_is_not_a_number_stops_and_keeps_the_epochs_before(tmp_path):
    training = Training4(tmp_path)
    fine = training.loss

    def loss(x, y, rng):
        losses = fine(x, y, rng)
        return {**losses, "loss": losses["loss"] * (float("nan") if training.calls == 8 else 1.0)}

    with pytest.raises(Diverged, match=r"epoch 3 of 'phase'.*0\.05"):
        fit(
            Training(
                "phase", training.net, loss, RECIPE, training.job.feed, training.job.splits.train, training.job.run
            )
        )
    saved = checkpoint.load(training.training.file)
    assert saved["epoch"] == 2
    assert all(torch.isfinite(v).all() for v in saved["net"].values())


def test_running_out_of_memory_halves_the_batch_and_says_so(tmp_path):
    def hook(calls, x):
        if len(x) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")

    history, _ = Training4(tmp_path, Recipe(epochs=1, batch=12), hook).run()
    assert [row["size"] for row in history] == [3.0]
    log = (tmp_path / "log.txt").read_text()
    assert "at a batch of 12: going on with 6" in log
    assert "at a batch of 6: going on with 3" in log


def test_memory_that_runs_out_later_on_goes_back_to_the_last_epoch(tmp_path):
    sizes = []

    def hook(calls, x):
        sizes.append(len(x))
        if calls == 7 and len(x) == 12:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes")

    history, _ = Training4(tmp_path, hook=hook).run()
    assert [row["size"] for row in history] == [12.0, 12.0, 6.0, 6.0]
    assert sizes[:8] == [12] * 8
    assert checkpoint.load(tmp_path / "search/phase.checkpoint.safetensors")["batch"] == 6


def test_memory_for_not_even_two_images_is_an_error_and_other_errors_pass(tmp_path):
    with pytest.raises(BadInput, match="memory ran out in 'phase'"):
        Training4(tmp_path / "a", hook=lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("no"))).run()
    with pytest.raises(RuntimeError, match="shape mismatch"):
        Training4(tmp_path / "b", hook=at(0, RuntimeError("shape mismatch"))).run()


@pytest.mark.parametrize("damage", ["truncated", "other network", "other content"])
def test_a_checkpoint_that_does_not_fit_is_refused_by_name(tmp_path, damage):
    with pytest.raises(Stop):
        Training4(tmp_path, hook=at(4, Stop())).run()
    path = tmp_path / "search/phase.checkpoint.safetensors"
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:1000])
    elif damage == "other network":
        saved = checkpoint.load(path)
        checkpoint.save(path, {**saved, "net": {"weight": torch.zeros(3)}})
    else:
        checkpoint.save(path, {"epoch": 1})
    with pytest.raises(RunError, match=r"phase\.checkpoint\.safetensors"):
        Training4(tmp_path).run()


def test_the_bars_can_be_learnt(tmp_path):
    job = tiny.job(tmp_path)
    torch.manual_seed(0)
    net = job.space.network(job.space.smallest, job.task)
    recipe = Recipe(epochs=25, batch=13, lr=0.05, augment="none", ema=0.9)
    train_network(net, None, recipe, job.feed, job.splits, job.run, "net")
    assert accuracy(net, job.feed, job.splits.train) > 80
    assert accuracy(net, job.feed, job.splits.test) > 60


# evaluation -------------------------------------------------------------------------------------


def test_correct_is_in_the_order_of_the_images_whatever_the_batch(tmp_path):
    job = tiny.job(tmp_path)
    labels = job.feed.images.labels

    def forward(x):
        return torch.nn.functional.one_hot(torch.arange(len(x)) % 3, 3).float()

    index = job.splits.train[::-1].copy()
    right = correct(forward, job.feed, index, batch=300)
    assert right.tolist() == [labels[i] == k % 3 for k, i in enumerate(index)]
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    small, large = (correct(net, job.feed, index, batch=b) for b in (5, 300))
    assert np.array_equal(small, large)
    assert accuracy(net, job.feed, index) == pytest.approx(100 * large.mean())


def test_recalibrated_statistics_are_plain_averages_over_the_batches():
    torch.manual_seed(0)
    net = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Conv2d(3, 2, 1), nn.BatchNorm2d(2, momentum=0.3)).eval()
    net[0].running_mean.fill_(100.0)
    net[3].running_var.fill_(100.0)
    batches = [(torch.randn(6, 3, 4, 4) * k + k, None) for k in (1.0, 2.0, 3.0)]
    recalibrate(net, iter(batches), lambda x, k: net(x))
    means = torch.stack([x.mean((0, 2, 3)) for x, _ in batches]).mean(0)
    variances = torch.stack([x.var((0, 2, 3)) for x, _ in batches]).mean(0)
    torch.testing.assert_close(net[0].running_mean, means, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(net[0].running_var, variances, atol=1e-5, rtol=1e-4)
    inner = [net[2](nn.functional.batch_norm(x, None, None, net[0].weight, net[0].bias, True)) for x, _ in batches]
    torch.testing.assert_close(net[3].running_var, torch.stack([y.var((0, 2, 3)) for y in inner]).mean(0))
    assert (net[0].momentum, net[3].momentum, net[1].p) == (0.1, 0.3, 0.5)
    assert not net.training


def test_recalibration_of_a_supernet_forgets_the_statistics_before(tmp_path):
    job = tiny.job(tmp_path)
    torch.manual_seed(0)
    net = job.space.supernet(job.task)
    one, two = {}, {}
    for state, start in ((one, 0.0), (two, 50.0)):
        for m in net.modules():
            if hasattr(m, "running_mean"):
                m.running_mean.fill_(start)
        picks = job.space.sample_picks(np.random.default_rng(0), 400)
        recalibrate(net, iter([(torch.randn(400, 1, 8, 8, generator=torch.Generator().manual_seed(1)), None)]),
                    lambda x, k, picks=picks: net(x, picks))  # fmt: skip
        state.update({k: v.clone() for k, v in net.named_buffers() if k.endswith("running_mean")})
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], msg=name)


def test_calibration_images_are_whole_batches_of_the_training_split(tmp_path):
    job = tiny.job(tmp_path)
    small = list(calibration(job.feed, job.splits, batch=256))
    assert [len(y) for _, y in small] == [len(job.splits.train)]
    assert [len(y) for _, y in calibration(job.feed, job.splits, batch=10, most=2)] == [10, 10]
