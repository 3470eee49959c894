from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sartor.core.config import assign, build, check, differences, read_toml, read_toml_text, write_toml
from sartor.core.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class Example:
    needed: int
    rate: float = 0.1
    name: str = "x"
    on: bool = False
    side: int | None = None
    widths: tuple[int, ...] | None = None
    augment: Literal["none", "light"] = "none"
    more: Mapping[str, Any] = field(default_factory=dict)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALAR = st.one_of(
    TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
)
TREES = st.dictionaries(
    TEXT, st.one_of(SCALAR, st.lists(SCALAR, max_size=3), st.dictionaries(TEXT, SCALAR, max_size=3))
)


@given(TREES)
def test_toml_written_is_read_back_whatever_the_keys_and_values(tree):
    assert read_toml_text(write_toml(tree)) == tree


def test_toml_survives_quotes_newlines_scripts_and_control_characters():
    tree = {"data": "fotos/Äpfel \"süß\"\n\\n'日本'\x7f\x00", "a": {"b": {"c": [1, 2], "ключ": 1e-5}}, "none": None}
    assert read_toml_text(write_toml(tree)) == {k: v for k, v in tree.items() if k != "none"}


def test_build_makes_what_the_fields_declare():
    made = build(Example, {"needed": 3, "rate": 2, "widths": [1, 2], "side": None, "augment": "light"}, "x")
    assert made == Example(needed=3, rate=2.0, widths=(1, 2), augment="light")
    assert isinstance(made.rate, float)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"needed": "3"}, r"group\.needed must be of type int"),
        ({"needed": True}, r"group\.needed must be of type int"),
        ({"needed": 1.5}, r"group\.needed must be of type int"),
        ({"needed": 1, "rate": "fast"}, r"group\.rate must be of type float"),
        ({"needed": 1, "rate": float("nan")}, r"group\.rate must be a finite number"),
        ({"needed": 1, "name": 3}, r"group\.name must be of type str"),
        ({"needed": 1, "on": 1}, r"group\.on must be of type bool"),
        ({"needed": 1, "side": "big"}, r"group\.side must be of type int"),
        ({"needed": 1, "widths": "abcde"}, r"group\.widths must be a list"),
        ({"needed": 1, "widths": 7}, r"group\.widths must be a list"),
        ({"needed": 1, "widths": [1, "b"]}, r"group\.widths must be of type int"),
        ({"needed": 1, "augment": "heavy"}, r"group\.augment must be one of none, light"),
        ({"needed": 1, "augment": ["none"]}, r"group\.augment must be one of none, light"),
        ({"needed": 1, "more": 5}, r"group\.more must be a group of options"),
        ({"needed": 1, "epoch": 5}, r"group has no option epoch; it has needed, rate"),
        ({}, r"group needs needed"),
    ],
)
def test_wrong_options_are_refused_by_name(options, message):
    with pytest.raises(BadInput, match=message):
        build(Example, options, "group")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("a.b=4", {"a": {"b": 4}}),
        ("a.b = 4.5", {"a": {"b": 4.5}}),
        ("a=true", {"a": True}),
        ("a=[1, 2]", {"a": [1, 2]}),
        ("a=light", {"a": "light"}),
        ('a="4"', {"a": "4"}),
        ("a=x=y", {"a": "x=y"}),
        ("a=", {"a": ""}),
        ("a.b.c=Größe", {"a": {"b": {"c": "Größe"}}}),
    ],
)
def test_set_reads_toml_values_and_bare_words(setting, value):
    options: dict[str, Any] = {}
    assign(options, setting)
    assert options == value


@pytest.mark.parametrize("setting", ["", "a", "=4", "a..b=4", ".a=4", "a.=4"])
def test_set_without_a_name_or_a_value_is_refused(setting):
    with pytest.raises(BadInput, match="--set"):
        assign({}, setting)


def test_set_never_turns_a_value_into_a_group():
    with pytest.raises(BadInput, match="seed is a single value"):
        assign({"seed": 3}, "seed.x=4")


def test_set_adds_to_a_group_that_is_there():
    options: dict[str, Any] = {"method": {"passes": 2}}
    assign(options, "method.batch=8")
    assert options == {"method": {"passes": 2, "batch": 8}}


def test_differences_name_every_option_that_changed_and_nothing_else():
    old = {"seed": 0, "train": {"lr": 0.1, "epochs": 2}, "same": [1, 2], "gone": 1, "group": {"x": 1}}
    new = {"seed": 1, "train": {"lr": 0.1, "epochs": 3}, "same": (1, 2), "group": 7}
    found = differences(old, new)
    assert [f.split(":")[0] for f in found] == ["gone", "group", "seed", "train.epochs"]
    assert "seed: 0 -> 1" in found
    assert differences(old, dict(old)) == []
    assert differences({"seed": 0, "on": False}, {}) == ["on: False -> None", "seed: 0 -> None"]


@pytest.mark.parametrize("text", ["a = ", "[[[", "a = 1\na = 2", "a = " + "[" * 5000, "\x00"])
def test_what_is_not_toml_is_refused_with_the_files_name(tmp_path, text):
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=r"config\.toml"):
        read_toml(path)


def test_unreadable_files_are_refused_with_their_name(tmp_path):
    with pytest.raises(BadInput, match=r"none\.toml"):
        read_toml(tmp_path / "none.toml")
    with pytest.raises(BadInput, match=str(tmp_path)):
        read_toml(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'a = "\xff"')
    with pytest.raises(BadInput, match=r"latin\.toml"):
        read_toml(tmp_path / "latin.toml")


@dataclass(frozen=True)
class Ranged:
    epochs: int | None = 1
    share: float = 0.5


@pytest.mark.parametrize("value", [1, 7, None])
def test_options_inside_their_ranges_pass(value):
    check(Ranged(value, 1.0), epochs=">= 1", share="> 0 <= 1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Ranged(epochs=0), "method.epochs must be at least 1, but got 0."),
        (Ranged(share=0.0), "method.share must be above 0 and at most 1, but got 0.0."),
        (Ranged(share=1.5), "method.share must be above 0 and at most 1, but got 1.5."),
        (Ranged(share=float("nan")), "method.share must be above 0 and at most 1, but got nan."),
    ],
)
def test_options_outside_their_ranges_are_refused_by_name(options, message):
    with pytest.raises(BadInput) as caught:
        check(options, "method.", epochs=">= 1", share="> 0 <= 1")
    assert str(caught.value) == message
