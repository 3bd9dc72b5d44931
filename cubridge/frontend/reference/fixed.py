"""What a reading takes as fixed of what a reference keeps: numbers, strings, flags, functions and None that its code names, how
much its lists hold, and which of its places hold one tensor. A call asks whether it is still so."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Hashable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any, Final

import numpy as np
from torch import Tensor, nn

from cubridge.frontend.reference.reach import NUMBERS, Reached, Route, Step, asked_in_vain, follow, reachable


@dataclass(frozen=True, slots=True)
class FixedValue:
    """A Python value at a place; of a list, its numbers or its length. `path`: as the user's code writes it."""

    root: object
    route: Route
    path: str
    value: object

    def holds(self) -> bool:
        now = _at(self.root, self.route)
        return now is self.value or self._equals(_comparable(now))

    def _equals(self, now: object) -> bool:
        if isinstance(now, np.ndarray) or isinstance(self.value, np.ndarray):
            return np.array_equal(now, self.value)  # pyright: ignore[reportArgumentType]
        return type(now) is type(self.value) and now == self.value

    def now(self) -> object:
        """What is there, to be told from other values by `==` or `is`."""
        return _comparable(_at(self.root, self.route))

    def key(self) -> object:
        """What is there, as a part of a dictionary's key; of what cannot be one, its type."""
        found = self.now()
        return (type(found), found) if isinstance(found, Hashable) else type(found)

    def change(self) -> str:
        there, now = _at(self.root, self.route), self.now()
        if isinstance(there, _CONTAINERS) and isinstance(now, int):
            return f"`{self.path}` holds {now} elements, and held {_text(self.value)}"
        if type(now) is type(self.value) and not isinstance(now, PLAIN):
            return (
                f"`{self.path}` is another {type(now).__name__}, and was `{getattr(self.value, '__name__', self.path)}`"
            )
        return f"`{self.path}` is {_text(now)}, and was {_text(self.value)}"


@dataclass(frozen=True, slots=True)
class OneTensor:
    """Two places of one tensor, of which a recording knows the first."""

    root: object
    first: Route
    route: Route
    path: str
    first_path: str

    def holds(self) -> bool:
        return _at(self.root, self.route) is _at(self.root, self.first)

    def now(self) -> object:
        return _at(self.root, self.route)

    def change(self) -> str:
        return f"`{self.path}` is another tensor than `{self.first_path}`, and was the same"


Fixed = FixedValue | OneTensor
PLAIN: Final = (*NUMBERS, tuple)
"""What is compared by its value."""
_ABSENT: Final = "nothing"


def _at(root: object, route: Route) -> object:
    try:
        return follow(root, route)
    except (AttributeError, LookupError, TypeError):
        return _ABSENT


def _comparable(value: object) -> object:
    """What is compared of a value: itself, the numbers of a list, or how many elements it has."""
    if isinstance(value, (list, tuple, deque)):
        items: tuple[Any, ...] = tuple(value)
        return items if all(isinstance(x, NUMBERS) for x in items) else len(items)
    if isinstance(value, _CONTAINERS):
        return len(value)  # pyright: ignore[reportUnknownArgumentType]
    return value


def fixed_values(function: object) -> Iterator[Fixed]:
    """What a run of `function` may read and a recording takes as it is."""
    first: dict[int, Reached] = {}
    whole: set[int] = set()
    for found in reachable(function, every_way=True):
        value = found.value
        for name in asked_in_vain(found) if found.named else ():
            yield FixedValue(
                function, (*found.route, Step("attribute", name)), f"{found.label or 'self'}.{name}", _ABSENT
            )
        if isinstance(value, Tensor) and (known := first.setdefault(id(value), found)) is not found:
            if found.named:
                yield OneTensor(function, known.route, found.route, found.label, known.label)
        elif is_read(found) and _is_fixed(found):
            if len(found.route) > 1 and id(_at(function, found.route[:-1])) in whole:
                continue  # compared with its list
            if isinstance(value, (list, tuple, deque)):
                whole.add(id(value))  # pyright: ignore[reportUnknownArgumentType]
            fixed = FixedValue(function, found.route, found.label, _comparable(value))
            if fixed.holds():  # else no call could find it again
                yield fixed


_CONTAINERS: Final = (
    dict, list, tuple, deque, nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList, nn.ParameterDict,
)  # fmt: skip


def _is_fixed(found: Reached) -> bool:
    """Functions where they are variables; the methods of a class are not looked at again."""
    match found.value:
        case np.ndarray():
            return not found.value.flags.writeable
        case FunctionType() | BuiltinFunctionType():
            return found.route[-1].key not in ("__func__", "__wrapped__", "func", "fget")
        case value:
            return isinstance(value, (*NUMBERS, *_CONTAINERS))


def _text(value: object) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, PLAIN):
        return repr(value) if len(repr(value)) < 40 else f"{repr(value)[:36]}.."
    return f"of type {type(value).__name__}"


def is_read(found: Reached) -> bool:
    """Does the code of the reference name it?"""
    return bool(found.route) and found.named and not found.label.rpartition(".")[2].startswith("__")


def fixed_numbers(function: object, given: Container[str]) -> dict[str, str]:
    """Numbers, strings and flags that a run of `function` may read, as text by the words of its code. `given`: arguments that
    the caller gives."""
    found: dict[str, str] = {}
    for reached in reachable(function):
        if is_read(reached) and reached.label not in given:
            text = _number_text(reached.value)
            if text:
                found.setdefault(reached.label, text)
    return found


def _number_text(value: object) -> str:
    if isinstance(value, (bool, int, float, str)):
        return repr(value) if len(repr(value)) < 40 else f"{repr(value)[:36]}.."
    if isinstance(value, (list, tuple)) and value and all(isinstance(x, (bool, int, float)) for x in value):
        return f"{len(value)} numbers" if len(repr(value)) > 40 else repr(value)
    if isinstance(value, np.ndarray):
        return f"as it is copied: {value.dtype} {list(value.shape)}"
    return ""
