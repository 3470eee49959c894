"""How BINAS makes a score of what it measured; the method as a whole is tested with the pipeline."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from scipy.stats import kendalltau

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic, while_active
from sartor.core.registry import SPACES
from sartor.data.augment import Augment
from sartor.data.open import open_data
from sartor.engine.evaluate import correct, recalibrate
from sartor.insight.explain import explain
from sartor.methods.binas import method
from sartor.methods.binas.method import BINAS
from sartor.methods.binas.outcomes import Outcomes
from sartor.predictors.contributions import assemble, entries, force
from sartor.predictors.shrinkage import contributions_of
from sartor.runs.schema.search import Facts, ScoreFile

SPACE = SPACES["mobile"]()
IMAGES, PASSES = 600, 40


@pytest.fixture(scope="module")
def planted():
    """What paths would give if contributions were known: the truth in percent, and the outcomes."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(len(SPACE.sizes)), SPACE.sizes)
    truth = rng.normal(0, 1.0, len(owner))
    truth -= np.array([truth[owner == i].mean() for i in owner])
    form = assemble(SPACE.choices, SPACE.sizes, 0.0, truth)
    drawn = {row: SPACE.sample_picks(np.random.default_rng(row), IMAGES) for row in range(PASSES)}
    gain = np.stack([form.batch(picks) for picks in drawn.values()])  # (passes, images), percent
    easy = rng.normal(60, 20, IMAGES)
    luck = rng.normal(0, 15, gain.shape)
    right = (easy + gain + luck + rng.normal(0, 15, gain.shape) > 50).astype(np.int64)
    likelihood = (easy + gain + luck - 100) / 30
    tally = SimpleNamespace(right=right, likelihood=likelihood, per_forward=IMAGES, places=None)
    return truth, Outcomes.of(tally, lambda row, start, count: drawn[row])


def found(planted, **options):
    truth, seen = planted
    score = BINAS(**options)._fit_jointly(SimpleNamespace(space=SPACE), seen)
    return score, contributions_of(score, SPACE.choices), truth, seen.right.mean()


@pytest.mark.parametrize("outcome", ["both", "right", "chance", "likelihood"])
def test_every_outcome_gives_contributions_in_percent_of_accuracy(planted, outcome):
    score, (value, error), truth, level = found(planted, outcome=outcome)
    assert np.corrcoef(value, truth)[0, 1] > 0.6
    assert (error > 0).all()
    mean = score.batch(SPACE.sample_picks(np.random.default_rng(99), 2000)).mean()
    assert abs(mean - level) < 1.0


def test_both_are_better_than_right_or_wrong_alone(planted):
    _, (both, error), truth, _ = found(planted, outcome="both")
    _, (right, _), _, _ = found(planted, outcome="right")
    # A percent of gain is not a percent of accuracy: images far from the threshold stay what they are.
    unit = np.polyfit(truth, found(planted, outcome="right", shrink=False)[1][0], 1)[0]
    assert np.mean((both - unit * truth) ** 2) < 0.6 * np.mean((right - unit * truth) ** 2)
    assert 0.88 < np.mean(np.abs(both - unit * truth) < 1.96 * error) <= 1.0


def test_both_without_shrinking_is_refused():
    with pytest.raises(BadInput, match=r'outcome = "right" or "likelihood"'):
        BINAS(shrink=False)
    assert not replace(BINAS(outcome="right"), shrink=False).shrink


@pytest.mark.parametrize(
    ("grey", "options", "mirrored"),
    [(False, {}, True), (True, {}, False), (False, {"mirror": False}, False), (False, {"augment": "none"}, False),
     (False, {"estimator": "paper"}, False)],
)  # fmt: skip
def test_held_out_networks_are_measured_on_mirror_images_where_training_mirrors(tmp_path, grey, options, mirrored):
    job = tiny.job(tmp_path)
    if not grey:
        job = replace(job, task=replace(job.task, channels=3))
    torch.manual_seed(0)
    net = job.space.supernet(replace(job.task, channels=1)).eval()
    method = BINAS(held_out=3, **({"augment": "light"} | options))
    found = method._check(job, net, Quadratic(job.space.sizes))["networks"]
    for picks, measured, *halves in zip(found["picks"], found["measured"], *found["halves"], strict=True):
        one = partial(net, who=Arch(tuple(picks)))
        views = [one, lambda x, one=one: one(x.flip(3))][: 1 + mirrored]
        right = np.mean([correct(view, job.feed, job.splits.val) for view in views], 0)
        np.testing.assert_allclose(
            [measured, *halves], 100 * np.array([v.mean() for v in (right, right[::2], right[1::2])])
        )


# Two stages of the mobile space in small: blocks 3 and 4 run in deep stages only, block 2 in all of them.
STAGES = tuple(
    Choice(f"stage{s}.{name}", options, tuple((5 * s + o, allowed) for o, allowed in needs))
    for s in range(2)
    for name, options, needs in (
        ("depth", ("2", "3", "4"), ()),
        ("block1", ("k3", "k5", "k7"), ()),
        ("block2", ("k3", "k5", "k7"), ((0, (0, 1, 2)),)),
        ("block3", ("k3", "k5", "k7"), ((0, (1, 2)),)),
        ("block4", ("k3", "k5", "k7"), ((0, (2,)),)),
    )
)
STEP = 6.0  # percent that a stage gains by every further block, whichever it is


def planted_job(path):
    """Images that are right on paths whose planted accuracy exceeds their brightness (in percent), and the truth."""
    rng = np.random.default_rng(0)
    rows = [STEP * np.arange(-1.0, 2.0) if i % 5 == 0 else rng.normal(0, 3.0, 3) for i in range(10)]
    truth = while_active(STAGES, {i: row - row.mean() for i, row in enumerate(rows)}, 50.0)
    brightness = np.arange(512) % 256
    x = np.repeat(brightness, 64).reshape(-1, 8, 8).astype(np.uint8)
    y = np.arange(512) // 256
    x[:, 0, 0] = 255 * y
    job = tiny.job(path)
    images = open_data((x, y))
    space = SimpleNamespace(
        choices=STAGES,
        sizes=(3,) * 10,
        sample_picks=lambda rng, count: rng.integers(3, size=(count, 10)),
    )
    splits = replace(job.splits, val=np.arange(512))
    feed = replace(job.feed, images=images, mean=(0.0,), std=(2.55,))

    def net(images, who):
        right = images[:, 0, 4, 4] < torch.from_numpy(truth.batch(who))
        label = images[:, 0, 0, 0] > 50
        return torch.nn.functional.one_hot((right == label).long(), 2).float()

    return replace(job, space=space, task=images.task, feed=feed, splits=splits), net, truth


@pytest.mark.parametrize("estimator", ["joint", "paper"])
def test_both_estimators_on_a_planted_additive_accuracy(tmp_path, estimator):
    """Ours is the truth but for noise; equation 3 counts depths again in their blocks, explanations do not."""
    job, net, truth = planted_job(tmp_path)
    method = BINAS(estimator=estimator, outcome="right", shrink=False, focus=False, mirror=False, passes=40)
    score = method._measure(job, net)
    every = np.random.default_rng(1).integers(3, size=(1000, 10))
    slope = np.polyfit(truth.batch(every), score.batch(every), 1)[0]
    kendall = kendalltau(truth.batch(every), score.batch(every)).statistic
    if estimator == "joint":
        assert abs(slope - 1) < 0.05
        assert kendall > 0.95
    else:
        exact = [truth.batch(force(every, e.condition)).mean() for e in entries(STAGES)] - truth.batch(every).mean()
        printed = assemble(STAGES, job.space.sizes, 50.0, np.array(exact))
        assert np.corrcoef(score.batch(every), printed.batch(every))[0, 1] > 0.99  # equation 3 as it stands
        assert slope > 1.2
        assert kendall < 0.93
    learnt = ScoreFile("binas", "%", None, Facts(others={"estimator": estimator}), STAGES, score)
    told = explain(learnt.explained, STAGES, {})
    depths = [line["gain"] for line in told["decisions"] if line["factor"] == "depth"]
    np.testing.assert_allclose(depths, [STEP] * 4, atol=0.8)
    kernels = [line["gain"] for line in told["decisions"] if line["factor"] == "kernel"]
    exact = [line["gain"] for line in explain(truth, STAGES, {})["decisions"] if line["factor"] == "kernel"]
    np.testing.assert_allclose(kernels, exact, atol=1.2)


def test_the_teachers_batch_norms_have_the_statistics_of_the_images_that_it_teaches_on(tmp_path):
    """Plain images' would leave varied ones at another scale, which grows from layer to layer."""
    rng = np.random.default_rng(0)
    x = (rng.integers(0, 90, (96, 1, 1, 3)) + np.linspace(0, 120, 16)[:, None, None]).repeat(16, 2).astype(np.uint8)
    images = open_data((x, np.arange(96) % 3))
    job = tiny.job(tmp_path)
    feed = replace(job.feed, images=images, mean=(105.0,) * 3, std=(45.0,) * 3)
    job = replace(job, task=images.task, feed=feed, splits=replace(job.splits, train=np.arange(96)))
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3)]
    teacher = torch.nn.Sequential(*layers, torch.nn.BatchNorm2d(8))
    BINAS(augment="strong")._prepare_to_teach(job, teacher, 48)
    assert not teacher.training and not any(p.requires_grad for p in teacher.parameters())

    def spread():
        seen = [
            teacher(x) for x, _ in job.feed.train(job.splits.train, 48, Augment.for_task(job.task, "strong"), "t", 1)
        ]
        return float(torch.cat(seen).var(dim=(0, 2, 3)).mean())

    taught = spread()
    recalibrate(teacher, job.feed.plain(job.splits.train, 48), lambda x, _: teacher(x))
    assert abs(taught - 1) < 0.35
    assert spread() > 1.5 * taught


@pytest.mark.parametrize(("epoch", "share"), [(0.01, 1.0), (1.0, 0.5), (100.0, 0.0)])
def test_where_the_time_does_not_allow_the_fewest_passes_fewer_images_measure(tmp_path, monkeypatch, epoch, share):
    """A pass of so many seconds, in a search of which a quarter, 20 or so of them, may measure."""
    monkeypatch.setattr(method, "_FEW", 4)
    monkeypatch.setattr(BINAS, "_epoch", lambda self, job, net: epoch)
    binas = BINAS(passes=0, held_out=0)
    whole = tiny.job(tmp_path)
    views = 2 if binas._mirrors(whole) else 1
    least = method._FIRST + views * method._LEAST_HELD_OUT
    whole = replace(whole, seconds=0.5 * least / (method._MEASURING + method._CHECKING))
    planned, job = binas._timed(whole, None)
    images = len(whole.splits.val)
    assert len(job.splits.val) == max(4, round(share * images))
    assert set(job.splits.val) <= set(whole.splits.val)
    assert planned.passes >= method._FIRST
    assert planned.held_out >= method._LEAST_HELD_OUT
    again, same = binas._timed(whole, None)  # as a resumed run finds it
    assert (again.passes, same.splits.val.tolist()) == (planned.passes, job.splits.val.tolist())
