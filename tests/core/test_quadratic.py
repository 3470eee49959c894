import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.core.arch import Arch, Choice, active
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic, additive, while_active

SIZES = (3, 2, 4)


def random(seed, sizes=SIZES):
    rng = np.random.default_rng(seed)
    linear = {i: rng.normal(size=n) for i, n in enumerate(sizes)}
    pairs = {(i, j): rng.normal(size=(sizes[i], sizes[j])) for i in range(len(sizes)) for j in range(i)}
    return Quadratic(sizes, rng.normal(), linear, pairs)


def by_hand(q, picks):
    value = q.constant + sum(v[picks[i]] for i, v in q.linear.items())
    return value + sum(t[picks[i], picks[j]] for (i, j), t in q.pairs.items())


def test_value_is_the_sum_of_its_terms_one_by_one_and_in_batches():
    q, every = random(0), list(np.ndindex(*SIZES))
    assert [q(Arch(p)) for p in every] == pytest.approx([by_hand(q, p) for p in every])
    assert q.batch(every).tolist() == [q(Arch(p)) for p in every]
    assert q.batch(np.zeros((0, 3), int)).shape == (0,)


def test_a_pair_given_backwards_is_the_same_pair():
    table = np.arange(6.0).reshape(3, 2)
    forth, back = Quadratic((3, 2), pairs={(0, 1): table}), Quadratic((3, 2), pairs={(1, 0): table.T})
    both = Quadratic((3, 2), pairs={(0, 1): table, (1, 0): table.T})
    assert forth(Arch((2, 1))) == back(Arch((2, 1))) == both(Arch((2, 1))) / 2 == 5


def test_sums_and_multiples_are_those_of_the_values():
    a, b = random(1), Quadratic(SIZES, 2.0, {1: [1.0, 2.0]})
    for picks in np.ndindex(*SIZES):
        arch = Arch(picks)
        assert (a + 3 * b)(arch) == pytest.approx(a(arch) + 3 * b(arch))
        assert (b * -1.0)(arch) == -b(arch)


def test_functions_over_different_choices_do_not_add_up():
    with pytest.raises(BadInput, match="sizes"):
        Quadratic((3, 2)) + Quadratic((2, 3))


def test_later_changes_of_the_callers_arrays_change_nothing():
    vector, table = np.ones(3), np.ones((3, 2))
    q = Quadratic((3, 2), 0.0, {0: vector}, {(0, 1): table})
    vector[:], table[:] = 7, 7
    assert q(Arch((0, 0))) == 2
    with pytest.raises(ValueError, match="read-only"):
        q.linear[0][0] = 7


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=4, max_size=4))
def test_json_gives_every_bit_back(values):
    q = Quadratic((2, 1), values[0], {0: values[1:3]}, {(0, 1): [[values[3]], [0.1]]})
    again = Quadratic.from_json(json.loads(json.dumps(q.to_json())))
    assert again.to_json() == q.to_json()
    bits = [np.asarray(v).tobytes() for v in (q.constant, q.linear[0], q.pairs[0, 1])]
    assert bits == [np.asarray(v).tobytes() for v in (again.constant, again.linear[0], again.pairs[0, 1])]


def test_json_keeps_standard_errors():
    q = Quadratic((2,), 1.0, {0: [1.0, 2.0]}, errors=Quadratic((2,), 0.1, {0: [0.2, 0.3]}))
    again = Quadratic.from_json(json.loads(json.dumps(q.to_json())))
    assert again.errors is not None
    assert again.errors.to_json() == q.errors.to_json()
    assert Quadratic.from_json(Quadratic((2,)).to_json()).errors is None


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": None},
        {"sizes": [math.inf]},
        {"sizes": "ab"},
        {"constant": "x"},
        {"constant": math.nan},
        {"constant": 10**400},
        {"linear": [1, 2]},
        {"linear": {"0": [1, 2, 3]}},
        {"linear": {"9": [1, 2]}},
        {"linear": {"-1": [1, 2]}},
        {"linear": {"0": [1, [2]]}},
        {"linear": {"0": [math.inf, 0]}},
        {"pairs": {"0": [[1]]}},
        {"pairs": {"0,0": [[1, 2], [3, 4]]}},
        {"errors": {"sizes": 3}},
        {"errors": 3},
        {"cases": 3},
        {"cases": [{}, {}]},
    ],
)
def test_a_damaged_description_is_refused(change):
    with pytest.raises(BadInput):
        Quadratic.from_json({**Quadratic((2,), 1.0, {0: [1.0, 2.0]}).to_json(), **change})


@pytest.mark.parametrize("data", [None, [], 3, "text"])
def test_something_else_is_no_quadratic(data):
    with pytest.raises(BadInput):
        Quadratic.from_json(data)


def test_additive_charges_a_price_exactly_when_all_its_conditions_hold():
    terms = [((), 1.0), (((0, 2),), 10.0), (((0, 2),), 5.0), (((2, 3), (0, 1)), 100.0), (((1, 0), (2, 0)), 1000.0)]
    q = additive(SIZES, terms)
    for picks in np.ndindex(*SIZES):
        assert q(Arch(picks)) == sum(price for when, price in terms if all(picks[i] == a for i, a in when))


@pytest.mark.parametrize("when", [((1, 0), (2, 0), (3, 0)), ((0, 0), (1, 0), (2, 0), (3, 0)), ((0, 0), (0, 1), (2, 0))])
def test_additive_refuses_a_price_on_three_choices_without_the_frame(when):
    with pytest.raises(BadInput, match=r"at most two|without choice 0"):
        additive((*SIZES, 2), [(when, 1.0)])


def framed(seed, sizes=SIZES):
    """A random function in which every frame adds its own."""
    rng = np.random.default_rng(seed)
    rest = range(1, len(sizes))
    cases = [
        Quadratic(
            sizes,
            rng.normal(),
            {i: rng.normal(size=sizes[i]) for i in rest},
            {(i, j): rng.normal(size=(sizes[i], sizes[j])) for i in rest for j in rest if i < j},
        )
        for _ in range(sizes[0])
    ]
    return replace(random(seed, sizes), cases=tuple(cases))


def test_a_frame_adds_its_own_case():
    q = framed(3)
    for picks in np.ndindex(*SIZES):
        assert q(Arch(picks)) == pytest.approx(by_hand(q, picks) + by_hand(q.cases[picks[0]], picks))


def test_in_one_frame_the_function_is_plain_and_the_same():
    q = framed(4)
    for picks in np.ndindex(*SIZES):
        plain = q.at(picks[0])
        assert plain(Arch(picks)) == pytest.approx(q(Arch(picks)), abs=1e-12)
        assert plain.cases == () and 0 not in plain.linear and all(i > 0 for i, _ in plain.pairs)


def test_around_an_architecture_the_function_is_plain_in_its_frame_and_for_it_in_all_frames():
    q, here = framed(9), Arch((1, 0, 2))
    plain = q.around(here)
    assert plain.cases == ()
    for picks in np.ndindex(*SIZES):
        if picks[0] == 1 or picks[1:] == (0, 2):
            assert plain(Arch(picks)) == pytest.approx(q(Arch(picks)))
    assert any(abs(plain(Arch(p)) - q(Arch(p))) > 0.1 for p in np.ndindex(*SIZES))
    assert random(9).around(here).to_json() == random(9).to_json()


def test_errors_around_an_architecture_are_those_of_its_frame():
    cases = (Quadratic((2, 2)), Quadratic((2, 2), 0.0, {1: [4.0, 0.0]}))
    q = Quadratic((2, 2), cases=cases, errors=Quadratic((2, 2), 1.0, {1: [3.0, 2.0]}, cases=cases))
    assert q.around(Arch((1, 0))).errors.linear[1].tolist() == [5.0, 2.0]
    assert q.around(Arch((0, 0))).errors.linear[1].tolist() == [3.0, 2.0]


def test_errors_of_coefficients_that_become_one_add_up_in_squares():
    spread = Quadratic(
        (2, 2), 3.0, {0: [4.0, 0.0], 1: [1.0, 2.0]}, {(0, 1): [[2.0, 0.0], [9.0, 9.0]]},
        cases=(Quadratic((2, 2), 12.0, {1: [2.0, 1.5]}), Quadratic((2, 2))),
    )  # fmt: skip
    errors = Quadratic((2, 2), errors=spread).at(0).errors
    assert (errors.constant, errors.linear[1].tolist()) == (13.0, [3.0, 2.5])


def test_cases_add_and_multiply_as_the_values_do():
    a, b, plain = framed(5), framed(6), random(7)
    for picks in np.ndindex(*SIZES):
        arch = Arch(picks)
        assert (a + b * -2.0)(arch) == pytest.approx(a(arch) - 2 * b(arch))
        assert (a + plain)(arch) == pytest.approx(a(arch) + plain(arch)) == pytest.approx((plain + a)(arch))


def test_json_keeps_cases_and_writes_none_where_there_are_none():
    q = framed(8)
    again = Quadratic.from_json(json.loads(json.dumps(q.to_json())))
    assert again.to_json() == q.to_json()
    assert again.batch(list(np.ndindex(*SIZES))).tolist() == q.batch(list(np.ndindex(*SIZES))).tolist()
    assert "cases" not in random(8).to_json()


@pytest.mark.parametrize(
    "cases",
    [
        (Quadratic((2, 3)),),
        (Quadratic((2, 3)), Quadratic((2, 2))),
        (Quadratic((2, 3)), Quadratic((2, 3), linear={0: [0.0, 0.0]})),
        (Quadratic((2, 3)), Quadratic((2, 3), pairs={(1, 0): np.zeros((3, 2))})),
        (Quadratic((2, 3)), Quadratic((2, 3), cases=(Quadratic((2, 3)), Quadratic((2, 3))))),
        (Quadratic((2, 3)), Quadratic((2, 3), errors=Quadratic((2, 3)))),
    ],
    ids=["too few", "other sizes", "the frame itself", "a pair with the frame", "cases in a case", "errors in a case"],
)
def test_a_case_that_is_no_plain_function_of_the_other_choices_is_refused(cases):
    with pytest.raises(BadInput, match="case"):
        Quadratic((2, 3), cases=cases)


def test_additive_puts_a_price_on_the_frame_and_two_others_into_its_case():
    terms = [((), 1.0), (((2, 3), (0, 1), (1, 1)), 10.0), (((0, 1), (2, 3)), 100.0), (((0, 2), (1, 0), (2, 0)), 1000.0)]
    q = additive(SIZES, terms)
    for picks in np.ndindex(*SIZES):
        assert q(Arch(picks)) == sum(price for when, price in terms if all(picks[i] == a for i, a in when))


def test_a_limit_holds_up_to_rounding_on_both_sides():
    form = Quadratic((3,), 0.0, {0: [1.0, 2.0, 3.0]})
    limit = Limit("x", form, high=2.0, low=2.0)
    assert [limit.holds(Arch((n,))) for n in range(3)] == [False, True, False]
    assert Limit("x", form, high=2.0 - 1e-12).holds(Arch((1,)))
    assert not Limit("x", form, high=2.0 - 1e-6).holds(Arch((1,)))
    assert Limit("x", form).holds(Arch((2,)))


@pytest.mark.parametrize("needs", [(), ((0, (1, 2)),), ((0, (0, 1, 2)),)], ids=["none", "a hub", "what always holds"])
def test_options_count_while_their_choice_is_active(needs):
    choices = (Choice("hub", ("0", "1", "2")), Choice("leaf", ("a", "b"), needs))
    rows = {0: np.array([1.0, 2.0, 4.0]), 1: np.array([10.0, 20.0])}
    form = while_active(choices, rows, 0.5)
    for picks in np.ndindex(3, 2):
        added = sum(rows[i][p] for i, p in enumerate(picks) if active(choices[i], picks))
        assert form(Arch(picks)) == 0.5 + added
    assert bool(form.pairs) == (needs == ((0, (1, 2)),))


def test_options_under_two_other_choices_are_refused():
    choices = (Choice("a", ("0", "1")), Choice("b", ("0", "1")), Choice("c", ("x", "y"), ((0, (0,)), (1, (0,)))))
    assert while_active(choices, {0: np.zeros(2)}).pairs == {}
    with pytest.raises(BadInput, match="c needs 2: a, b"):
        while_active(choices, {2: np.zeros(2)})
