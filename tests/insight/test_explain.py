import json

import numpy as np
import pytest

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic, additive, counted_once
from sartor.core.registry import SPACES
from sartor.insight.explain import contrasts, explain, factors, shadow_prices
from sartor.predictors.contributions import assemble, entries, estimate
from sartor.solvers.base import Frontier
from sartor.solvers.frontier import frontier

CHOICES = SPACES["mobile"]().choices
SIZES = tuple(len(c.options) for c in CHOICES)
SE, K5 = [1, 3, 5, 7, 9, 11], [2, 3, 6, 7, 10, 11]  # appendix J's sets, counted from zero


def contributions(seed=0, error=0.02):
    rng = np.random.default_rng(seed)
    delta = rng.normal(0, 0.2, 255)
    values = assemble(CHOICES, SIZES, 70.0, delta)
    errors = assemble(CHOICES, SIZES, 0.1, np.full(255, error))
    return Quadratic(SIZES, 70.0, values.linear, values.pairs, errors), delta


def block(delta, s, b):
    """The twelve contributions of one block."""
    start = 51 * s + 3 + 12 * (b - 1)
    return delta[start : start + 12]


def latency():
    """Half a millisecond for every block, and the expansion's tenth."""
    terms = []
    for hub in range(0, 25, 5):
        for b in range(1, 5):
            for c in range(12):
                for d in range(3) if b > 2 else [None]:
                    if d is None or d + 2 >= b:
                        when = ((hub + b, c),) if d is None else ((hub, d), (hub + b, c))
                        terms.append((when, 0.5 + 0.1 * (3, 4, 6)[c // 4]))
    return additive(SIZES, terms)


def line(found, noun, name, factor, end):
    (one,) = [x for x in found[noun + "s"] if x[noun] == name and x["factor"] == factor and x["to"] == end]
    return one


def test_options_are_read():
    assert factors("e3_k5_se") == {"expansion": "3", "kernel": "5", "squeeze-excitation": "on"}
    assert factors("nor_conv_3x3") == {}
    assert factors("skip_connect") == {}
    kinds = {(s.factor, s.start, s.end) for s in contrasts(CHOICES)}
    assert kinds == {
        ("depth", "2", "3"), ("depth", "3", "4"), ("expansion", "3", "4"), ("expansion", "4", "6"),
        ("kernel", "3", "5"), ("squeeze-excitation", "off", "on"),
    }  # fmt: skip


def test_averages_are_those_of_appendix_j():
    score, delta = contributions()
    found = explain(score, CHOICES, {"latency": latency()})

    def contrast(values, inside):
        return values[inside].mean() - np.delete(values, inside).mean()

    for s in range(5):
        expected = np.mean([contrast(block(delta, s, b), SE) for b in (1, 2, 3, 4)])
        assert line(found, "group", f"stage{s + 1}", "squeeze-excitation", "on")["gain"] == pytest.approx(expected)
        expected = np.mean([contrast(block(delta, s, b), K5) for b in (1, 2, 3, 4)])
        assert line(found, "group", f"stage{s + 1}", "kernel", "5")["gain"] == pytest.approx(expected)
    for b in (1, 2, 3, 4):
        expected = np.mean([block(delta, s, b)[8:].mean() - block(delta, s, b)[4:8].mean() for s in range(5)])
        assert line(found, "position", f"block{b}", "expansion", "6")["gain"] == pytest.approx(expected)


def test_a_repeated_number_is_one_measurement():
    """Block 3's contributions stand in the table for depths 3 and 4; its error is not halved by that."""
    score, _ = contributions(error=0.03)
    found = explain(score, CHOICES, {})
    for name in ("stage1.block1", "stage1.block3"):
        (one,) = [d for d in found["decisions"] if d["choice"] == name and d["factor"] == "kernel"]
        assert one["error"] == pytest.approx(0.03 * np.sqrt(1 / 6 + 1 / 6))
    (depth,) = [d for d in found["decisions"] if d["choice"] == "stage1.depth" and d["to"] == "4"]
    assert depth["error"] == pytest.approx(0.03 * np.sqrt(2 + 1 / 12))  # two depths and block 4's mean


def test_errors_are_the_spread_over_repetitions():
    """Also where depths are counted once: of a step of depth they are then too wide rather than too narrow."""
    rng, spread, claimed = np.random.default_rng(0), {}, {}
    for _ in range(40):
        base = 70 + rng.normal(0, 1, 300)
        conditional = base[None] + rng.normal(0, 3, (len(entries(CHOICES)), 300))
        score = estimate(CHOICES, base, conditional)
        for how, form in (("printed", score), ("once", counted_once(score, CHOICES))):
            for x in explain(form, CHOICES, {})["groups"]:
                key = (how, "depth" if x["factor"] == "depth" else "block")
                spread.setdefault(key, []).append(x["gain"])
                claimed.setdefault(key, []).append(x["error"])
    for key, gains in spread.items():
        most = 1.6 if key == ("once", "depth") else 1.1
        assert 0.9 < np.mean(claimed[key]) / np.std(gains) < most, key


def test_prices_are_what_the_decision_costs():
    score, _ = contributions()
    found = explain(score, CHOICES, {"latency": latency()}, cost_units={"latency": "ms"})
    wider = line(found, "group", "stage2", "expansion", "6")
    assert wider["prices"]["latency"]["price"] == pytest.approx(0.2)
    assert wider["prices"]["latency"]["gain_per_unit"] == pytest.approx(wider["gain"] / 0.2)
    assert wider["prices"]["latency"]["gain_per_unit_error"] == pytest.approx(wider["error"] / 0.2)
    assert line(found, "group", "stage2", "kernel", "5")["prices"]["latency"]["gain_per_unit"] is None
    deeper = line(found, "group", "stage2", "depth", "3")
    assert deeper["prices"]["latency"]["price"] == pytest.approx(0.5 + 0.1 * np.mean([3, 4, 6]))


def test_rules_only_where_the_interval_excludes_zero():
    rng = np.random.default_rng(0)
    delta = rng.normal(0, 0.001, 255)
    for s in range(5):
        for b in (1, 2, 3, 4):
            block(delta, s, b)[:] += 0.05 * (s + 1) * np.where(np.isin(np.arange(12), SE), 1, -1)
    values, errors = (assemble(CHOICES, SIZES, 70.0, d) for d in (delta, np.full(255, 0.05)))
    found = explain(Quadratic(SIZES, 70.0, values.linear, values.pairs, errors), CHOICES, {"latency": latency()})
    assert all("squeeze-excitation" in rule for rule in found["rules"])
    assert any(rule.startswith("In stage5, adding squeeze-excitation adds 0.5 %") for rule in found["rules"])
    assert any(r.startswith("Adding squeeze-excitation is worth more in later stages: +0.1 %") for r in found["rules"])
    silent = explain(values, CHOICES, {})
    assert silent["rules"] == []
    assert not silent["errors_known"]
    json.dumps(found, allow_nan=False)


def test_options_without_levels_are_compared_with_the_others():
    choices = tuple(Choice(f"edge{i}", ("none", "skip_connect", "nor_conv_3x3")) for i in range(2))
    linear = {0: [-3.0, 0.0, 3.0], 1: [0.0, 0.0, 0.0]}
    errors = Quadratic((3, 3), 0.0, {i: np.full(3, 0.1) for i in range(2)})
    found = explain(Quadratic((3, 3), 90.0, linear, errors=errors), choices, {})
    assert [d["gain"] for d in found["decisions"] if d["choice"] == "edge0"] == [-4.5, 0.0, 4.5]
    assert any(
        r.startswith("In edge0, taking nor_conv_3x3 instead of another option adds 4.5 %") for r in found["rules"]
    )
    assert not any("edge1" in r for r in found["rules"])


def test_shadow_prices_fall_along_the_frontier():
    front = Frontier(np.array([1.0, 2.0, 3.0, 5.0]), np.array([0.0, 1.0, 3.0, 4.0]), np.zeros((4, 1), np.int64))
    lines = shadow_prices(front)
    assert [x["step"] for x in lines] == [1.0, 2.0, 0.5]
    assert [x["price"] for x in lines] == [1.5, 1.5, 0.5]
    score, _ = contributions()
    prices = [x["price"] for x in shadow_prices(frontier(score, latency()))]
    assert (np.diff(prices) <= 1e-9).all()
    assert shadow_prices(Frontier(np.ones(1), np.ones(1), np.zeros((1, 1), np.int64))) == []


def test_counts_are_told_in_thousands_and_millions():
    delta = np.zeros(255)
    block(delta, 1, 1)[:] += np.where(np.isin(np.arange(12), SE), 1.0, -1.0)
    values, errors = (assemble(CHOICES, SIZES, 70.0, d) for d in (delta, np.full(255, 0.001)))
    macs = Quadratic(SIZES, 0.0, {6: 3.48e6 * np.isin(np.arange(12), SE)})
    score = Quadratic(SIZES, 70.0, values.linear, values.pairs, errors)
    rules = explain(score, CHOICES, {"macs": macs}, cost_units={"macs": ""})["rules"]
    assert any("for 870 K macs (" in rule and rule.endswith("per K).") for rule in rules), rules


def test_prices_that_differ_by_frame_are_told_around_an_architecture():
    choices = (Choice("side", ("32", "64")), Choice("width", ("8", "16")), Choice("depth", ("1", "2")))
    terms = [(((0, f), (1, w), (2, d)), (f + 1) ** 2 * (w + 1) * (d + 1.0)) for f, w, d in np.ndindex(2, 2, 2)]
    cost, score = additive((2, 2, 2), terms), Quadratic((2, 2, 2), 0.0, {i: [0.0, 1.0] for i in range(3)})
    with pytest.raises(BadInput, match="around an architecture"):
        explain(score, choices, {"time": cost})
    for arch in (Arch((0, 1, 0)), Arch((1, 1, 1))):
        found = explain(score, choices, {"time": cost.around(arch)})
        price = {line["choice"]: line["prices"]["time"]["price"] for line in found["decisions"]}
        scale = (arch.picks[0] + 1) ** 2
        assert price["width"] == price["depth"] == pytest.approx(1.5 * scale)  # on average over the other in this frame
        assert price["side"] == pytest.approx(cost(Arch((1, *arch.picks[1:]))) - cost(Arch((0, *arch.picks[1:]))))


def test_a_choice_that_needs_one_choice_may_interact_with_another_of_fewer_options():
    choices = (
        Choice("frame", tuple("abcdef")), Choice("stage", ("8", "16"), ((0, (3, 5)),)), Choice("head", ("0", "256")),
    )  # fmt: skip
    cost = additive((6, 2, 2), [(((1, w), (2, h)), (w + 1.0) * (h + 1)) for w, h in np.ndindex(2, 2)])
    found = explain(Quadratic((6, 2, 2), 0.0, {2: [0.0, 1.0]}), choices, {"macs": cost})
    price = {line["choice"]: line["prices"]["macs"]["price"] for line in found["decisions"]}
    assert price["head"] == pytest.approx(1.5)
