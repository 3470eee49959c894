import json

import numpy as np
import pytest
from scipy import stats

from sartor.core.errors import BadInput
from sartor.insight.ranking import quality


def rng():
    return np.random.default_rng(0)


def test_values_are_the_usual_statistics():
    p, m = rng().normal(size=(2, 40))
    m = m + p
    found = quality(p, m, rng())
    assert found["networks"] == 40
    assert found["kendall"]["value"] == pytest.approx(stats.kendalltau(p, m).statistic)
    assert found["spearman"]["value"] == pytest.approx(stats.spearmanr(p, m).statistic)
    assert found["mse"]["value"] == pytest.approx(((p - m) ** 2).mean())
    for name in ("kendall", "spearman", "mse"):
        assert found[name]["low"] < found[name]["value"] < found[name]["high"]


def test_intervals_are_those_of_the_usual_statistics_on_the_resamples():
    p = np.round(rng().normal(size=30), 1)  # with ties
    m = np.round(p + rng().normal(size=30), 1)
    drawn = rng().integers(30, size=(50, 30))
    found = quality(p, m, rng(), resamples=50)
    for name, statistic in (("kendall", stats.kendalltau), ("spearman", stats.spearmanr)):
        low, high = np.quantile([statistic(p[s], m[s]).statistic for s in drawn], [0.025, 0.975])
        assert (found[name]["low"], found[name]["high"]) == pytest.approx((low, high))


def test_perfect_and_reversed_rankings_have_certain_intervals():
    values = np.arange(10.0)
    assert quality(values, values**3, rng())["kendall"] == pytest.approx({"value": 1.0, "low": 1.0, "high": 1.0})
    assert quality(values, -values, rng())["spearman"]["value"] == pytest.approx(-1.0)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    stream, hits = rng(), 0
    truth = 6 / np.pi * np.arcsin(0.8 / 2)  # Spearman's of a bivariate normal with correlation 0.8
    for _ in range(60):
        p = stream.normal(size=60)
        m = 0.8 * p + 0.6 * stream.normal(size=60)
        s = quality(p, m, stream, resamples=100)["spearman"]
        hits += s["low"] <= truth <= s["high"]
    assert hits >= 48


def test_constant_lists_have_no_ranking_and_the_result_is_valid_json():
    for p, m in (([1.0] * 5, [1.0, 2.0, 3.0, 4.0, 5.0]), ([1.0] * 5, [2.0] * 5)):
        found = quality(p, m, rng())
        assert found["kendall"]["value"] == found["spearman"]["value"] == 0
        json.dumps(found, allow_nan=False)


def test_the_same_stream_gives_the_same_interval():
    p, m = rng().normal(size=(2, 20))
    assert quality(p, m, rng()) == quality(p, m, rng())


@pytest.mark.parametrize(("p", "m"), [([1, 2], [1, 2]), ([1, 2, 3], [1, 2]), ([[1, 2, 3]], [[1, 2, 3]]), ([], [])])
def test_too_few_or_unequal_lists_are_refused(p, m):
    with pytest.raises(BadInput, match="at least 3"):
        quality(p, m, rng())
