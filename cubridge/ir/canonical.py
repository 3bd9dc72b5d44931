"""One form for kernels that say the same in trivially different ways, to compare a lifted patch with its target.

Sound before all: equal canonical forms mean equal values, bit for bit, on a device. Names are kept, nothing is reordered, and
only what no arithmetic can tell apart becomes one: the sign of a literal, integer arithmetic of literals, an integer literal
that stands for a float, and float literals of region code that are the same in single precision."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cubridge.ir.diagnostics import CuError
from cubridge.ir.functions import FUNCTIONS, Result
from cubridge.ir.nodes import (
    REGIONS,
    Assign,
    Binary,
    Call,
    Expr,
    FloatLit,
    Function,
    If,
    IntLit,
    Kernel,
    Name,
    Node,
    Stmt,
    Unary,
)
from cubridge.ir.region_types import region_scope
from cubridge.ir.typecheck import Scope, infer
from cubridge.ir.walk import map_children, rewrite

_FOLDED: Final[dict[str, Callable[[int, int], int]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_LOGIC: Final = frozenset({"&", "|", "^"})
_MOST: Final = 2**31 - 1


def canonical(kernel: Kernel) -> Kernel:
    """The canonical form of a kernel; the same object if it is in that form already."""
    folded = rewrite(kernel, _fold)
    regions = tuple(_region(folded, r) for r in folded.regions)
    return folded if regions == folded.regions else replace(folded, regions=regions)


def _fold(node: Node) -> Node:
    match node:
        case Unary("-", IntLit(value) | FloatLit(value)) if value > 0:
            return replace(node.operand, value=-value, span=node.span)
        case Binary(op, IntLit(a), IntLit(b)) if op in _FOLDED and abs(_FOLDED[op](a, b)) <= _MOST:
            return IntLit(_FOLDED[op](a, b), span=node.span)
        case _:
            return node


def _region(kernel: Kernel, region: Function) -> Function:
    if region.name not in REGIONS:
        return region
    body, scope = _body(region.body, region_scope(kernel, region.name))
    result = None if region.result is None else _floats(region.result, scope)
    return replace(region, body=body, result=result)


def _body(body: tuple[Stmt, ...], scope: Scope) -> tuple[tuple[Stmt, ...], Scope]:
    done: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Assign(target, value):
                value = _literal(_floats(value, scope), _is_float(target, scope))
                done.append(replace(stmt, value=value))
                scope = _bound(target, value, scope)
            case If(condition, then, ()):
                inner, _ = _body(then, scope)
                done.append(replace(stmt, condition=_floats(condition, scope), then=inner))
            case _:
                done.append(stmt)
    return tuple(done), scope


def _bound(target: Expr, value: Expr, scope: Scope) -> Scope:
    """The scope after a definition; a value at fault leaves its name unknown, and what reads it as it is."""
    if not isinstance(target, Name) or target.id in scope.names:
        return scope
    try:
        return scope.bind(target.id, infer(value, scope))
    except CuError:
        return scope


def _floats(expr: Expr, scope: Scope) -> Expr:
    """`expr` with float literals where integers stand for floats, all in single precision."""
    expr = map_children(expr, lambda child: _floats(child, scope) if isinstance(child, Expr) else child)
    match expr:
        case FloatLit(value):
            return _single(expr, value)
        case Binary(op, left, right) if op not in _LOGIC:
            as_float = _is_float(left, scope) or _is_float(right, scope)
            return replace(expr, left=_literal(left, as_float), right=_literal(right, as_float))
        case Call(fn, args) if fn in FUNCTIONS and fn not in ("f32", "i32", "i64"):
            return replace(expr, args=_arguments(fn, args, scope))
        case _:
            return expr


def _arguments(fn: str, args: tuple[Expr, ...], scope: Scope) -> tuple[Expr, ...]:
    match FUNCTIONS[fn].result:
        case Result.FLOAT:
            return tuple(_literal(a, True) for a in args)
        case Result.SAME | Result.SELECT:
            as_float = any(_is_float(a, scope) for a in args)
            return tuple(_literal(a, as_float) for a in args)
        case _:
            return args


def _literal(expr: Expr, as_float: bool) -> Expr:
    return _single(expr, float(expr.value)) if as_float and isinstance(expr, IntLit) else expr


def _single(expr: Expr, value: float) -> Expr:
    """A float literal as the device holds it; one that overflows there is left as it is."""
    try:
        rounded = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return expr
    assert isinstance(rounded, float)
    if isinstance(expr, FloatLit) and rounded == value and math.copysign(1, rounded) == math.copysign(1, value):
        return expr
    return FloatLit(rounded, span=expr.span)


def _is_float(expr: Expr, scope: Scope) -> bool:
    try:
        return infer(expr, scope).dtype.is_float
    except CuError:
        return False
