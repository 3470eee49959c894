"""Looking again at the images that paths disagree about: fair, exact in number, and worth it."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch

from sartor.core.arch import Choice
from sartor.methods.binas import tally as _tally
from sartor.methods.binas.focus import chances, draw_images, gain
from sartor.methods.binas.outcomes import Outcomes
from sartor.methods.binas.tally import Tally
from sartor.predictors.joint import estimate_jointly

CHOICES = (Choice("a.depth", ("1", "2", "3")), Choice("a.block1", ("x", "y")), Choice("b.block1", ("x", "y", "z")))
TRUTH = ([-6.0, 1.0, 5.0], [-3.0, 3.0], [0.0, -2.0, 2.0])


@pytest.mark.parametrize("size", [1, 10, 35, 50])
def test_chances_sum_to_the_size_and_favour_doubtful_images(size):
    right = (np.random.default_rng(0).random((20, 50)) < np.linspace(0, 1, 50)).astype(np.int64)
    chance = chances(right, size)
    assert chance.sum() == pytest.approx(size)
    assert (chance > 0).all()
    assert (chance <= 1).all()
    doubt = right.mean(0) * (1 - right.mean(0))
    assert (np.diff(chance[np.argsort(doubt, kind="stable")]) > -1e-9).all()


def test_every_image_is_chosen_as_often_as_its_chance_says():
    rng = np.random.default_rng(1)
    chance = chances(rng.integers(0, 2, (8, 30)), 12)
    drawn = [draw_images(chance, rng) for _ in range(4000)]
    assert all(len(np.unique(d)) == 12 for d in drawn)
    np.testing.assert_allclose(np.bincount(np.concatenate(drawn), minlength=30) / 4000, chance, atol=0.04)


def measured(rng, places, easy):
    """Right or wrong on random paths: how easy an image is, and what decisions add, in percent."""
    picks = np.stack([rng.integers(len(c.options), size=places.size) for c in CHOICES], 1)
    chance = easy[places.reshape(-1)] + sum(np.take(t, picks[:, i]) for i, t in enumerate(TRUTH))
    right = (100 * rng.random(places.size) < chance).astype(np.int64).reshape(places.shape)
    tally = SimpleNamespace(right=right, likelihood=np.zeros(places.shape), per_forward=places.shape[1], places=places)
    return tally, lambda row, start, count: picks.reshape(*places.shape, -1)[row]


def both(rng, easy, first=10, rest=30):
    """The score of all images in every pass, and that of a second part of chosen ones, at the same cost."""
    images = len(easy)
    everyone = np.tile(np.arange(images), (first + rest, 1))
    plain = Outcomes.of(*measured(rng, everyone, easy))
    tally, paths = measured(rng, everyone[:first], easy)
    chance = chances(tally.right, images // 4)
    places = np.stack([draw_images(chance, rng) for _ in range(4 * rest)])
    again = Outcomes.of(*measured(rng, places, easy), 1 / chance)
    focused = Outcomes.of(tally, paths).join(again, first, rest * gain(tally.right, chance))
    assert focused.weights.mean() == pytest.approx(1.0)
    return [estimate_jointly(CHOICES, o.picks, o.images, o.right, weights=o.weights) for o in (plain, focused)]


def test_the_same_contributions_with_smaller_errors():
    """Over many measurements: no bias, a third less variance, and errors that say so."""
    rng = np.random.default_rng(2)
    # Three in four images are beyond doubt: 8 % up or down does not change them.
    easy = np.concatenate([np.full(90, 150.0), np.full(60, -60.0), rng.uniform(20, 80, 50)])
    truth, found, errors, level = np.concatenate(TRUTH) * 0.25, [[], []], [[], []], [[], []]
    for _ in range(60):
        for n, score in enumerate(both(rng, easy)):
            found[n].append(np.concatenate([score.linear[i] for i in range(3)]))
            errors[n].append(np.concatenate([score.errors.linear[i] for i in range(3)]))
            level[n].append(score.constant)
    plain, focused = (np.array(f) for f in found)
    spread = focused.std(0) / np.sqrt(60)
    assert (np.abs(focused.mean(0) - truth) < 4 * spread + 0.02).all()
    assert np.mean((focused - truth) ** 2) < 0.67 * np.mean((plain - truth) ** 2)
    assert np.mean(np.square(errors[1])) == pytest.approx(np.mean((focused - truth) ** 2), rel=0.3)
    assert np.mean(level[1]) == pytest.approx(np.mean(level[0]), abs=0.3)


def test_a_tally_of_chosen_images_sees_just_those(tmp_path):
    job = tiny.job(tmp_path)
    torch.manual_seed(0)
    net = job.space.supernet(job.task).eval()
    rng = np.random.default_rng(3)
    count = len(job.splits.val)
    places = np.stack([np.sort(rng.permutation(count)[:5]) for _ in range(7)])
    paths = [job.space.sample_picks(rng, 5) for _ in range(7)]
    tally = Tally(job, "again", 7, places=places)
    tally.run(net, lambda row, _, start, n: paths[row][start : start + n])
    for row in range(7):
        x, y = next(iter(job.feed.plain(job.splits.val[places[row]], 5)))
        with torch.no_grad():
            logits = net(x, paths[row])
        assert (tally.right[row] == (logits.argmax(1) == y).numpy()).all()
        likelihood = logits.double().log_softmax(1).gather(1, y[:, None])[:, 0]
        np.testing.assert_allclose(tally.likelihood[row], likelihood.numpy(), atol=1e-4)
    again = Tally(job, "again", 7, places=places)  # and is there when asked again
    assert again.position == tally.position
    assert (again.right == tally.right).all()


def test_another_device_goes_on_with_the_same_paths(tmp_path, monkeypatch):
    """A GPU takes more images at once, and paths are drawn a forward at a time: a resumed tally keeps its own size."""
    monkeypatch.setattr(_tally, "_SAVE_EVERY", 0.0)
    torch.manual_seed(0)
    whole, parts = tiny.job(tmp_path / "whole"), tiny.job(tmp_path / "parts")
    net = whole.space.supernet(whole.task).eval()
    asked = []

    def drawn(job, most=None):
        def paths(row, number, start, count):
            asked.append((row, start))
            if most is not None and row >= most:
                raise KeyboardInterrupt
            return job.space.sample_picks(job.seeds.rng("paths", row, start), count)

        return paths

    monkeypatch.setattr(_tally, "per_forward", lambda device: 16)
    expected = Tally(whole, "joint", 6)
    expected.run(net, drawn(whole))
    with pytest.raises(KeyboardInterrupt):
        Tally(parts, "joint", 6).run(net, drawn(parts, most=3))
    monkeypatch.setattr(_tally, "per_forward", lambda device: 48)
    asked.clear()
    resumed = Tally(parts, "joint", 6)
    resumed.run(net, drawn(parts))
    assert asked[0] == (3, 0)
    assert (resumed.right == expected.right).all()
    np.testing.assert_allclose(resumed.likelihood, expected.likelihood, atol=1e-6)
    one, two = (
        Outcomes.of(t, lambda row, start, count: drawn(parts)(row, 0, start, count)) for t in (resumed, expected)
    )
    assert (one.picks == two.picks).all()


@pytest.mark.parametrize("chosen_images", [False, True])
def test_every_second_row_sees_mirror_images(tmp_path, chosen_images):
    job = tiny.job(tmp_path)
    torch.manual_seed(0)
    net = job.space.supernet(job.task).eval()
    rng = np.random.default_rng(4)
    count = len(job.splits.val)
    places = np.stack([np.sort(rng.permutation(count)[:5]) for _ in range(4)]) if chosen_images else None
    paths = [job.space.sample_picks(rng, count) for _ in range(4)]
    tally = Tally(job, "joint", 4, places=places, mirror=True)
    tally.run(net, lambda row, _, start, n: paths[row][start : start + n])
    for row in range(4):
        index = job.splits.val if places is None else job.splits.val[places[row]]
        x, y = next(iter(job.feed.plain(index, count)))
        x = x.flip(3) if row % 2 else x
        with torch.no_grad():
            likelihood = net(x, paths[row][: len(x)]).double().log_softmax(1).gather(1, y[:, None])[:, 0]
        np.testing.assert_allclose(tally.likelihood[row], likelihood.numpy(), atol=1e-4)
