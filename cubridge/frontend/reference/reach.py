"""Everything that a reference reaches besides its arguments: its closure and globals, defaults, attributes, and what lies in these.

Globals, and attributes of classes and Python modules, are followed where the code names them. What torch, numpy and the standard
library keep for themselves is left out."""

from __future__ import annotations

import inspect
import linecache
import sys
from array import array
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property, lru_cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

from cubridge.frontend.reference.names import ASKS, asked_for, code_names, globals_of, modules_of

CACHED: Final = type(lru_cache(max))
"""Of a function with a cache."""
NUMBERS: Final = (
    bool, int, float, complex, str, bytes, type(None), np.generic, Enum, torch.dtype, torch.device, torch.layout,
)  # fmt: skip
"""Values that cannot change: they are compared by value, and may be reached in several ways."""
_MOST: Final = 20_000
"""Objects looked at: a reference of any sense holds fewer."""
_LONGEST: Final = 4_096
"""Elements of a list or dict that are looked at; longer ones are data."""


@dataclass(frozen=True, slots=True)
class Step:
    """From an object to one that it holds or gives when it is called, or to a module of Python."""

    kind: Literal["attribute", "item", "module", "call"]
    key: Any


Route = tuple[Step, ...]


def follow(root: object, route: Route) -> Any:
    """The object at the end. Errors: AttributeError, LookupError where there is none any more."""
    for step in route:
        root = _held(root, step)
    return root


def _held(holder: Any, step: Step) -> Any:
    match step.kind:
        case "attribute":
            return getattr(holder, step.key)
        case "item":
            return holder[step.key]
        case "module":
            return sys.modules[step.key]
        case "call":
            return holder()


@dataclass(frozen=True, slots=True)
class Reached:
    """An object and the way to it from the reference. `label`: as the user's code writes it; `names`: of the code that reads it.
    `named`: is each attribute of the way one that this code names."""

    route: Route
    value: Any
    label: str
    names: frozenset[str]
    named: bool = True

    def attribute(
        self, name: str, value: Any, label: str | None = None, names: frozenset[str] | None = None
    ) -> Reached:
        text = f"{self.label or 'self'}.{name}" if label is None else label
        known = self.names if names is None else names
        named = self.named and (label is not None or name in known or name.startswith("__") or name.isdigit())
        return Reached((*self.route, Step("attribute", name)), value, text, known, named)

    def item(self, key: Any, value: Any, label: str | None = None) -> Reached:
        text = f"{self.label}[{key!r}]" if label is None else label
        return Reached((*self.route, Step("item", key)), value, text, self.names, self.named)

    def module(self, name: str) -> Reached:
        return Reached((*self.route, Step("module", name)), sys.modules[name], name, self.names, self.named)

    def current(self, value: Any) -> Reached:
        """Of a variable of the context."""
        route = (*self.route, Step("attribute", "get"), Step("call", None))
        return Reached(route, value, f"{self.label}.get()", self.names, self.named)


def reachable(function: object, every_way: bool = False) -> Iterator[Reached]:
    """Breadth first, each object once, but Python numbers each time; the function itself first. `every_way`: tensors too."""
    again = (*NUMBERS, Tensor) if every_way else NUMBERS
    queue, seen = deque([Reached((), function, "", frozenset())]), {id(function)}
    while queue and len(seen) < _MOST:
        found = queue.popleft()
        yield found
        for inner in _inside(found):
            if isinstance(inner.value, again) or id(inner.value) not in seen:
                seen.add(id(inner.value))
                queue.append(inner)


def names_in(function: object) -> frozenset[str]:
    """Of globals and attributes, in all code that `function` may run."""
    codes = (
        r.value.__code__ for r in reachable(function) if isinstance(r.value, FunctionType) and not is_foreign(r.value)
    )
    return frozenset(name for code in codes for name in code_names(code))


def asked_in_vain(found: Reached) -> list[str]:
    """Attributes that code asks an object for by name, and that it does not have."""
    if isinstance(found.value, (FunctionType, MethodType, ModuleType, type, partial, Tensor)):
        return []
    names = _with_class_names(found).names if hasattr(found.value, "__dict__") else ()
    asked = (n.removeprefix(ASKS) for n in names if n.startswith(ASKS) and n != ASKS)
    return sorted(n for n in asked if not hasattr(found.value, n))


def _inside(found: Reached) -> Iterator[Reached]:
    """What an object holds."""
    match found.value:
        case Tensor():
            own = vars(found.value) if type(found.value) in (Tensor, torch.nn.Parameter) else {}
            yield from (found.attribute(n, x) for n, x in own.items())
        case np.ndarray() | bytearray() | array():
            return
        case value if isinstance(value, NUMBERS):
            return
        case ContextVar():
            yield from _of_context(found)
        case FunctionType():
            yield from _of_function(found)
        case MethodType():
            yield found.attribute("__self__", found.value.__self__, "self", _names_of(found.value))
            yield found.attribute("__func__", found.value.__func__, found.label)
        case partial():
            inside = replace(found, names=_names_of(found.value.func))
            yield inside.attribute("func", found.value.func, found.label)
            given = inside.attribute("args", found.value.args, f"{found.label}.args")
            yield from (given.item(n, x) for n, x in enumerate(found.value.args))
            keywords = inside.attribute("keywords", found.value.keywords, found.label)
            yield from (keywords.item(n, x, n) for n, x in found.value.keywords.items())
        case CACHED():  # pyright: ignore[reportGeneralTypeIssues]
            yield found.attribute("__wrapped__", found.value.__wrapped__, found.label)
        case torch.nn.Module():
            yield from _of_module(found)
        case dict() | MappingProxyType():
            if len(found.value) <= _LONGEST:
                yield from (found.item(key, x) for key, x in list(found.value.items()))
        case list() | tuple() | deque():
            if len(found.value) <= _LONGEST:
                yield from (found.item(n, x) for n, x in enumerate(found.value))
        case ModuleType() | type():
            if not is_foreign(found.value):
                held = vars(found.value)
                yield from (found.attribute(n, held[n]) for n in sorted(found.names & held.keys()))
        case _:
            yield from _of_instance(found)


def _of_function(found: Reached) -> Iterator[Reached]:
    function: FunctionType = found.value
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None:  # by a decorator, which may be torch's
        yield found.attribute("__wrapped__", wrapped, found.label)
    if is_foreign(function):
        compiled = vars(function).get(_COMPILED)
        yield from _of_closure(found) if compiled is None else (found.attribute(_COMPILED, compiled, found.label),)
        return
    code = function.__code__
    names = frozenset(code_names(code))
    if ASKS in names:
        names = names.union(asked_for(_variables(function)))
    inside = replace(found, names=names)
    parameters = code.co_varnames[: code.co_argcount]
    defaults = inside.attribute("__defaults__", function.__defaults__)
    first = len(parameters) - len(function.__defaults__ or ())
    yield from (defaults.item(n, x, parameters[first + n]) for n, x in enumerate(function.__defaults__ or ()))
    keywords = inside.attribute("__kwdefaults__", function.__kwdefaults__)
    yield from (keywords.item(n, x, n) for n, x in (function.__kwdefaults__ or {}).items())
    yield from _of_closure(inside)
    spaces = inside.attribute("__globals__", function.__globals__)
    yield from (
        spaces.item(n, function.__globals__[n], n) for n in sorted(globals_of(code) & function.__globals__.keys())
    )
    yield from (inside.module(n) for n in sorted(modules_of(code) & sys.modules.keys()))
    yield from (inside.attribute(n, x) for n, x in vars(function).items())


def _variables(function: FunctionType) -> Iterator[object]:
    """What the closure, the defaults and the globals that the code names hold."""
    yield from (held for _, held in _closed_over(function))
    yield from (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    yield from (function.__globals__[n] for n in globals_of(function.__code__) & function.__globals__.keys())


def _of_context(found: Reached) -> Iterator[Reached]:
    try:
        yield found.current(found.value.get())
    except LookupError:  # not set yet
        return


_COMPILED: Final = "_torchdynamo_orig_callable"
"""By which a function that `torch.compile` made keeps the user's."""


def _of_closure(found: Reached) -> Iterator[Reached]:
    """Of foreign functions too: `and_masks` of torch closes over the user's."""
    function: FunctionType = found.value
    cells = found.attribute("__closure__", function.__closure__)
    for n, held in _closed_over(function):
        yield cells.item(n, None).attribute("cell_contents", held, function.__code__.co_freevars[n])


def _closed_over(function: FunctionType) -> Iterator[tuple[int, object]]:
    """Numbers of cells, and what these hold."""
    for n, cell in enumerate(function.__closure__ or ()):
        with suppress(ValueError):  # not assigned yet
            yield n, cell.cell_contents


def _names_of(function: object) -> frozenset[str]:
    """Of what a method or a partial function runs."""
    code = getattr(function, "__code__", None)
    return frozenset((getattr(function, "__name__", ""), *(code_names(code) if isinstance(code, CodeType) else ())))


def _of_module(found: Reached) -> Iterator[Reached]:
    module: torch.nn.Module = found.value
    yield from _of_class(found)
    known = _with_class_names(found)
    for kind in ("_parameters", "_buffers", "_modules"):
        yield from (known.attribute(n, x) for n, x in vars(module).get(kind, {}).items())
    own = {n: x for n, x in vars(module).items() if n == "training" or n not in _MODULE_ATTRIBUTES}
    yield from (known.attribute(n, x) for n, x in own.items())
    if not _LISTS.isdisjoint(known.names):
        label = found.label or "self"
        yield from (
            known.attribute(n, vars(module)[n], f"{label}.{n}") for n in ("_parameters", "_buffers", "_modules")
        )


_LISTS: Final = frozenset(
    f"{named}{what}" for named in ("", "named_") for what in ("parameters", "buffers", "modules", "children")
) | {"state_dict"}
"""Methods of modules that say what these hold."""


_MODULE_ATTRIBUTES: Final = frozenset(vars(torch.nn.Module()))


def _of_instance(found: Reached) -> Iterator[Reached]:
    foreign = is_foreign(type(found.value))
    if foreign and not hasattr(found.value, "__dict__"):
        return
    yield from _of_class(found)
    known = _with_class_names(found)
    if foreign and isinstance(found.value, (Mapping, Sequence, Set)):  # a UserDict, whose code is not read
        known = replace(known, names=known.names.union(vars(found.value)))
    yield from (known.attribute(n, x) for n, x in list(getattr(found.value, "__dict__", {}).items()))
    slots = [n for kind in type(found.value).__mro__ for n in _slots(kind)]
    yield from (known.attribute(n, getattr(found.value, n)) for n in slots if hasattr(found.value, n))


def _slots(kind: type) -> tuple[str, ...]:
    slots = () if is_foreign(kind) else vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(n for n in slots if not n.startswith("__"))


_ENTRIES: Final = ("forward", "__call__")


def _of_class(found: Reached) -> Iterator[Reached]:
    """Class attributes that the code of the class names, and its methods."""
    known = _with_class_names(found)
    for kind in type(found.value).__mro__:
        if is_foreign(kind):
            continue
        for name, value in list(vars(kind).items()):
            if name not in known.names:
                continue
            if isinstance(value, FunctionType):
                yield known.attribute(name, value).attribute("__func__", value, f"{found.label or 'self'}.{name}")
            elif isinstance(value, (staticmethod, classmethod)):
                yield known.attribute(name, value.__func__)
            elif isinstance(value, property):
                yield (
                    known.attribute("__class__", kind, found.label)
                    .attribute(name, value)
                    .attribute("fget", value.fget, found.label)
                )
            elif hasattr(type(value), "__get__"):
                classes = known.attribute("__class__", type(found.value), found.label).attribute(
                    "__mro__", (), found.label
                )
                space = classes.item(type(found.value).__mro__.index(kind), kind).attribute("__dict__", {}, found.label)
                yield space.item(name, value, f"{found.label or 'self'}.{name}")
            else:
                yield known.attribute(name, value)


def _with_class_names(found: Reached) -> Reached:
    """Attributes are read by the code that led here, and by the code of the class that it may call."""
    functions = _functions(type(found.value))
    names = {*found.names, *_ENTRIES, *(n for n in functions if n.startswith("__") and n != "__init__")}
    waiting = [*names]
    while waiting:
        read = {n for code in functions.get(waiting.pop(), ()) for n in code_names(code)} - names
        names |= read
        waiting += read
    if ASKS in names:
        names.update(asked_for(getattr(found.value, "__dict__", {}).values()))
    return replace(found, names=frozenset(names))


def _functions(kind: type) -> dict[str, tuple[CodeType, ...]]:
    """The code of methods and properties by their names; of torch's modules that of `forward`."""
    found: dict[str, tuple[CodeType, ...]] = {}
    for base in kind.__mro__:
        held = vars(base) if not is_foreign(base) else {n: x for n, x in vars(base).items() if n == "forward"}
        for name, value in list(held.items()):
            if isinstance(value, cached_property):
                function: Any = value.func
            else:
                function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
            function = inspect.unwrap(function) if callable(function) else function
            if isinstance(function, FunctionType):
                found[name] = (*found.get(name, ()), function.__code__)
    return found


def is_foreign(thing: FunctionType | ModuleType | type) -> bool:
    """Does it belong to torch, numpy, the standard library or this package?"""
    if isinstance(thing, FunctionType):
        return _is_foreign_file(thing.__code__.co_filename)
    if isinstance(thing, type) and thing.__module__ == "builtins":
        return not thing.__flags__ & _IN_PYTHON  # a class that `exec` made without a module's name
    module = thing if isinstance(thing, ModuleType) else sys.modules.get(thing.__module__)
    file = getattr(module, "__file__", None)
    return module is not None and module.__name__ != "__main__" and (file is None or _is_foreign_file(file))


_IN_PYTHON: Final = 1 << 9
"""Flag of classes that a `class` statement made (CPython's Py_TPFLAGS_HEAPTYPE)."""


@cache
def _is_foreign_file(name: str) -> bool:
    standard, *packages = (str(Path(f).resolve().parent) for f in (linecache.__file__, torch.__file__, np.__file__))
    ours = str(Path(__file__).resolve().parents[2])
    file = name if name.startswith("<") else str(Path(name).resolve())  # an environment may be reached by a link
    in_standard = file.startswith((standard, "<frozen")) and "site-packages" not in file
    return in_standard or file.startswith((*packages, ours, "<@beartype", "<eval_with_key>"))
