"""What a reading takes as fixed of what a reference keeps: numbers, strings, flags, functions, classes and None that its code
names, how much its lists hold, what its arrays and sets hold, what was asked of its tensors, and which of its places hold one
tensor. A call asks whether it is still so."""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Callable, Container, Hashable, Iterator
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MappingProxyType, ModuleType
from typing import Any, Final

import numpy as np
from torch import Tensor, nn

from cubridge.frontend.reference.reach import NUMBERS, Reached, Route, Step, asked_in_vain, follow, names_in, reachable


@dataclass(frozen=True, slots=True)
class Elements:
    """What an array holds, as it can be compared."""

    kind: str
    data: bytes


@dataclass(frozen=True, slots=True)
class FixedValue:
    """A Python value at a place; of a list, its numbers or its length; of an array, its elements. `path`: as the user's code
    writes it."""

    root: object
    route: Route
    path: str
    value: object

    def holds(self) -> bool:
        now = _at(self.root, self.route)
        return now is self.value or is_same(_comparable(now), self.value)

    def now(self) -> object:
        """What is there, to be told from other values by `==` or `is`."""
        return _comparable(_at(self.root, self.route))

    def key(self) -> object:
        """What is there, as a part of a dictionary's key; of what cannot be one, and of an array, its type."""
        if isinstance(self.value, Elements):
            return Elements
        found = self.now()
        return (type(found), found) if isinstance(found, Hashable) else type(found)

    def change(self) -> str:
        there, now = _at(self.root, self.route), self.now()
        if isinstance(there, _CONTAINERS) and isinstance(now, int):
            return f"`{self.path}` holds {now} elements, and held {_text(self.value)}"
        if isinstance(self.value, Elements) and isinstance(now, Elements):
            return f"`{self.path}` holds other elements, {now.kind}, than {self.value.kind}"
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


@dataclass(frozen=True, slots=True)
class FixedAnswer:
    """What a tensor at a place says of itself, as its shape. `path`: with what it was asked."""

    root: object
    route: Route
    path: str
    ask: Callable[[Tensor], object]
    value: object

    def holds(self) -> bool:
        return is_same(self.now(), self.value)

    def now(self) -> object:
        found = _at(self.root, self.route)
        return self.ask(found) if isinstance(found, Tensor) else _ABSENT

    def change(self) -> str:
        return f"`{self.path}` is {_text(self.now())}, and was {_text(self.value)}"


Fixed = FixedValue | OneTensor | FixedAnswer
PLAIN: Final = (*NUMBERS, tuple, frozenset, Elements)
"""What is compared by its value."""
_ABSENT: Final = "nothing"


def _at(root: object, route: Route) -> object:
    try:
        return follow(root, route)
    except (AttributeError, LookupError, TypeError):
        return _ABSENT


def is_same(one: object, other: object) -> bool:
    """Equal, and of one type."""
    return one is other or (type(one) is type(other) and bool(one == other))


def _comparable(value: object) -> object:
    """What is compared of a value: itself, the numbers of a list or of a set, how many elements it has, or what it holds."""
    if isinstance(value, (np.ndarray, array, bytearray)):
        return _elements(value)
    if isinstance(value, (set, frozenset)):
        members: frozenset[Any] = frozenset(value)  # pyright: ignore[reportUnknownArgumentType]
        return members if all(isinstance(x, NUMBERS) for x in members) else len(members)
    if isinstance(value, (list, tuple, deque)):
        items: tuple[Any, ...] = tuple(value)
        return items if all(isinstance(x, NUMBERS) for x in items) else len(items)
    if value is os.environ:
        return frozenset(os.environ.items())
    if isinstance(value, _CONTAINERS):
        return len(value)  # pyright: ignore[reportUnknownArgumentType]
    return value


def _elements(value: np.ndarray[Any, Any] | array[Any] | bytearray) -> object:
    """Of an array of objects, how many there are."""
    match value:
        case np.ndarray():
            kind = f"{value.dtype} {list(value.shape)}"
            return value.size if value.dtype.hasobject else Elements(kind, value.tobytes())
        case bytearray():
            return Elements(f"{len(value)} bytes", bytes(value))
        case array():
            return Elements(f"{value.typecode} [{len(value)}]", value.tobytes())


def fixed_values(function: object) -> Iterator[Fixed]:
    """What a run of `function` may read and a recording takes as it is."""
    yield from _surroundings(function, names_in(function))
    first: dict[int, Reached] = {}
    whole: set[int] = set()
    for found in reachable(function, every_way=True):
        value = found.value
        for name in asked_in_vain(found) if found.named else ():
            yield FixedValue(
                function, (*found.route, Step("attribute", name)), f"{found.label or 'self'}.{name}", _ABSENT
            )
        if isinstance(value, Tensor) and (known := first.setdefault(id(value), found)) is not found and found.named:
            yield OneTensor(function, known.route, found.route, found.label, known.label)
        elif is_read(found) and _is_fixed(found):
            if len(found.route) > 1 and id(_at(function, found.route[:-1])) in whole:
                continue  # compared with its list
            if isinstance(value, (list, tuple, deque)):
                whole.add(id(value))  # pyright: ignore[reportUnknownArgumentType]
            fixed = FixedValue(function, found.route, found.label, _comparable(value))
            if fixed.holds():  # else no call could find it again
                yield fixed
        elif is_read(found) and not isinstance(value, _HELD_OTHERWISE):
            kind = (*found.route, Step("attribute", "__class__"))
            yield FixedValue(function, kind, f"type({found.label})", type(value))


def _surroundings(function: object, names: Container[str]) -> Iterator[FixedValue]:
    """The environment, and settings of torch."""
    if "environ" in names or "getenv" in names:
        route = (Step("module", "os"), Step("attribute", "environ"))
        yield FixedValue(function, route, "os.environ", _comparable(os.environ))
    for name in _SETTINGS:
        if name in names:
            route = (Step("module", "torch"), Step("attribute", name), Step("call", None))
            yield FixedValue(function, route, f"torch.{name}()", follow(function, route))


_SETTINGS: Final = (
    "are_deterministic_algorithms_enabled", "get_default_dtype", "get_float32_matmul_precision", "get_num_threads",
)  # fmt: skip
_CONTAINERS: Final = (
    dict, MappingProxyType, list, tuple, deque, nn.ModuleList, nn.ModuleDict, nn.Sequential, nn.ParameterList, nn.ParameterDict,
)  # fmt: skip


_ARRAYS: Final = (np.ndarray, array, bytearray, set, frozenset)


_HELD_OTHERWISE: Final = (FunctionType, ModuleType)
"""What has no class of its own."""


def _is_fixed(found: Reached) -> bool:
    """Functions where they are variables or methods."""
    match found.value:
        case FunctionType() | BuiltinFunctionType():
            return found.route[-1].key not in ("__wrapped__", "func")
        case value:
            return isinstance(value, (*NUMBERS, *_CONTAINERS, *_ARRAYS, type))


def _text(value: object) -> str:
    if value is _ABSENT:
        return "absent"
    if isinstance(value, Elements):
        return f"an array, {value.kind}"
    if isinstance(value, PLAIN):
        return repr(value) if len(repr(value)) < 40 else f"{repr(value)[:36]}.."
    return f"`{value.__name__}`" if isinstance(value, type) else f"of type {type(value).__name__}"


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
