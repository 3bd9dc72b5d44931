"""Everything that a reference reaches besides its arguments: its closure and globals, defaults, attributes, and what lies in these.

Globals, and attributes of classes and Python modules, are followed where the code names them. What torch, numpy and the standard
library keep for themselves is left out."""

from __future__ import annotations

import dis
import inspect
import linecache
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import Tensor

CACHED: Final = type(lru_cache(max))
"""Of a function with a cache."""
NUMBERS: Final = (bool, int, float, str, type(None))
"""Python values that cannot change: they are compared by value, and may be reached in several ways."""
_MOST: Final = 20_000
"""Objects looked at: a reference of any sense holds fewer."""
_LONGEST: Final = 4_096
"""Elements of a list or dict that are looked at; longer ones are data."""


@dataclass(frozen=True, slots=True)
class Step:
    """From an object to one that it holds."""

    kind: Literal["attribute", "item"]
    key: Any


Route = tuple[Step, ...]


def follow(root: object, route: Route) -> Any:
    """The object at the end. Errors: AttributeError, LookupError where there is none any more."""
    for step in route:
        root = getattr(root, step.key) if step.kind == "attribute" else root[step.key]  # pyright: ignore
    return root


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
    return sorted(n[1:] for n in names if n.startswith("?") and not hasattr(found.value, n[1:]))


def _inside(found: Reached) -> Iterator[Reached]:
    """What an object holds."""
    match found.value:
        case Tensor() | np.ndarray() | bool() | int() | float() | str() | bytes() | None:
            return
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
        case dict():
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
        spaces.item(n, function.__globals__[n], n) for n in sorted(_globals(code) & function.__globals__.keys())
    )


_COMPILED: Final = "_torchdynamo_orig_callable"
"""By which a function that `torch.compile` made keeps the user's."""


def _of_closure(found: Reached) -> Iterator[Reached]:
    """Of foreign functions too: `and_masks` of torch closes over the user's."""
    function: FunctionType = found.value
    cells = found.attribute("__closure__", function.__closure__)
    for n, cell in enumerate(function.__closure__ or ()):
        try:
            held = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
        yield cells.item(n, cell).attribute("cell_contents", held, function.__code__.co_freevars[n])


def code_names(code: CodeType) -> Iterator[str]:
    """Of globals and attributes, in the functions inside as well; what `getattr` is asked for, also with a `?` before it."""
    yield from code.co_names
    asks = not _ASKING.isdisjoint(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_names(constant)
        elif asks and isinstance(constant, str) and constant.isidentifier():
            yield from (constant, f"?{constant}")


_ASKING: Final = frozenset(("getattr", "hasattr"))


def _names_of(function: object) -> frozenset[str]:
    """Of what a method or a partial function runs."""
    code = getattr(function, "__code__", None)
    return frozenset((getattr(function, "__name__", ""), *(code_names(code) if isinstance(code, CodeType) else ())))


@lru_cache(1024)
def _globals(code: CodeType) -> frozenset[str]:
    """Names of globals alone, in the functions inside as well."""
    read = {str(x.argval) for x in dis.get_instructions(code) if x.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return frozenset(read.union(*(_globals(c) for c in code.co_consts if isinstance(c, CodeType))))


def _of_module(found: Reached) -> Iterator[Reached]:
    module: torch.nn.Module = found.value
    yield from _of_class(found)
    known = _with_class_names(found)
    for kind in ("_parameters", "_buffers", "_modules"):
        yield from (known.attribute(n, x) for n, x in vars(module).get(kind, {}).items())
    own = {n: x for n, x in vars(module).items() if n == "training" or n not in _MODULE_ATTRIBUTES}
    yield from (known.attribute(n, x) for n, x in own.items())


_MODULE_ATTRIBUTES: Final = frozenset(vars(torch.nn.Module()))


def _of_instance(found: Reached) -> Iterator[Reached]:
    if is_foreign(type(found.value)) and not hasattr(found.value, "__dict__"):
        return
    yield from _of_class(found)
    known = _with_class_names(found)
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
    return replace(found, names=frozenset(names))


def _functions(kind: type) -> dict[str, tuple[CodeType, ...]]:
    """The code of methods and properties by their names; of torch's modules that of `forward`."""
    found: dict[str, tuple[CodeType, ...]] = {}
    for base in kind.__mro__:
        held = vars(base) if not is_foreign(base) else {n: x for n, x in vars(base).items() if n == "forward"}
        for name, value in list(held.items()):
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
