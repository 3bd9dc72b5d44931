"""Divisions that round towards zero, as compilers write those by powers of two: a number of key tiles that counts only where it is
positive is the same by division that rounds down, which is how CuIR says it."""

from __future__ import annotations

from dataclasses import dataclass

from cubridge.frontend.ptx.integers import sign_width
from cubridge.ir.algebra.normal import extremum, floor_div, poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.nodes import Binary, Call, Expr, IntLit
from cubridge.ir.source import Span
from cubridge.ir.walk import rewrite, walk


@dataclass(frozen=True, slots=True)
class Rounding:
    """Divisions towards zero of what is positive wherever a block has a key tile."""

    known: frozenset[Expr] = frozenset()

    def down(self, value: Poly) -> Poly:
        """A number of a block with a key tile; the same where it has other such divisions."""
        if not truncations(value) or not truncations(value) <= self.known:
            return value
        return poly(rewrite(to_expr(value), _down))  # pyright: ignore[reportArgumentType]


def rounded_down(count: Poly, span: Span) -> tuple[Poly, Rounding]:
    """A number of key tiles that counts where it is positive. Errors: CU853 for one whose sign another rounding might change."""
    found = _positive(count)
    if truncations(found):
        message = "the number of key tiles is rounded towards zero in a form that is not read"
        raise CuError(Diagnostic("CU853", message, span))
    return found, Rounding(frozenset(truncations(count)))


def _positive(count: Poly) -> Poly:
    """The same where either is positive: of a truncated division, or of the least of several numbers."""
    match count.terms:
        case (((Call("minimum", (left, right)),), 1),):
            return extremum("minimum", _positive(poly(left)), _positive(poly(right)))
        case _:
            pass
    for monomial, factor in count.terms:
        if len(monomial) == 1 and factor == 1 and (parts := _parts(monomial[0])) is not None:
            dividend, rest, unit = parts
            if (count.without(monomial) * unit + rest).equals(dividend):
                return floor_div(dividend, Poly.constant(unit))
    return count


def truncations(value: Poly) -> set[Expr]:
    return {atom for atom in walk(to_expr(value)) if isinstance(atom, Binary) and _parts(atom) is not None}


def _parts(atom: Expr) -> tuple[Poly, Poly, int] | None:
    """Of (y + (x < 0 ? d - 1 : 0)) // d, where x and y differ by a multiple of d: x, y and d."""
    match atom:
        case Binary("//", inner, IntLit(unit)):
            for monomial, factor in poly(inner).terms:
                match monomial:
                    case (Binary("%", Binary("//", dividend, _) as sign, IntLit(size)),) if (
                        size == unit and factor == 1 and sign_width(Poly.atom(sign)) is not None
                    ):
                        return poly(dividend), poly(inner).without(monomial), unit
                    case _:
                        pass
        case _:
            pass
    return None


def _down(node: object) -> object:
    parts = _parts(node) if isinstance(node, Binary) else None
    return node if parts is None else to_expr(floor_div(parts[1], Poly.constant(parts[2])))
