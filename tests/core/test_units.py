import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.core.errors import BadInput
from sartor.core.units import parse, show


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("20ms", "time", 20.0),
        (" 0.5 s ", "time", 500.0),
        ("250us", "time", 0.25),
        ("250µs", "time", 0.25),
        ("250μs", "time", 0.25),
        ("1e1ms", "time", 10.0),
        (".5ms", "time", 0.5),
        ("4M", "count", 4e6),
        ("250000", "count", 250000.0),
        ("1.5k", "count", 1500.0),
        ("2G", "count", 2e9),
        ("1.2GB", "bytes", 1.2e9),
        ("500KB", "bytes", 5e5),
        ("1MiB", "bytes", 2.0**20),
        (7, "time", 7.0),
        (2.5, "bytes", 2.5),
    ],
)
def test_text_is_read_in_one_unit_a_kind(text, kind, value):
    assert parse(text, kind) == value


@pytest.mark.parametrize(
    "text", ["20", "-5ms", "0ms", "fast", "", "ms", "5 m s", "5MS", "nanms", "infms", "1e999ms", "5%"]
)
def test_a_budget_that_is_no_positive_time_is_refused_with_what_was_given(text):
    with pytest.raises(BadInput, match="the latency budget") as caught:
        parse(text, "time", "the latency budget")
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "value", [0, -1, math.nan, math.inf, -math.inf, pytest.param(10**400, id="huge"), True, None, [5], b"5ms"]
)
def test_a_python_value_that_is_no_positive_number_is_refused(value):
    with pytest.raises(BadInput):
        parse(value, "time")


def test_a_number_without_a_unit_is_never_guessed():
    with pytest.raises(BadInput, match="has no unit"):
        parse("20", "time")
    with pytest.raises(BadInput, match="has no unit"):
        parse("20", "bytes")


@pytest.mark.parametrize("kind", ["time", "count", "bytes"])
@given(value=st.floats(1e-3, 1e12))
def test_what_is_shown_can_be_read_back_to_four_digits(kind, value):
    assert parse(show(value, kind), kind) == pytest.approx(value, rel=6e-4)


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (3.0, "time", "3 ms"),
        (0.05, "time", "50 us"),
        (12000.0, "time", "12 s"),
        (999_999.0, "count", "1 M"),
        (2e6, "count", "2 M"),
        (12.0, "count", "12"),
        (1.2e9, "bytes", "1.2 GB"),
        (12.0, "bytes", "12 B"),
    ],
)
def test_shown_in_a_fitting_unit(value, kind, text):
    assert show(value, kind) == text


def test_a_quantity_can_be_shown_in_anothers_unit():
    assert show(0.0994, "time", like=0.1) == "0.0994 ms"
    assert show(900_000, "count", like=2e6) == "0.9 M"
