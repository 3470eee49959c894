"""Reading people's own tables: the space, measured networks, prices. The formats are in docs/tables.md."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sartor.core.arch import Choice, active
from sartor.core.config import read_toml_text
from sartor.core.errors import BadInput
from sartor.core.quadratic import Array, Quadratic, while_active
from sartor.core.units import BYTES, COUNT, TIME
from sartor.predictors.base import Index

FORMAT = "sartor-score-1"
REPEATS = ("error", "mean")
_MOST = 1e15  # of a price: above it a sum of prices loses its ones


@dataclass(frozen=True, eq=False)
class Samples:
    """Measured networks: (n, choices) picks, inactive ones at option 0, and the target's n values."""

    picks: Index
    values: Array
    target: str

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Cost:
    """A price for every architecture, in Sartor's own unit of its `kind` (milliseconds, ones, bytes)."""

    name: str
    form: Quadratic
    kind: str
    unit: str


@dataclass(frozen=True, eq=False)
class Score:
    """A fitted score and how it came about.

    Where it was fitted to the target's ranks, `scale` holds the increasing function that takes the
    score to the target's own unit: knots, and values at them.
    """

    form: Quadratic
    target: str
    unit: str
    facts: dict[str, Any]
    scale: tuple[Array, Array] | None = None

    def values(self, picks: Index) -> Array:
        """Predictions in the target's own unit."""
        score = self.form.batch(picks)
        return score if self.scale is None else np.interp(score, *self.scale)


def read_space(path: Path) -> tuple[Choice, ...]:
    """The choices of ``space.toml``."""
    try:
        data = read_toml_text(_text(path))
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    return choices_from(data, str(path))


def choices_from(data: Mapping[str, Any], where: str = "the space") -> tuple[Choice, ...]:
    """Choices from ``{"choices": [{"name", "options", "active_when"}, ...]}``."""
    rows = data.get("choices")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, Mapping) for row in rows):
        raise BadInput(f"{where} must list its choices as [[choices]] tables with name and options.")
    read: dict[str, tuple[str, ...]] = {}
    for n, row in enumerate(rows):
        name, options = row.get("name"), row.get("options")
        unknown = sorted(set(row) - {"name", "options", "active_when"})
        if unknown:
            raise BadInput(
                f"{where}: choice {n + 1} has no field {unknown[0]!r}; it has name, options and active_when."
            )
        if not isinstance(name, str) or not name or name in read:
            raise BadInput(f"{where}: choice {n + 1} must have a name of its own, but has {name!r}.")
        if not isinstance(options, list) or not options or not all(isinstance(o, (str, int, float)) for o in options):
            raise BadInput(f"{where}: {name} must list its options, but has {options!r}.")
        read[name] = tuple(str(o) for o in options)
        if len(set(read[name])) < len(options) or "" in read[name]:
            raise BadInput(f"{where}: the options of {name} must be different and not empty, but are {options}.")
    names = list(read)
    return tuple(
        Choice(name, read[name], _needs(row.get("active_when", {}), name, names, read, where))
        for name, row in zip(names, rows, strict=True)
    )


def _needs(
    rule: Any, name: str, names: list[str], read: Mapping[str, tuple[str, ...]], where: str
) -> tuple[tuple[int, tuple[int, ...]], ...]:
    if not isinstance(rule, Mapping):
        raise BadInput(f'{where}: active_when of {name} must be {{"choice" = ["option", ...]}}, but is {rule!r}.')
    needs = []
    for other, labels in rule.items():
        if other not in read or other == name:
            raise BadInput(f"{where}: {name} is active when {other!r}, which is no other choice of the space.")
        if not isinstance(labels, list) or not labels:
            raise BadInput(f"{where}: active_when of {name} must list options of {other}, but has {labels!r}.")
        wrong = [str(x) for x in labels if str(x) not in read[other]]
        if wrong:
            raise BadInput(f"{where}: {other} has no option {wrong[0]!r} for {name} to need; {_among(read[other])}.")
        needs.append((names.index(other), tuple(sorted({read[other].index(str(x)) for x in labels}))))
    return tuple(needs)


def read_samples(path: Path, choices: Sequence[Choice], target: str, repeats: str = "error") -> Samples:
    """Measured networks from a CSV file (``.gz`` too): a column per choice, empty where inactive, and target columns.

    The same network with the same value counts once. With another value it is a contradiction, or,
    with ``repeats="mean"``, a repeated measurement that is averaged.
    """
    if repeats not in REPEATS:
        raise BadInput(f"repeats must be {' or '.join(REPEATS)}, but is {repeats!r}.")
    header, lines = _rows(path)
    missing = [c.name for c in choices if c.name not in header]
    if missing:
        raise BadInput(f"{path} must have a column for every choice, but lacks {', '.join(missing)}.")
    if target not in header:
        others = [h for h in header if h not in {c.name for c in choices}]
        raise BadInput(f"{path} has no target column {target!r}; besides the choices it has {_list(others)}.")
    found: dict[tuple[int, ...], list[tuple[int, float]]] = {}
    for line, row in lines:
        picks = _picks(row, choices, f"{path}, line {line}")
        found.setdefault(picks, []).append((line, _value(row[target], target, f"{path}, line {line}")))
    values = []
    for rows in found.values():
        (first, value), *_ = rows
        clash = next(((line, v) for line, v in rows if v != value), None)
        if clash and repeats != "mean":
            raise BadInput(
                f"{path}: lines {first} and {clash[0]} are the same network, but {target} is {value:g} in one and "
                f"{clash[1]:g} in the other. Remove one, or average repeated measurements (--repeats mean)."
            )
        values.append(float(np.mean([v for _, v in rows])) if clash else value)
    picks_array = np.array(list(found), np.int64).reshape(len(found), len(choices))
    return Samples(picks_array, np.array(values), target)


def _rows(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    """The columns' names, and every row with its line; an empty line is none."""
    reader = csv.reader(io.StringIO(_text(path)))
    try:
        header, rows = next(reader, []), [(reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise BadInput(f"{path}, line {reader.line_num}: this is no CSV: {error}.") from error
    twice = [name for n, name in enumerate(header) if name in header[:n]]
    if twice:
        raise BadInput(f"{path} must have every column once, but has {twice[0]!r} twice. Remove one of them.")
    for line, cells in rows:
        if len(cells) != len(header):
            raise BadInput(f"{path}, line {line} must have {len(header)} cells as the first, but has {len(cells)}.")
    return header, [(line, dict(zip(header, cells, strict=True))) for line, cells in rows]


def _picks(row: Mapping[str, str], choices: Sequence[Choice], where: str) -> tuple[int, ...]:
    labels = [row[c.name].strip() for c in choices]
    picks = []
    for choice, label in zip(choices, labels, strict=True):
        if label and label not in choice.options:
            raise BadInput(f"{where}: {choice.name} has no option {label!r}; {_among(choice.options)}.")
        picks.append(choice.options.index(label) if label else 0)
    for choice, label in zip(choices, labels, strict=True):
        runs = active(choice, picks)
        because = ", ".join(f"{choices[o].name} = {labels[o] or 'nothing'}" for o, _ in choice.needs)
        if runs and not label:
            raise BadInput(f"{where}: {choice.name} is empty, but {f'active with {because}' if because else 'needed'}.")
        if label and not runs:
            raise BadInput(f"{where}: {choice.name} is {label!r}, but inactive with {because}: leave it empty.")
    return tuple(picks)


def _value(text: str, name: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f"{where}: {name} must be a number, but is {text!r}.")
    return value


def read_cost(path: Path, choices: Sequence[Choice], name: str) -> Cost:
    """Prices from a JSON file: a number per option, or a pair of options; or a score that was fitted to a cost."""
    data = _json(path)
    if data.get("format") == FORMAT:
        score = read_score(path, choices)
        if score.scale is not None:
            raise BadInput(f"{path} was fitted to ranks and cannot be a cost: fit it again with --scale value.")
        kind, scale = _kind(score.unit, f"{path}: unit")
        return Cost(name, score.form * scale, kind, score.unit)
    return cost_from(data, choices, name, str(path))


def cost_from(data: Mapping[str, Any], choices: Sequence[Choice], name: str, where: str = "the cost") -> Cost:
    """A cost from ``{"unit", "constant", "options": {choice: {option: price}}, "pairs": [...]}``."""
    unknown = sorted(set(data) - {"name", "unit", "constant", "options", "pairs"})
    if unknown:
        raise BadInput(f"{where} has no field {unknown[0]!r}; it has unit, constant, options and pairs.")
    kind, scale = _kind(str(data.get("unit", "")), f"{where}: unit")
    names = [c.name for c in choices]
    sizes = tuple(len(c.options) for c in choices)
    form = Quadratic(sizes, _number(data.get("constant", 0.0), f"{where}: constant"))
    for choice, prices in _mapping(data.get("options", {}), f"{where}: options").items():
        i = _known(choice, names, where)
        vector = np.array([_number(p, f"{where}: {choice}") for p in _complete(prices, choices[i], where)])
        form = form + while_active(choices, {i: vector})
    pairs = data.get("pairs", [])
    if not isinstance(pairs, list):
        raise BadInput(f"{where}: pairs must be a list of tables, but is {pairs!r}.")
    for n, pair in enumerate(pairs):
        form = form + _pair(_mapping(pair, f"{where}: pair {n + 1}"), choices, names, f"{where}: pair {n + 1}")
    return Cost(name, form * scale, kind, str(data.get("unit", "")))


def _pair(pair: Mapping[str, Any], choices: Sequence[Choice], names: list[str], where: str) -> Quadratic:
    both = pair.get("choices")
    if not isinstance(both, list) or len(both) != 2 or both[0] == both[1]:
        raise BadInput(f"{where} must name two choices, but has {both!r}.")
    i, j = (_known(name, names, where) for name in both)
    rows = _mapping(pair.get("table"), f"{where}: table")
    table = np.zeros((len(choices[i].options), len(choices[j].options)))
    for a, label in enumerate(choices[i].options):
        runs = all(o != i or a in allowed for o, allowed in choices[j].needs)
        if label not in rows and runs:
            raise BadInput(f"{where}: {names[i]} has options without a price: {label}.")
        if label in rows:
            line = _complete(rows[label], choices[j], where)
            if runs:
                table[a] = [_number(p, f"{where}: {label}") for p in line]
    for label in rows:
        if label not in choices[i].options:
            raise BadInput(f"{where}: {names[i]} has no option {label!r}; {_among(choices[i].options)}.")
    return Quadratic(tuple(len(c.options) for c in choices), 0.0, {}, {(i, j): table})


def _complete(prices: Any, choice: Choice, where: str) -> list[Any]:
    table = _mapping(prices, f"{where}: {choice.name}")
    wrong = [label for label in table if label not in choice.options]
    if wrong:
        raise BadInput(f"{where}: {choice.name} has no option {wrong[0]!r}; {_among(choice.options)}.")
    missing = [label for label in choice.options if label not in table]
    if missing:
        raise BadInput(f"{where}: {choice.name} has options without a price: {', '.join(missing)}.")
    return [table[label] for label in choice.options]


def _kind(unit: str, where: str) -> tuple[str, float]:
    """The kind of a unit and its factor into Sartor's own: ms, ones or bytes."""
    for kind in (TIME, BYTES, COUNT):
        if unit in kind.scales:
            return kind.name, kind.scales[unit]
    raise BadInput(f"{where} must be one of {units()}, or empty for plain counts, but is {unit!r}.")


def units() -> str:
    """Every unit that a cost may have."""
    return ", ".join([*TIME.scales, *BYTES.scales, *(u for u in COUNT.scales if u and u not in BYTES.scales)])


def is_unit(unit: str) -> bool:
    """Whether a target with this unit is a cost."""
    return unit != "" and any(unit in kind.scales for kind in (TIME, BYTES, COUNT))


def write_score(path: Path, score: Score, choices: Sequence[Choice]) -> None:
    """Write a score with the space it is for."""
    from sartor.runs.directory import write_json

    write_json(path, score_json(score, choices))


def score_json(score: Score, choices: Sequence[Choice]) -> dict[str, Any]:
    """What ``score.json`` holds."""
    return {
        "format": FORMAT,
        "target": score.target,
        "unit": score.unit,
        "choices": [[c.name, list(c.options)] for c in choices],
        **score.facts,
        "scale": None if score.scale is None else [knots.tolist() for knots in score.scale],
        "quadratic": score.form.to_json(),
    }


def read_score(path: Path, choices: Sequence[Choice]) -> Score:
    """Read a score back; its choices must be the space's own."""
    data = _json(path)
    if data.get("format") != FORMAT or "quadratic" not in data:
        raise BadInput(f"{path} must be a score written by `sartor tables fit`.")
    if data.get("choices") != [[c.name, list(c.options)] for c in choices]:
        raise BadInput(f"{path} was fitted for another space: its choices or options differ.")
    try:
        form = Quadratic.from_json(data["quadratic"])
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    if form.sizes != tuple(len(c.options) for c in choices):
        raise BadInput(f"{path} is damaged: its score is not of its own choices. Fit it again.")
    own = ("format", "target", "unit", "choices", "scale", "quadratic")
    facts = {k: v for k, v in data.items() if k not in own}
    scale = None if data.get("scale") is None else _scale(data["scale"], path)
    return Score(form, str(data.get("target", "")), str(data.get("unit", "")), facts, scale)


def _scale(data: Any, path: Path) -> tuple[Array, Array]:
    """Knots of the score, none below the one before, and the target's value at each."""
    try:
        knots, values = (np.asarray(x, np.float64).reshape(-1) for x in data)
        if len(knots) == len(values) > 0 and np.isfinite([knots, values]).all() and (np.diff(knots) >= 0).all():
            return knots, values
    except (TypeError, ValueError):
        pass
    raise BadInput(f"{path} is damaged: scale must be two equally long lists of numbers, the first rising.")


def _text(path: Path) -> str:
    try:
        raw = Path(path).read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path} must be a readable file, but {error.strerror or error}.") from error
    except (UnicodeDecodeError, EOFError, zlib.error) as error:
        raise BadInput(f"{path} must be text in UTF-8, or such text compressed by gzip: {error}.") from error


def _json(path: Path) -> Mapping[str, Any]:
    try:
        return _mapping(json.loads(_text(path)), str(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} is not valid JSON: {error}.") from error


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadInput(f"{where} must be a JSON object, but is {value!r}.")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -_MOST <= value <= _MOST:
        raise BadInput(f"{where} must be a number in the file's unit, at most {_MOST:g}, but is {value!r}.")
    return float(value)


def _known(name: Any, names: Sequence[str], where: str) -> int:
    if name not in names:
        raise BadInput(f"{where} prices {name!r}, which is no choice of the space; it has {_list(names)}.")
    return list(names).index(name)


def _among(options: Sequence[str]) -> str:
    return f"it has {_list(options)}"


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(names[:12])
    return (f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown) or "none"
