"""A mask over bounds of rows and keys as C++ over `common/spans.cuh`: is it so of some pair, and of every one.

What has no form there is unknown, never wrong: elements then decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cubridge.backend.text.emit_types import Types
from cubridge.ir.nodes import Attr, Binary, Call, Expr, Index, Name, Node, Unary
from cubridge.ir.typecheck import Scope
from cubridge.ir.types import DType
from cubridge.ir.walk import free_names, walk

UNKNOWN: Final = "unknown_truth()"
_SPANS: Final = {DType.BOOL: "Truth", DType.I32: "IntSpan", DType.F32: "FloatSpan"}
_COMPARISONS: Final = {
    "<": "less({a}, {b})",
    ">": "less({b}, {a})",
    "<=": "less_equal({a}, {b})",
    ">=": "less_equal({b}, {a})",
    "==": "equal({a}, {b})",
    "!=": "!equal({a}, {b})",
}
_NUMBERS: Final = {
    "//": "floor_div", "floor_div": "floor_div", "%": "floor_mod", "floor_mod": "floor_mod", "minimum": "imin", "maximum": "imax",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bounds:
    """`element`: the C of an expression, as an element type if given."""

    types: Types
    element: Callable[[Expr, DType | None], str]

    def truth(self, expr: Expr) -> str:
        if self._plain(expr):
            return self._field_or_number(expr, DType.BOOL)
        match expr:
            case Binary("&" | "|" as op, left, right) if self._dtype(expr) is DType.BOOL:
                return f"({self.truth(left)} {op} {self.truth(right)})"
            case Unary("~", operand) if self._dtype(expr) is DType.BOOL:
                return f"!{self.truth(operand)}"
            case Binary(op, left, right) if op in _COMPARISONS:
                return self._compared(_COMPARISONS[op], left, right)
            case Call("where", (condition, a, b)):
                return f"choose({self.truth(condition)}, {self.truth(a)}, {self.truth(b)})"
            case _:
                return UNKNOWN

    def _compared(self, form: str, left: Expr, right: Expr) -> str:
        dtype = DType.F32 if DType.F32 in (self._dtype(left), self._dtype(right)) else DType.I32
        a, b = self._number(left, dtype), self._number(right, dtype)
        return UNKNOWN if a is None or b is None else form.format(a=a, b=b)

    def _number(self, expr: Expr, dtype: DType) -> str | None:
        """The bounds of a number; None where there is no form."""
        if self._dtype(expr) not in (DType.I32, dtype):
            return None
        if self._plain(expr):
            return self._field_or_number(expr, dtype)
        match expr:
            case Call("where", (condition, a, b)):
                return self._applied(f"choose({self.truth(condition)}, {{}}, {{}})", dtype, a, b)
            case Call("f32", (operand,)) if self._dtype(operand) is DType.I32:
                return self._applied("FloatSpan({})", DType.I32, operand)
            case _ if dtype is not DType.I32:
                return None
            case Unary("-", operand):
                return self._applied("-{}", dtype, operand)
            case Binary("+" | "-" | "*" as op, left, right):
                return self._applied(f"({{}} {op} {{}})", dtype, left, right)
            case Binary(op, left, right) if op in _NUMBERS:
                return self._applied(f"{_NUMBERS[op]}({{}}, {{}})", dtype, left, right)
            case Call(fn, (left, right)) if fn in _NUMBERS:
                return self._applied(f"{_NUMBERS[fn]}({{}}, {{}})", dtype, left, right)
            case _:
                return None

    def _applied(self, form: str, dtype: DType, *operands: Expr) -> str | None:
        texts = [self._number(x, dtype) for x in operands]
        return None if None in texts else form.format(*texts)

    def _plain(self, expr: Expr) -> bool:
        """Is it a field of rows or keys, or the same for all of them."""
        return _is_side(expr) or not any(_is_side(n) or self._has_no_edges(n) for n in walk(expr))

    def _has_no_edges(self, node: Node) -> bool:
        return isinstance(node, Index) and not has_edges(node, self.types.scope)

    def _field_or_number(self, expr: Expr, dtype: DType) -> str:
        text = self.element(expr, dtype)
        return text if _is_side(expr) else f"{_SPANS[dtype]}({text})"

    def _dtype(self, expr: Expr) -> DType:
        return self.types.of(expr).dtype


def has_edges(element: Index, scope: Scope) -> bool:
    """Does the device know the extents of the tensor, so that an element outside can be that at the edge. Else it is read only
    where the mask does."""
    name = element.base.name if isinstance(element.base, Attr) else ""
    return all(free_names(extent) <= scope.names.keys() for extent in scope.captured[name].extents)


def _is_side(node: object) -> bool:
    return isinstance(node, Attr) and node.base in (Name("row"), Name("key"))
