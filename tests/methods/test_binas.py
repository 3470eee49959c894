"""How BINAS makes a score of what it measured; the method as a whole is tested with the pipeline."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.core.registry import SPACES
from sartor.engine.evaluate import correct
from sartor.methods.binas.method import BINAS
from sartor.methods.binas.outcomes import Outcomes
from sartor.predictors.contributions import assemble
from sartor.predictors.shrinkage import contributions_of

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
