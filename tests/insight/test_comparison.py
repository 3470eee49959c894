import math
from dataclasses import replace

import numpy as np
import pytest

from sartor.core.units import COUNT
from sartor.insight.comparison import luck, ranked, verdict
from sartor.runs.codec import decode, encode
from sartor.runs.schema import CompareFile, Contestant


def compared(own, *others, images=1000, metric="accuracy", seconds=10.0, inherited=0.0):
    rivals = tuple(Contestant(f"rival {n}", f"net{n}", False, a, {"macs": 2e6}, 10.0, 3) for n, a in enumerate(others))
    mine = Contestant("this run", "mine", True, own, {"macs": 1e6}, seconds, 3)
    return CompareFile({"macs": 2e6}, "macs", {"macs": COUNT}, 10.0, metric, images, mine, rivals, inherited)


def test_luck_is_the_standard_error_of_a_difference_of_two_shares():
    c = compared(90.0, 90.0)
    assert luck(c, c.own, c.rivals[0]) == pytest.approx(196 * math.sqrt(2 * 0.9 * 0.1 / 1000), rel=0.01)
    assert luck(compared(100.0, 100.0), c.own, c.rivals[0]) > 0
    assert luck(compared(90.0, 90.0, metric="mean average precision"), c.own, c.rivals[0]) is None


def test_luck_of_the_same_images_is_that_of_those_which_only_one_gets_right():
    """Against resampling: 1,000 images of which 50 and 60 are apart, drawn again 20,000 times."""
    c = compared(90.0, 91.0)
    rival = replace(c.rivals[0], apart=(60, 50))
    rng = np.random.default_rng(0)
    differences = rng.choice([1, -1, 0], size=(20_000, 1000), p=[0.06, 0.05, 0.89]).mean(1)
    assert luck(c, c.own, rival) == pytest.approx(196 * differences.std(), rel=0.02)
    assert luck(c, c.own, rival) < luck(c, c.own, c.rivals[0])
    assert luck(c, c.own, replace(rival, apart=(0, 0))) > 0


@pytest.mark.parametrize(
    ("own", "best", "said"),
    [
        (95.0, 90.0, ("5.0 points more than the best of the others, rival 1 (net1)", "The search was worth it")),
        (90.0, 95.0, ("5.0 points less", "The search was not worth it")),
        (91.0, 90.0, ("1.0 points more", "neither is shown to be better")),
        (90.0, 90.0, ("as much as the best", "neither is shown to be better")),
    ],
)
def test_the_verdict_says_who_is_better_and_whether_that_is_luck(own, best, said):
    words = " ".join(verdict(compared(own, 80.0, best)))
    assert all(part in words for part in said)


def test_only_equal_times_tell_what_a_search_is_worth():
    words = verdict(compared(95.0, 80.0, 90.0, inherited=90.0))
    assert words[-1] == (
        "The others were trained for 10 s each, the network of this run for 10 s, after 90 s of search whose weights "
        "it inherited. Equal times: --time 200s."
    )
    assert not any("worth it" in line for line in words)
    assert "not worth it" in verdict(compared(90.0, 95.0, inherited=90.0))[-1]  # behind, though it had more time
    assert not any("worth it" in line for line in verdict(compared(90.0, 95.0, seconds=1.0)))


def test_an_empty_field_is_said():
    assert verdict(compared(90.0)) == ["Nothing else fits these budgets, so there was nothing to compare with."]


def test_the_best_comes_first_and_what_was_not_trained_is_left_out():
    c = compared(90.0, 80.0, 95.0)
    gone = Contestant("too large", "", False, missing="does not fit")
    c = CompareFile(**{**c.__dict__, "rivals": (*c.rivals, gone)})
    assert [e.name for e in ranked(c)] == ["rival 1", "this run", "rival 0"]
    assert decode(CompareFile, encode(c), "") == c
