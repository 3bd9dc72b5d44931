"""Python numbers that follow a symbolic size: `math.*`, `int`, `float`, `min` and `max` would make it a constant.

While a reference runs, the functions of `math` and these builtins, as its own module sees them, accept symbolic numbers.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import operator
from collections.abc import Callable, Generator
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch.fx.experimental.sym_node import SymNode
from torch.utils._sympy import functions as sympy_functions

Symbolic = (torch.SymInt, torch.SymFloat)
_Cached: Final = type(functools.lru_cache(max))
"""A cached function of the module is called without its cache, which cannot hold symbolic sizes."""
_UNARY: Final = ("log", "sqrt", "exp", "log2", "tanh", "sin", "cos")


def _opaque(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    opaque = getattr(sympy_functions, f"OpaqueUnaryFn_{name}")

    def function(x: Any, *rest: Any, **options: Any) -> Any:
        if isinstance(x, Symbolic):
            node = x.node
            value = torch.SymFloat(SymNode(opaque(node.expr), node.shape_env, float, float(real(node.hint))))
            return value / real(*rest) if rest else value
        return real(x, *rest, **options)

    return function


def _power(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: x**y if isinstance(x, Symbolic) or isinstance(y, Symbolic) else real(x, y)


def _isqrt(real: Callable[..., Any], sqrt: Callable[..., Any]) -> Callable[..., Any]:
    return lambda n: torch.sym_int(sqrt(n)) if isinstance(n, Symbolic) else real(n)


def _math_functions() -> dict[str, Callable[..., Any]]:
    table = {
        name: _opaque(name, getattr(math, name)) for name in _UNARY if hasattr(sympy_functions, f"OpaqueUnaryFn_{name}")
    }
    return {**table, "pow": _power(math.pow), "isqrt": _isqrt(math.isqrt, table["sqrt"])}


def _numpy_functions() -> dict[str, Callable[..., Any]]:
    """Of single numbers; whatever else they are called with goes to numpy."""
    one = {name: getattr(math, name) for name in ("floor", "ceil")}
    made: dict[str, Callable[..., Any]] = {n: lambda x, f=f: torch.sym_float(f(x)) for n, f in one.items()}
    made |= {"power": operator.pow, "abs": abs, "square": lambda x: x * x}
    made |= {"maximum": torch.sym_max, "minimum": torch.sym_min}
    found = {name: _of_symbols(getattr(np, name), function) for name, function in made.items()}
    return found | {n: _opaque(n, getattr(np, n)) for n in _UNARY if hasattr(sympy_functions, f"OpaqueUnaryFn_{n}")}


def _of_symbols(real: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        return symbolic(*args) if any(isinstance(a, Symbolic) for a in args) else real(*args, **options)

    return function


class _AcceptsInstances(type):
    """`isinstance(x, int)` in the user's module still means the builtin."""

    def __instancecheck__(cls, instance: object) -> bool:
        return builtins.isinstance(instance, cls.__mro__[1])

    def __subclasscheck__(cls, subclass: type) -> bool:
        return builtins.issubclass(subclass, cls.__mro__[1])


class SymbolicInt(int, metaclass=_AcceptsInstances):
    def __new__(cls, x: Any = 0, *args: Any) -> Any:
        return torch.sym_int(x) if isinstance(x, Symbolic) else int(x, *args)


class SymbolicFloat(float, metaclass=_AcceptsInstances):
    def __new__(cls, x: Any = 0.0) -> Any:
        return torch.sym_float(x) if isinstance(x, Symbolic) else float(x)


def _extremum(real: Callable[..., Any], symbolic: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def function(*args: Any, **options: Any) -> Any:
        if len(args) == 2 and not options and any(isinstance(a, Symbolic) for a in args):
            return symbolic(*args)
        return real(*args, **options)

    return function


_BUILTINS: Final[dict[str, Any]] = {
    "int": SymbolicInt,
    "float": SymbolicFloat,
    "max": _extremum(max, torch.sym_max),
    "min": _extremum(min, torch.sym_min),
}


def _attention(real: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The built-in's own parser rejects a symbolic `enable_gqa` before any mode sees the call."""
    return lambda *args, **options: replacement(*args, **options) if _has_symbolic(options) else real(*args, **options)


def _has_symbolic(options: dict[str, Any]) -> bool:
    return any(isinstance(value, torch.SymBool) for value in options.values())


@contextlib.contextmanager
def symbolic_numbers(namespace: dict[str, Any], attention: Callable[..., Any]) -> Generator[None]:
    """Inside, `math` and the names of `namespace` follow symbolic sizes, and scaled_dot_product_attention takes symbolic
    booleans, which `attention` then computes. Everything is put back."""
    places: list[tuple[Any, str, Callable[..., Any]]] = [(math, n, f) for n, f in _math_functions().items()]
    places += [(np, name, function) for name, function in _numpy_functions().items()]
    fused = F.scaled_dot_product_attention
    places.append((F, "scaled_dot_product_attention", _attention(fused, attention)))
    originals = [(module, name, getattr(module, name)) for module, name, _ in places]
    by_identity = {id(o[2]): p[2] for o, p in zip(originals, places, strict=True)}
    saved = dict(namespace)
    try:
        for module, name, function in places:
            setattr(module, name, function)
        for name, value in saved.items():
            if id(value) in by_identity or isinstance(value, _Cached):
                namespace[name] = value.__wrapped__ if isinstance(value, _Cached) else by_identity[id(value)]
        for name, value in _BUILTINS.items():
            namespace.setdefault(name, value)
        yield
    finally:
        for module, name, original in originals:
            setattr(module, name, original)
        for name in _BUILTINS:
            if name not in saved:
                namespace.pop(name, None)
        namespace.update((n, v) for n, v in saved.items() if id(v) in by_identity or isinstance(v, _Cached))
