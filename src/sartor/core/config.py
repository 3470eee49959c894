"""Options as frozen dataclasses, read from and written to TOML."""

from __future__ import annotations

import dataclasses
import json
import math
import operator
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sartor.core.errors import BadInput, nearest


def build(cls: Any, options: Mapping[str, Any], where: str) -> Any:
    """An instance of `cls`, whose options are its fields if it is a dataclass; unknown names and types are refused."""
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init} if dataclasses.is_dataclass(cls) else {}
    unknown = sorted(set(options) - set(fields))
    if unknown:
        near = nearest(unknown[0], fields)
        known = f"it has {', '.join(fields)}" if fields else "it takes no options"
        raise BadInput(f"{where} has no option {', '.join(unknown)}{near}; {known}.")
    default = dataclasses.MISSING
    missing = [n for n, f in fields.items() if n not in options and f.default is f.default_factory is default]
    if missing:
        raise BadInput(f"{where} needs {', '.join(missing)}.")
    hints = typing.get_type_hints(cls)
    return cls(**{name: _fit(value, hints[name], f"{where}.{name}") for name, value in options.items()})


_RANGES = {
    ">=": (operator.ge, "at least"),
    ">": (operator.gt, "above"),
    "<=": (operator.le, "at most"),
    "<": (operator.lt, "below"),
}


def check(options: object, where: str = "", **ranges: str) -> None:
    """Refuse an option outside its range: ``check(self, "method.", epochs=">= 1", share="> 0 <= 1")``; None may be."""
    for name, wanted in ranges.items():
        value, words = getattr(options, name), wanted.split()
        bounds = list(zip(words[::2], words[1::2], strict=True))
        if value is not None and not all(_RANGES[sign][0](value, float(bound)) for sign, bound in bounds):
            text = " and ".join(f"{_RANGES[sign][1]} {bound}" for sign, bound in bounds)
            raise BadInput(f"{where}{name} must be {text}, but got {value}.")


def fields_of(thing: Any) -> dict[str, Any]:
    """The options of a dataclass's instance, as `build` takes them; of anything else there are none."""
    if not dataclasses.is_dataclass(thing):
        return {}
    return {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing) if f.init}


def _fit(value: Any, hint: Any, where: str) -> Any:
    """The value in the type that the field declares, or an error that names the field."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        return _fit(value, next(a for a in args if a is not type(None)), where)
    if origin is tuple:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise BadInput(f"{where} must be a list, such as [1, 2], but got {value!r}.")
        return tuple(_fit(v, args[0], where) for v in value)
    if origin is Mapping and not isinstance(value, Mapping):
        raise BadInput(f"{where} must be a group of options, but got {value!r}.")
    if origin is typing.Literal:
        if value not in args:
            near = nearest(str(value), map(str, args))
            raise BadInput(f"{where} must be one of {', '.join(map(str, args))}, but got {value!r}{near}.")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint in (int, float, str, bool):
        if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
            raise BadInput(f"{where} must be of type {hint.__name__}, but got {value!r}.")
        if isinstance(value, float) and not math.isfinite(value):
            raise BadInput(f"{where} must be a finite number, but got {value!r}.")
    return value


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as nested dictionaries."""
    try:
        return read_toml_text(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path} must be a readable TOML file, but {error.strerror}.") from error
    except (BadInput, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error


def read_toml_text(text: str) -> dict[str, Any]:
    """TOML text as nested dictionaries."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"this is not valid TOML: {error}.") from error


def write_toml(data: Mapping[str, Any]) -> str:
    """Nested dictionaries of plain values as TOML; None is left out. JSON strings and lists are valid TOML."""
    lines: list[str] = []

    def table(values: Mapping[str, Any], name: str) -> None:
        plain = {k: v for k, v in values.items() if not isinstance(v, Mapping) and v is not None}
        if name and (plain or not values):
            lines.append(f"\n[{name}]")
        for key, value in plain.items():
            lines.append(f"{_key(key)} = {_literal(value)}")
        for key, value in values.items():
            if isinstance(value, Mapping):
                table(value, f"{name}.{_key(key)}" if name else _key(key))

    table(data, "")
    return "\n".join(lines).strip() + "\n"


def _literal(value: Any) -> str:
    """A value as JSON writes it, but for the one control character that TOML wants escaped and JSON does not."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    """A bare key where TOML allows it, else a quoted one."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _literal(name)


def assign(options: dict[str, Any], setting: str) -> None:
    """Apply one ``a.b=c`` of the command line; the right side is TOML, or a bare word."""
    path, equals, text = setting.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise BadInput(f"--set takes name=value, such as method.epochs=20, but got {setting!r}.")
    try:
        value: Any = tomllib.loads(f"v = {text}")["v"]
    except (tomllib.TOMLDecodeError, RecursionError):
        value = text.strip()
    for key in keys[:-1]:
        options = options.setdefault(key, {})
        if not isinstance(options, dict):
            raise BadInput(f"--set {path}: {key} is a single value, not a group of options.")
    options[keys[-1]] = value


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two configurations, each as ``name: old -> new``."""
    found: list[str] = []
    for key in sorted(set(old) | set(new)):
        a, b = old.get(key), new.get(key)
        if all(v is None or isinstance(v, Mapping) for v in (a, b)):
            found += differences(a or {}, b or {}, f"{prefix}{key}.")
        elif _plain(a) != _plain(b):
            found.append(f"{prefix}{key}: {a!r} -> {b!r}")
    return found


def _plain(value: Any) -> Any:
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value
