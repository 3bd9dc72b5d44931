"""hoist: what does not depend on the key leaves the loop over keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Final

from cubridge.ir.algebra.normal import poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.nodes import SIZES, Assign, Attr, Binary, Call, Expr, IntLit, Kernel, Name, Node, Row, Stmt, Unary
from cubridge.ir.walk import map_children, walk
from cubridge.passes.base import Pass, PassContext
from cubridge.passes.regions import assign, free_name, with_region

_REGIONS: Final = ("score", "mask", "row_probs")
_ALIGNED: Final = Poly.atom(Name("i")) + Poly.atom(Name("Lk")) - Poly.atom(Name("Lq"))


@dataclass(frozen=True, slots=True)
class Hoist(Pass):
    """Compute once per row what only varies over rows.
    rewrite:   s = s + a * f32(j - i - Lk + Lq)   -->   i_key = i + Lk - Lq
                                                       s = s + a * f32(j - i_key)
    ensures:   the same values; integer sums are regrouped, floats are not."""

    name: ClassVar[str] = "hoist"
    example: ClassVar[str] = 'rewrite-score{score="s * 0.125 + 0.5 * f32(j - i - Lk + Lq)"},hoist'

    def run(self, kernel: Kernel, ctx: PassContext) -> Kernel:
        for name in _REGIONS:
            region = kernel.region(name)
            body: list[Stmt] = []
            hoister = _Hoister(kernel, {n.id for n in walk(region) if isinstance(n, Name)})
            for statement in region.body:
                changed = hoister.statement(statement)
                body += [*hoister.taken(), changed]
            kernel = with_region(kernel, name, body)
        return kernel


class _Hoister:
    """Rewrites the statements of one region; `taken` gives the locals that the last one needs."""

    def __init__(self, kernel: Kernel, names: set[str]) -> None:
        self.rows = {("tile", f.name) for f in kernel.tile_state if isinstance(f.type, Row)}
        self.row_names = {"i"}
        self.key_names = {"j", "s"}
        self.names = names
        self.new: list[Assign] = []
        self.known: dict[Expr, Expr] = {}

    def taken(self) -> list[Assign]:
        new, self.new = self.new, []
        return new

    def statement(self, statement: Stmt) -> Stmt:
        if not isinstance(statement, Assign):
            return statement
        if isinstance(statement.target, Name) and self._is_key(statement.value):
            self.key_names.add(statement.target.id)
        if isinstance(statement.target, Name) and self._is_row(statement.value):
            self.row_names.add(statement.target.id)
        if not self._is_key(statement.value):
            return statement
        return replace(statement, value=self._expr(statement.value))

    def _expr(self, expr: Expr) -> Expr:
        if self._is_row(expr):
            return self._row_value(expr)
        match expr:
            case Call("f32", (operand,)):
                return replace(expr, args=(self._regrouped(operand),))
            case Call("abs", (operand,)) if _is_integer(operand):
                return replace(expr, args=(self._regrouped(operand),))
            case _:

                def change(node: Node) -> Node:
                    return self._expr(node) if isinstance(node, Expr) else node

                return map_children(expr, change)

    def _regrouped(self, expr: Expr) -> Expr:
        """An integer sum as its part over keys, and one row value."""
        value = poly(expr)
        keys = Poly(tuple(t for t in value.terms if any(self._is_key(a) for a in t[0])))
        rest = value - keys
        if not keys.terms or not any(self._is_row(a) for a in rest.atoms()):
            return self._expr(expr) if isinstance(expr, Call) else expr
        sign = next(c for m, c in rest.terms if any(self._is_row(a) for a in m))
        negative = keys.terms[0][1] > 0 and sign < 0
        row = self._row_value(to_expr(-rest if negative else rest))
        if negative:
            return Binary("-", to_expr(keys), row)
        if keys.terms[0][1] < 0:
            return Binary("-", row, to_expr(-keys))
        return Binary("+", row, to_expr(keys))

    def _row_value(self, value: Expr) -> Expr:
        """The value itself if it is at hand, else the local that holds it."""
        if isinstance(value, Name | Attr | Unary) or not any(isinstance(n, Binary | Call) for n in walk(value)):
            return value
        if value not in self.known:
            name = "i_key" if _is_integer(value) and poly(value).equals(_ALIGNED) else "row_value"
            self.known[value] = Name(free_name(name, self.names))
            self.names.add(free_name(name, self.names))
            self.new.append(assign(self.known[value], value))
        return self.known[value]

    def _is_row(self, expr: Expr) -> bool:
        """Does the value vary over rows and over nothing else."""
        nodes = list(walk(expr))
        if self._is_key(expr) or any(isinstance(n, Name) and n.id in ("o", "e", "row") for n in nodes):
            return False
        return any(self._is_row_leaf(n) for n in nodes)

    def _is_key(self, expr: Expr) -> bool:
        return any(isinstance(n, Name) and n.id in self.key_names for n in walk(expr))

    def _is_row_leaf(self, node: Node) -> bool:
        match node:
            case Name(name):
                return name in self.row_names
            case Attr(Name(scope), name):
                return (scope, name) in self.rows
            case _:
                return False


def _is_integer(expr: Expr) -> bool:
    """Is an expression of indices and sizes alone, in integer operations."""
    match expr:
        case Binary(op, left, right):
            return op in ("+", "-", "*", "//", "%") and _is_integer(left) and _is_integer(right)
        case Name(name):
            return name in ("i", "j", *SIZES)
        case Call("minimum" | "maximum" | "abs", args):
            return all(_is_integer(a) for a in args)
        case Unary("-", operand):
            return _is_integer(operand)
        case _:
            return isinstance(expr, IntLit)
