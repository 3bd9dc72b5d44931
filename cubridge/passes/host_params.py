"""Host expressions in region code become parameters, computed once at launch."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from cubridge.ir.algebra.exprs import MIRRORED, number, product
from cubridge.ir.nodes import (
    COMPARISONS,
    NAMED_CONSTANTS,
    Attr,
    Binary,
    Call,
    Expr,
    Field,
    FloatLit,
    Index,
    IntLit,
    Kernel,
    Name,
    Node,
    Scalar,
    Unary,
)
from cubridge.ir.region_types import TILE_FIELDS
from cubridge.ir.types import DType
from cubridge.ir.walk import map_children, rewrite, walk
from cubridge.passes.regions import free_name, param
from cubridge.passes.scale import host_value, scale_of, without_casts
from cubridge.passes.wide import without_unread


class HostParams:
    """Gives float host expressions their parameters: an existing one of the same value, else a new one.

    `stem` begins the names of the new ones: `score_scale`, `score_bias`; a factor beside a captured value is named after it."""

    def __init__(self, kernel: Kernel, stem: str) -> None:
        self.kernel = kernel
        self.stem = stem

    def lower(self, expr: Expr) -> Expr:
        """The expression with parameters; `kernel` then has them."""
        return self._lower(expr, f"{self.stem}_scale")

    def _lower(self, expr: Expr, name: str) -> Expr:
        if _is_plain(expr):
            return expr
        host = host_value(expr, self.kernel)
        if host is not None:
            return self._param(host, name)
        match _gathered(expr, self.kernel):
            case Binary("*" | "/" as op, left, right) as expr:
                stem = _captured_name(left) or _captured_name(right) or self.stem
                return replace(expr, left=self._lower(left, f"{stem}_scale"), right=self._lower(right, f"{stem}_scale"))
            case Binary("+" | "-", left, right):
                return replace(
                    expr, left=self._lower(left, f"{self.stem}_bias"), right=self._lower(right, f"{self.stem}_bias")
                )
            case Unary("-", operand):
                return replace(expr, operand=self._lower(operand, name))
            case Binary(op) if op not in COMPARISONS:
                return expr
            case Binary() | Call():
                return self._inside(expr)
            case _:
                return expr

    def _inside(self, expr: Expr) -> Expr:
        """Host values among the operands of a comparison or call, where these are floats."""
        if isinstance(expr, Call) and expr.fn in ("f32", "i32", "i64"):
            return expr
        if isinstance(expr, Binary) and not any(_is_float(x) for x in (expr.left, expr.right)):
            return expr

        def change(node: Node) -> Node:
            return self._lower(node, f"{self.stem}_bound") if isinstance(node, Expr) else node

        return map_children(expr, change)

    def _param(self, host: Expr, name: str) -> Expr:
        value = scale_of(host)
        if not value.powers:
            return FloatLit(float(value.coefficient))
        for field in self.kernel.params:
            match field:
                case Field(known, Scalar(DType.F32, old), False) if old is not None and scale_of(old) == value:
                    return param(known)
                case _:
                    pass
        host = value.to_expr()
        if isinstance(host, Name):  # a parameter of that value would read as the size itself
            host = Binary("*", FloatLit(1.0), host)
        return self._new(name, Scalar(DType.F32, host))

    def _new(self, name: str, kind: Scalar) -> Expr:
        field = Field(free_name(name, {f.name for f in self.kernel.params}), kind, fixed=False)
        self.kernel = replace(self.kernel, params=(*self.kernel.params, field))
        return param(field.name)

    # ---- predicates --------------------------------------------------------------------------------------------------

    def lower_predicate(self, expr: Expr) -> Expr:
        """A predicate with parameters. A comparison of an integer with a fraction that the host knows compares integers."""
        match expr:
            case Binary("&" | "|" | "^", left, right):
                return replace(expr, left=self.lower_predicate(left), right=self.lower_predicate(right))
            case Unary("~", operand):
                return replace(expr, operand=self.lower_predicate(operand))
            case Call("where", args):
                return replace(expr, args=tuple(self.lower_predicate(a) for a in args))
            case Binary(op, Call("f32", (whole,)), fraction) if op in _ROUNDING:
                return self._compared(expr, op, whole, fraction)
            case Binary(op, fraction, Call("f32", (whole,))) if op in _ROUNDING:
                return self._compared(expr, MIRRORED[op], whole, fraction)
            case Binary(op) if op in COMPARISONS:
                return self._whole(self._inside(expr))
            case _:
                return self._whole(expr)

    def _compared(self, expr: Expr, op: str, whole: Expr, fraction: Expr) -> Expr:
        """`whole op fraction` for an integer: the fraction rounded to the integer that decides alike."""
        host = host_value(fraction, self.kernel)
        if host is None:
            return self._whole(self._inside(expr))
        value = number(scale_of(host).to_expr())
        if value is not None:
            return Binary(op, self._whole(whole), IntLit(getattr(math, _ROUNDING[op])(value)))
        bound = self._whole_param(Call("i32", (Call(_ROUNDING[op], (scale_of(host).to_expr(),)),)))
        return Binary(op, self._whole(whole), bound)

    def _whole(self, expr: Expr) -> Expr:
        """Integers that the host rounds, and those with powers, as parameters."""

        def change(node: Node) -> Node:
            if isinstance(node, Call | Binary) and _needs_host(node):
                host = host_value(node, self.kernel)
                if host is not None:
                    return self._whole_param(host)
            return map_children(node, change)

        result = change(expr)
        assert isinstance(result, Expr)
        return result

    def _whole_param(self, host: Expr) -> Expr:
        host = without_casts(host)
        known = (f.name for f in self.kernel.params if f.type == Scalar(DType.I32, host) and not f.fixed)
        name = next(known, None)
        return param(name) if name is not None else self._new(f"{self.stem}_bound", Scalar(DType.I32, host))


def _gathered(expr: Expr, kernel: Kernel) -> Expr:
    """A product with its host factors in one, if there are several: `s * D ** -0.5 / 30.0` multiplies once."""
    found: list[Expr] = []

    def without(node: Expr) -> Expr | None:
        if host_value(node, kernel) is not None:
            found.append(node)
            return None
        match node:
            case Binary("*", left, right):
                a, b = without(left), without(right)
                return replace(node, left=a, right=b) if a is not None and b is not None else a or b
            case Binary("/", left, right) if host_value(right, kernel) is not None:
                found.append(Binary("/", FloatLit(1.0), right))
                return without(left)
            case _:
                return node

    rest = without(expr)
    factor = product(found)
    return expr if rest is None or factor is None or len(found) < 2 else Binary("*", rest, factor)


_ROUNDING: Final = {"<": "ceil", "<=": "floor", ">": "floor", ">=": "ceil"}


def _needs_host(expr: Call | Binary) -> bool:
    return (isinstance(expr, Call) and expr.fn == "i32") or (isinstance(expr, Binary) and expr.op == "**")


def _is_plain(expr: Expr) -> bool:
    match expr:
        case FloatLit() | IntLit() | Attr():
            return True
        case Name(name):
            return name in NAMED_CONSTANTS
        case Unary("-", operand):
            return _is_plain(operand)
        case _:
            return False


def _captured_name(expr: Expr) -> str | None:
    match expr:
        case Index(Attr(Name("p"), name)) | Attr(Name("tile"), name) if name not in TILE_FIELDS:
            return name
        case Binary("*", left, right):
            return _captured_name(left) or _captured_name(right)
        case _:
            return None


def _is_float(expr: Expr) -> bool:
    """Does a comparison of this value compare floats."""
    floats = ("s", "o", "inf")
    return any(
        isinstance(n, FloatLit) or (isinstance(n, Name) and n.id in floats) or (isinstance(n, Call) and n.fn == "f32")
        for n in walk(expr)
    )


def without_unused_hosts(kernel: Kernel, keep: Collection[str] = ()) -> Kernel:
    """The kernel without the computed parameters that nothing reads. Captured values and `keep` stay, for later passes."""
    used = {
        n.name
        for part in (*kernel.regions, *kernel.body, kernel.schedule, *kernel.params)
        for n in walk(part)
        if isinstance(n, Attr)
    }

    def is_unread(field: Field) -> bool:
        match field.type:
            case Scalar(_, host) if not field.fixed and host is not None and not isinstance(host, Name):
                return field.name not in used and field.name not in keep
            case _:
                return False

    changed = without_unread(kernel, frozenset(f.name for f in kernel.params if is_unread(f)))
    return kernel if changed is kernel else renumbered(changed)


_NUMBERED: Final = re.compile(r"(.+)_\d+")


def renumbered(kernel: Kernel) -> Kernel:
    """The kernel whose numbered parameters have the names that have become free."""
    for field in kernel.params:
        match = _NUMBERED.fullmatch(field.name)
        if match is None or field.fixed or not isinstance(field.type, Scalar) or isinstance(field.type.host, Name):
            continue
        name = free_name(match[1], {f.name for f in kernel.params})
        if len(name) < len(field.name):
            kernel = _renamed(kernel, field.name, name)
    return kernel


def _renamed(kernel: Kernel, old: str, new: str) -> Kernel:
    def change(node: Node) -> Node:
        return replace(node, name=new) if node == param(old) and isinstance(node, Attr) else node

    params = tuple(rewrite(replace(f, name=new) if f.name == old else f, change) for f in kernel.params)
    return replace(kernel, params=params, regions=tuple(rewrite(r, change) for r in kernel.regions))
