"""The one evaluator of scalar expressions, over Python numbers, numpy arrays and torch tensors.

`Meaning` compiles an expression to a closure: operators and functions mean the same wherever it stands, and a subclass says what
names and elements are there."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeGuard, TypeVar, assert_never

from cubridge.ir.algebra.exprs import operation
from cubridge.ir.algebra.normal import poly
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.functions import FUNCTIONS
from cubridge.ir.nodes import (
    NAMED_CONSTANTS,
    Attr,
    Binary,
    BoolLit,
    Call,
    Expr,
    FloatLit,
    Index,
    IntLit,
    Name,
    Record,
    Unary,
)  # fmt: skip
from cubridge.ir.printer import print_expr

if TYPE_CHECKING:
    from torch import Tensor

    Value = bool | int | float | Tensor
    Lookup = Callable[[Expr], Value]

E = TypeVar("E")
Code: TypeAlias = Callable[[E], Any]
"""An expression as a function of what it is evaluated in."""

UNARY: Final[dict[str, Callable[[Any], Any]]] = {
    "-": operator.neg,
    "~": lambda value: (not value) if isinstance(value, bool) else ~value,
}
BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": lambda a, b: _power(a, b), "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

_NO_VALUE: Final = (ArithmeticError, ValueError, TypeError, RuntimeError)  # the last is torch's


class Meaning(Generic[E]):
    """Expressions as closures over an environment `E`. Errors: CU301, when compiled or called, where there is no value."""

    def compile(self, expr: Expr) -> Code[E]:
        match expr:
            case BoolLit(value) | IntLit(value) | FloatLit(value):
                return lambda env: value
            case Name(name) if name in NAMED_CONSTANTS:
                constant = NAMED_CONSTANTS[name]
                return lambda env: constant
            case Name() | Attr() | Index():
                return self.place(expr)
            case Unary(op, operand):
                return self.unary(expr, UNARY[op], self.compile(operand))
            case Binary(op, left, right):
                return self.binary(expr, BINARY[op], self.compile(left), self.compile(right))
            case Call():
                return self.call(expr)
            case Record():
                raise CuError(Diagnostic("CU301", f"`{expr.name}` is not a single value", expr.span))
            case _:
                assert_never(expr)  # pyright: ignore[reportArgumentType]

    def place(self, expr: Name | Attr | Index) -> Code[E]:
        """What a name, a field or an element is."""
        raise NotImplementedError

    def unary(self, expr: Expr, fn: Callable[[Any], Any], operand: Code[E]) -> Code[E]:
        return lambda env: guarded(expr, fn, operand(env))

    def binary(self, expr: Expr, fn: Callable[[Any, Any], Any], left: Code[E], right: Code[E]) -> Code[E]:
        def run(env: E) -> Any:
            a, b = left(env), right(env)
            try:
                return fn(a, b)
            except _NO_VALUE as error:
                raise _no_value(expr, error) from error

        return run

    def call(self, expr: Call) -> Code[E]:
        parts = [self.compile(a) for a in expr.args]
        return lambda env: apply(expr.fn, [part(env) for part in parts], expr)


class _Elementwise(Meaning["Lookup"]):
    """Places are looked up; tensors are indexed elementwise."""

    def place(self, expr: Name | Attr | Index) -> Code[Lookup]:
        if not isinstance(expr, Index):
            return lambda lookup: lookup(expr)
        parts = [self.compile(x) for x in expr.indices]
        return lambda lookup: _index(lookup(expr.base), [part(lookup) for part in parts])


_ELEMENTWISE: Final = _Elementwise()


def evaluate(expr: Expr, lookup: Lookup) -> Value:
    """The value of `expr`; `lookup` gives Names, Attrs and the bases of Index nodes (tensors, indexed elementwise).
    Errors: CU301 for a call that has no elementwise meaning, or arithmetic that has no value."""
    return _ELEMENTWISE.compile(expr)(lookup)


def evaluate_number(expr: Expr, values: Mapping[str, Value]) -> Value:
    """Evaluate over plain names, such as the sizes of a launch. Errors: CU301 for an unknown name."""
    return evaluate(expr, by_name(values))


def known_number(expr: Expr, values: Mapping[str, Value]) -> int | float | None:
    """The number or truth that `expr` is over plain names; None where it has no value or reads others."""
    try:
        value = evaluate_number(expr, values)
    except CuError:
        return None
    return value if isinstance(value, int | float) else None


def known_int(expr: Expr, values: Mapping[str, Value]) -> int | None:
    """As `known_number`, of an integer or truth alone."""
    value = known_number(expr, values)
    return value if isinstance(value, int) else None


def by_name(values: Mapping[str, Value]) -> Lookup:
    """Gives names their values. Errors of a look-up: CU301 for an unknown name."""

    def lookup(node: Expr) -> Value:
        if isinstance(node, Name) and node.id in values:
            return values[node.id]
        raise CuError(Diagnostic("CU301", "this name has no value here", node.span))

    return lookup


def apply(fn: str, args: Sequence[Any], at: Expr) -> Any:
    """The function `fn` of numbers, numpy arrays or torch tensors. Errors: CU301 for one that has no elementwise meaning, or no
    value of these."""
    info = FUNCTIONS.get(fn)
    if info is None or info.number is None:
        raise CuError(Diagnostic("CU301", f"`{fn}` has no elementwise meaning", at.span))
    if not any(is_array(a) for a in args):
        return guarded(at, info.number, *args)
    import numpy
    import torch

    if not any(isinstance(a, torch.Tensor) for a in args):
        return guarded(at, _of_library(info.array, numpy, at), *args)
    if info.arity == 2 and isinstance(info.array, str):  # torch takes no number beside a tensor there
        like = next((a for a in args if is_array(a) and a.dtype != torch.bool), None)
        args = [a if is_array(a) or like is None else torch.as_tensor(a, dtype=like.dtype) for a in args]
    return guarded(at, _of_library(info.array, torch, at), *args)


def is_array(value: object) -> TypeGuard[Tensor]:
    """Is it an array of a library, and no number."""
    return hasattr(value, "dtype")


def guarded(at: Expr, fn: Callable[..., Any], *args: Any) -> Any:
    """`fn(*args)`. Errors: CU301 where it has no value."""
    try:
        return fn(*args)
    except _NO_VALUE as error:
        raise _no_value(at, error) from error


def _no_value(at: Expr, error: Exception) -> CuError:
    by_zero = isinstance(error, ZeroDivisionError) or any(
        w in str(error) for w in ("ZeroDivisionError", "divide by zero")
    )
    why = f"`{print_expr(at.right)}` is 0" if by_zero and isinstance(at, Binary) else str(error)
    return CuError(Diagnostic("CU301", f"this expression has no value: {why}", at.span))


def _of_library(array: Callable[..., Any] | str, library: Any, at: Expr) -> Callable[..., Any]:
    if callable(array):
        return lambda *args: array(library, *args)
    if not hasattr(library, array):
        raise CuError(Diagnostic("CU301", f"`{array}` has no value for each block", at.span))
    return getattr(library, array)


def _index(base: Any, indices: list[Any]) -> Value:
    if not any(is_array(x) for x in indices):
        return base[tuple(indices)]
    import torch

    parts = iter(torch.broadcast_tensors(*(torch.as_tensor(x) for x in indices if is_array(x))))
    return base[tuple(next(parts).long() if is_array(x) else x for x in indices)]  # a number moves to no device


def _power(a: Any, b: Any) -> Any:
    """`a ** b`, but no integer that needs more than 128 bits and no complex number."""
    if isinstance(a, int) and isinstance(b, int) and abs(a) > 1 and a.bit_length() * b > 128:
        raise OverflowError("an integer beyond 64 bits")
    value = a**b
    if isinstance(value, complex):
        raise ValueError("a root of a negative number")
    return value


_DIVISIONS: Final = ("/", "//", "%", "floor_div", "floor_mod", "ceil_div")


def divides_by_zero(expr: Expr) -> bool:
    """Is it a division by what is 0, whatever names stand for."""
    match operation(expr):
        case (fn, (_, by)) if fn in _DIVISIONS:
            return known_number(by, {}) == 0 or poly(by).as_int() == 0
        case _:
            return False
