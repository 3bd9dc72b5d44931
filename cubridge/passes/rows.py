"""Bounds, as CuIR expressions, of integers and predicates over the rows of one query tile.

A row index `i` runs from `tile.q_start` to `tile.q_start + BLOCK_Q - 1`; rows past the last query are included, which can only
widen what is bounded. What depends on data of a row has no bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cubridge.ir.algebra.exprs import MIRRORED, both, either, negated, where
from cubridge.ir.algebra.facts import Facts
from cubridge.ir.algebra.normal import compared, extremum, floor_div, poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.algebra.signs import nonnegative, positive
from cubridge.ir.nodes import Attr, Binary, BoolLit, Call, Expr, Kernel, Name, Row, Unary
from cubridge.ir.walk import walk
from cubridge.passes.shape import tile_shape

Q_START: Final = Attr(Name("tile"), "q_start")
ROW: Final = Name("i")


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows of a query tile of `block_q` rows. `row_fields`: fields of the tile that hold one value per row."""

    facts: Facts
    block_q: Expr
    row_fields: frozenset[str]

    @staticmethod
    def of(kernel: Kernel) -> RowRange:
        fields = frozenset(f.name for f in kernel.tile_state if isinstance(f.type, Row))
        return RowRange(Facts.of(kernel), tile_shape(kernel).queries, fields)

    # ---- what varies -------------------------------------------------------------------------------------------------

    def varies(self, expr: Expr) -> bool:
        """Does the value differ between rows of a tile."""
        return any(n == ROW or self._is_row_data(n) for n in walk(expr))

    def _is_row_data(self, node: object) -> bool:
        match node:
            case Attr(Name("tile"), name):
                return name in self.row_fields
            case Attr(Name("row"), _):
                return True
            case _:
                return False

    # ---- integers ----------------------------------------------------------------------------------------------------

    def bound(self, value: Poly, high: bool) -> Poly | None:
        """An upper bound over the rows (`high`), or a lower one; None where there is none."""
        total = Poly(())
        for monomial, coefficient in value.terms:
            bound = self._monomial(monomial, high == (coefficient > 0))
            if bound is None:
                return None
            total = total + bound * coefficient
        return total

    def _monomial(self, monomial: tuple[Expr, ...], high: bool) -> Poly | None:
        fixed = [a for a in monomial if not self.varies(a)]
        varying = [a for a in monomial if self.varies(a)]
        factor = Poly(((tuple(fixed), 1),))
        if not varying:
            return factor
        if len(varying) > 1 or (fixed and not nonnegative(factor, self.facts)):
            return None
        bound = self._atom(varying[0], high)
        return None if bound is None else factor * bound

    def _atom(self, atom: Expr, high: bool) -> Poly | None:
        match atom:
            case Name("i"):
                return Poly.atom(Q_START) + (poly(self.block_q) - 1 if high else 0)
            case Binary("//", value, by) if self._is_positive(by):
                bound = self.bound(poly(value), high)
                return None if bound is None else floor_div(bound, poly(by))
            case Binary("%", value, by) if self._is_positive(by):
                return poly(by) - 1 if high else Poly(())
            case Call("minimum" | "maximum" as fn, (left, right)):
                return self._extremum(fn, left, right, high)
            case Call("abs", (operand,)):
                return self._absolute(poly(operand), high)
            case Call("where", (condition, then, otherwise)):
                return self._choice(condition, then, otherwise, high)
            case _:
                return None

    def _is_positive(self, expr: Expr) -> bool:
        return not self.varies(expr) and positive(poly(expr), self.facts)

    def _extremum(self, fn: str, left: Expr, right: Expr, high: bool) -> Poly | None:
        a, b = self.bound(poly(left), high), self.bound(poly(right), high)
        if a is not None and b is not None:
            return extremum(fn, a, b)
        if (fn == "minimum") == high:
            return a if a is not None else b
        return None

    def _absolute(self, value: Poly, high: bool) -> Poly | None:
        top, bottom = self.bound(value, True), self.bound(value, False)
        if top is None or bottom is None:
            return None if high else Poly(())
        least = extremum("maximum", bottom, -top)
        return extremum("maximum", top, -bottom) if high else extremum("maximum", least, Poly(()))

    def _choice(self, condition: Expr, then: Expr, otherwise: Expr, high: bool) -> Poly | None:
        a, b = self.bound(poly(then), high), self.bound(poly(otherwise), high)
        if a is None or b is None:
            return None
        if not self.varies(condition):
            return poly(where(condition, to_expr(a), to_expr(b)))
        return extremum("maximum" if high else "minimum", a, b)

    # ---- predicates --------------------------------------------------------------------------------------------------

    def somewhere(self, condition: Expr) -> Expr:
        """True wherever `condition`, which does not read j, holds for some row of the tile."""
        return self._truth(condition, True)

    def everywhere(self, condition: Expr) -> Expr:
        """True only where `condition`, which does not read j, holds for every row of the tile."""
        return self._truth(condition, False)

    def _truth(self, condition: Expr, some: bool) -> Expr:
        if not self.varies(condition):
            return condition
        match condition:
            case Binary("&", left, right):
                return both(self._truth(left, some), self._truth(right, some))
            case Binary("|", left, right):
                return either(self._truth(left, some), self._truth(right, some))
            case Unary("~", operand) if negated(operand) != condition:
                return self._truth(negated(operand), some)
            case Binary(op, left, right) if op in MIRRORED:
                return self._comparison(op, poly(left) - poly(right), some)
            case _:
                return BoolLit(some)

    def _comparison(self, op: str, difference: Poly, some: bool) -> Expr:
        """Whether `difference op 0` for some row, or for all."""
        low, high = self.bound(difference, False), self.bound(difference, True)
        match op:
            case "<" | "<=":
                return _one_sided(op, low if some else high, some, high=not some)
            case ">" | ">=":
                return _one_sided(op, high if some else low, some, high=some)
            case "==":
                return both(self._comparison("<=", difference, some), self._comparison(">=", difference, some))
            case _:
                return either(self._comparison("<", difference, some), self._comparison(">", difference, some))


def _one_sided(op: str, bound: Poly | None, some: bool, high: bool) -> Expr:
    """`bound op 0`. A high bound ends in `- 1`, the last row of the tile, which another comparison takes in."""
    if bound is None:
        return BoolLit(some)
    if high and op in ("<", ">="):
        return compared("<=" if op == "<" else ">", bound + 1)
    return compared(op, bound)
