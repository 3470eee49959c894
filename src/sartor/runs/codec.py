"""Dataclasses as plain JSON and back: one reader and one writer for every file of a run.

A field without a default is always written and must be there; a field whose default is None is left out while it is
None. `rest()` marks the field that takes every key which no other field has. What knows how to write itself
(`to_json`, `from_json`) does. A trailing underscore is not part of a key, so that `in_` may be ``in``.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from sartor.core.errors import BadInput, RunError

T = TypeVar("T")


class RunFile:
    """A dataclass that is a file of a run: its name there, and the number of its format (files without one have 1)."""

    NAME: ClassVar[str]
    FORMAT: ClassVar[int] = 2


def rest() -> Any:
    """A field for all keys that no other field has."""
    return dataclasses.field(default_factory=dict, metadata={"rest": True})


def formerly(*names: str) -> Any:
    """A field that had other names in older formats, or has them where another room writes it."""
    return dataclasses.field(metadata={"formerly": names})


def encode(value: Any) -> Any:
    """Plain lists, dictionaries and numbers."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        data: dict[str, Any] = {}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if field.metadata.get("rest"):
                data |= encode(item)
            elif item is not None or field.default is not None:
                data[field.name.rstrip("_")] = encode(item)
        return data
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    return [encode(v) for v in value] if isinstance(value, (list, tuple)) else value


def decode(kind: type[T], data: Any, where: str) -> T:
    """An instance of `kind`; a field that is missing or of another type is refused by name, after `where`."""
    return typing.cast(T, _decode(kind, data, where))


def to_file(value: Any) -> dict[str, Any]:
    """The contents of a file, with the number of its format."""
    return {"format": getattr(value, "FORMAT", RunFile.FORMAT), **encode(value)}


def from_file(kind: type[T], data: Any, path: Path) -> T:
    """What the file at `path` holds; a format of a newer Sartor is refused."""
    known = getattr(kind, "FORMAT", RunFile.FORMAT)
    if isinstance(data, dict) and "format" in data:
        data = dict(data)
        number = _decode(int, data.pop("format"), f"{path}: format")
        if number > known:
            raise RunError(f"{path} has format {number}; this Sartor reads up to {known}. Install a newer Sartor.")
    return decode(kind, data, f"{path}: ")


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(hint: Any, data: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or hint is object:
        return data
    if origin is typing.Literal:
        if data not in args:
            raise _wrong(where, f"one of {', '.join(map(repr, args))}", data)
        return data
    if origin in (typing.Union, types.UnionType):
        return _union(args, data, where)
    if origin is tuple:
        return _tuple(args, data, where)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise _wrong(where, "a JSON object", data)
        return {k: _decode(args[1], v, _below(where, k)) for k, v in data.items()}
    if hasattr(hint, "from_json"):
        try:
            return hint.from_json(data)
        except RunError:
            raise
        except BadInput as error:
            raise RunError(f"{where.rstrip(': ')}: {error}") from error
    if dataclasses.is_dataclass(hint):
        variant = getattr(hint, "variant", None)  # one class of several, which the data name
        return _instance(variant(data) if variant and isinstance(data, Mapping) else hint, data, where)
    return _plain(hint, data, where)


def _plain(hint: type, data: Any, where: str) -> Any:
    if hint is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        data = float(data)  # numpy's are floats of another class
    if type(data) is not hint:
        raise _wrong(where, {str: "text", int: "a whole number", bool: "true or false"}.get(hint, "a number"), data)
    if isinstance(data, float) and not math.isfinite(data):
        raise _wrong(where, "a finite number", data)
    return data


def _union(args: tuple[Any, ...], data: Any, where: str) -> Any:
    """None, or the first of the types that takes the value."""
    if data is None and type(None) in args:
        return None
    kinds = [a for a in args if a is not type(None)]
    for kind in kinds[:-1]:
        try:
            return _decode(kind, data, where)
        except RunError:
            continue
    return _decode(kinds[-1], data, where)


def _tuple(args: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    """Any number of one kind (``tuple[int, ...]``), or as many as the type lists."""
    if not isinstance(data, (list, tuple)):
        raise _wrong(where, "a list", data)
    if args[-1] is not Ellipsis:
        if len(args) != len(data):
            raise _wrong(where, f"a list of {len(args)}", data)
        return tuple(_decode(a, v, _below(where, n)) for n, (a, v) in enumerate(zip(args, data, strict=True)))
    if args[0] in (int, str) and all(type(v) is args[0] for v in data):  # thousands of indices, at once
        return tuple(data)
    return tuple(_decode(args[0], v, _below(where, n)) for n, v in enumerate(data))


def _instance(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise _wrong(where, "a JSON object", data)
    hints, values, left = _hints(kind), {}, dict(data)
    fields = [f for f in dataclasses.fields(kind) if f.init]
    for field in fields:
        keys = (field.name.rstrip("_"), *field.metadata.get("formerly", ()))
        key = next((k for k in keys if k in left), None)
        if key is not None and not field.metadata.get("rest"):
            values[field.name] = _decode(hints[field.name], left.pop(key), _below(where, key))
    for field in fields:
        if field.metadata.get("rest"):
            values[field.name] = _decode(hints[field.name], left, where)
        elif field.name not in values and field.default is field.default_factory is dataclasses.MISSING:
            raise RunError(f"{_below(where, field.name.rstrip('_'))} is missing. {_DAMAGED}")
    try:
        return kind(**values)
    except RunError:
        raise
    except BadInput as error:  # a type that checks its own values
        raise RunError(f"{where.removesuffix(': ')}: {error} {_DAMAGED}") from error


def _below(where: str, key: object) -> str:
    return f"{where}{key}" if where.endswith(": ") else f"{where}.{key}"


def _wrong(where: str, wanted: str, given: Any) -> RunError:
    text = repr(given)
    text = text if len(text) <= 60 else f"{text[:60]}..."
    return RunError(f"{where.removesuffix(': ')} must be {wanted}, but is {text}. {_DAMAGED}")


_DAMAGED = "Restore the file, or run the same command again in a new folder."
