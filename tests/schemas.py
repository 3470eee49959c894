"""The types of a run's files: all of them, some value of each, and the keys that must be there."""

import dataclasses
import types
import typing
from collections.abc import Mapping

import numpy as np

from sartor.core.quadratic import Quadratic
from sartor.core.units import TIME, Kind
from sartor.runs import schema

FILES = list(schema.FILES.values())


def example(hint):
    """Some value of a type: lists of three, as the number 3 says where it counts their entries."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return example(args[0])
    if origin is typing.Literal:
        return args[0]
    if origin is tuple:
        return tuple(example(a) for a in (args[:1] * 3 if args[-1] is Ellipsis else args))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"key": example(args[1])}
    if hint is Kind:
        return TIME
    if hint is Quadratic:
        return Quadratic((2, 2), 1.0, {0: np.array([0.1, 0.2])})
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: example(hints[f.name]) for f in dataclasses.fields(hint)})
    return {int: 3, float: 0.1, str: "ä", bool: True}.get(hint, 1)


def required(kind, data, path=()):
    """The way to every key that must be there, by the type's own fields."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        key, hint = field.name.rstrip("_"), hints[field.name]
        if field.default is field.default_factory is dataclasses.MISSING:
            yield (*path, key)
        inner = [
            a for a in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(a) and a not in (Kind, Quadratic)
        ]
        value = data.get(key)
        if not inner or not value:
            continue
        if isinstance(value, list):
            yield from required(inner[0], value[0], (*path, key, 0))
        elif isinstance(typing.get_origin(hint), type) and issubclass(typing.get_origin(hint), Mapping):
            first = next(iter(value))
            yield from required(inner[0], value[first], (*path, key, first))
        else:
            yield from required(inner[0], value, (*path, key))
