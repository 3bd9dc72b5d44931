"""Dataclasses from the JSON that `asdict` makes of them."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_json(kind: type[T], data: object) -> T:
    """`data` as a `kind`: a dataclass of numbers, texts, tuples and such dataclasses. Errors: ValueError, with what is wrong."""
    if not isinstance(data, dict) or not is_dataclass(kind):
        raise ValueError(f"{kind.__name__} is written as an object")
    hints = get_type_hints(kind)
    unknown = data.keys() - hints.keys()
    if unknown:
        raise ValueError(f"{kind.__name__} has no {', '.join(map(repr, sorted(map(str, unknown))))}")
    missing = [f.name for f in fields(kind) if f.name not in data]
    if missing:
        raise ValueError(f"{kind.__name__} lacks {', '.join(missing)}")
    return kind(**{name: _value(hints[name], value, name) for name, value in data.items()})


def _value(kind: Any, value: object, where: str) -> object:
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ValueError(f"{where} is written as a list")
        first, *rest = get_args(kind)
        if rest == [...]:
            return tuple(_value(first, item, where) for item in value)
        if len(value) != 1 + len(rest):
            raise ValueError(f"{where} has {len(value)} entries of {1 + len(rest)}")
        return tuple(_value(k, item, where) for k, item in zip((first, *rest), value, strict=True))
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        return _value(next(k for k in get_args(kind) if k is not types.NoneType), value, where)
    if is_dataclass(kind):
        return from_json(kind, value)  # pyright: ignore[reportArgumentType]
    if kind is float and type(value) in (int, float):
        return _finite(value, where)  # pyright: ignore[reportArgumentType]
    if type(value) is not kind:
        raise ValueError(f"{where} is no {kind.__name__}")
    return value


def _finite(value: float, where: str) -> float:
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError(f"{where} is not finite") from error
    if not isfinite(number):
        raise ValueError(f"{where} is not finite")
    return number
