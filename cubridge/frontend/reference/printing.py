"""Terms as expressions of the spec, in the one readable form that a user, a test and a pass see.

j <= i + Lk - Lq        j // 8 == i // 8        abs(i - j) < W        s * D ** -0.5 + slope[h] * (j - i)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from cubridge.frontend.reference.algebra import integers, reals
from cubridge.frontend.reference.algebra.contents import shared_factor
from cubridge.frontend.reference.algebra.numbers import number, split_product
from cubridge.frontend.reference.algebra.polynomials import Terms, from_terms, terms_of
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Index,
    Load,
    Poly,
    Size,
    Symbol,
    Term,
    arena,
    const,
    is_op,
    size,
)
from cubridge.frontend.reference.forms import (
    chain,
    in_units_of_ln2,
    literal,
    negated,
    ratio,
    remainders,
    sides,
    signed_sum,
    symmetric,
    unsigned,
    upright,
    without_constant,
)
from cubridge.frontend.reference.orders import (
    PIVOTS,
    factor_rank,
    key_rank,
    monomial_rank,
    reading_order,
    summand_rank,
)
from cubridge.ir.diagnostics import InternalError
from cubridge.ir.nodes import Binary, Call, Expr, IntLit, Name, Unary
from cubridge.ir.nodes import Index as IndexExpr
from cubridge.ir.printer import print_expr
from cubridge.ir.source import NOWHERE, Span

_OPPOSITE: Final = {"==": "!=", "<": ">=", "<=": ">"}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass
class ExprWriter:
    """Writes terms. `subscript(load)` gives the name of a capture and the subscripts that stay."""

    subscript: Callable[[Load], tuple[str, tuple[Term, ...]]]
    default: Span = NOWHERE
    memo: dict[Term, Expr] = field(default_factory=dict)

    def expr(self, term: Term) -> Expr:
        found = self.memo.get(term)
        if found is None:
            found = self.memo[term] = self._expr(term)
        return found

    def span(self, term: Term) -> Span:
        place = arena().places.get(term, NOWHERE)
        return self.default if place is NOWHERE else place

    def _expr(self, term: Term) -> Expr:
        span = self.span(term)
        match term:
            case Const():
                return literal(term.value, span)
            case Size(name="G"):
                return Binary("//", Name("Hq"), Name("Hk"), span=span)
            case Size() | Index() | Symbol():
                return Name(term.name, span=span)
            case Poly():
                return self._polynomial(terms_of(term), span)
            case Load():
                name, indices = self.subscript(term)
                base = Name(name, span=span)
                return IndexExpr(base, tuple(map(self.expr, indices)), span=span) if indices else base
            case Apply():
                return self._apply(term, span)
            case _:
                raise InternalError(f"no expression for {term!r}")

    def _apply(self, term: Apply, span: Span) -> Expr:
        args = term.args
        match term.op:
            case "//" | "&":
                return Binary(term.op, self.expr(args[0]), self.expr(args[1]), span=span)
            case "imin" | "min":
                return self._nested("minimum", args, span)
            case "imax" | "max":
                return self._nested("maximum", args, span)
            case "iabs":
                return Call("abs", (self.expr(upright(args[0])),), span=span)
            case "trunc":
                return Call("i32", (self.expr(args[0]),), span=span)
            case "real":
                return self.expr(args[0])
            case "where":
                return Call("where", tuple(map(self.expr, args)), span=span)
            case ">=0":
                return self._at_least_zero(args[0], span)
            case "==0":
                return self._is_zero(args[0], "==", span)
            case "not":
                return self._not(args[0], span)
            case "and" | "or":
                return self._junction(term, span)
            case "<" | "<=" | "==":
                return self._relation(term.op, args[0], args[1], span)
            case "add":
                return self._sum(term, span)
            case "mul" | "pow":
                return self._product(term, span)
            case "power":
                return Binary("**", self.expr(args[0]), self.expr(args[1]), span=span)
            case _:
                return self._function(term.op, args[0], span)

    def _nested(self, function: str, args: tuple[Term, ...], span: Span) -> Expr:
        args = tuple(sorted(args, key=lambda a: isinstance(a, Const)))
        result = self.expr(args[0])
        for arg in args[1:]:
            result = Call(function, (result, self.expr(arg)), span=span)
        return result

    def _function(self, op: str, x: Term, span: Span) -> Expr:
        argument = self.expr(x)
        match op:
            case "exp":
                power_of_two = in_units_of_ln2(x)
                return Call("exp", (argument,), span=span) if power_of_two is None else Call(
                    "exp2", (self.expr(power_of_two),), span=span
                )  # fmt: skip
            case "sigmoid":
                return Binary("/", IntLit(1), self._logistic_denominator(x, span), span=span)
            case "truncate":
                floor, ceil = (Call(f, (argument,), span=span) for f in ("floor", "ceil"))
                return Call("where", (Binary("<", argument, IntLit(0), span=span), ceil, floor), span=span)
            case "sign":
                below = Call("where", (Binary("<", argument, IntLit(0), span=span), IntLit(-1), IntLit(0)), span=span)
                return Call("where", (Binary(">", argument, IntLit(0), span=span), IntLit(1), below), span=span)
            case "log" | "tanh" | "sin" | "cos" | "erf" | "abs" | "floor" | "ceil" | "round":
                return Call(op, (argument,), span=span)
            case _:
                raise InternalError(f"no function for {op}")

    def _logistic_denominator(self, x: Term, span: Span) -> Expr:
        """1 + exp(-x)."""
        inner = Call("exp", (self.expr(reals.neg(x)),), span=span)
        return Binary("+", IntLit(1), inner, span=span)

    # ---- integers ----------------------------------------------------------------------------------------------------

    def _polynomial(self, terms: Terms, span: Span) -> Expr:
        return signed_sum(self._monomials(terms, span), span)

    def _monomials(self, terms: Terms, span: Span) -> list[tuple[bool, Expr]]:
        """Positive monomials first; x - n * (x // n) as x % n."""
        terms, found = remainders(without_constant(terms))
        parts = [
            (c > 0, self._scaled(abs(c), Binary("%", self.expr(x), self.expr(n), span=span), span)) for c, x, n in found
        ]
        ordered = sorted(
            terms.items(), key=lambda entry: (monomial_rank(entry[0])[0], entry[1] < 0, monomial_rank(entry[0]))
        )
        return parts + [(c > 0, self._monomial(m, abs(c), span)) for m, c in ordered]

    def _monomial(self, monomial: tuple[Term, ...], scale: int, span: Span) -> Expr:
        factors = list(monomial)
        group, heads = size("G"), size("Hk")
        names: list[Expr] = []
        while group in factors and heads in factors:
            factors.remove(group)
            factors.remove(heads)
            names.append(Name("Hq"))
        names += [self.expr(f) for f in sorted(factors, key=lambda f: monomial_rank((f,)))]
        if not names:
            return IntLit(scale, span=span)
        return self._scaled(scale, chain("*", names, span), span)

    def _scaled(self, scale: int, expr: Expr, span: Span) -> Expr:
        return expr if scale == 1 else Binary("*", IntLit(scale), expr, span=span)

    # ---- predicates --------------------------------------------------------------------------------------------------

    def _at_least_zero(self, p: Term, span: Span) -> Expr:
        """Solved for a plain index; else the negative monomials below the positive ones, keys on the left."""
        terms = terms_of(p)
        for name in PIVOTS:
            pivot = next((m[0] for m in terms if len(m) == 1 and isinstance(m[0], Index) and m[0].name == name), None)
            if pivot is None or abs(terms[(pivot,)]) != 1:
                continue
            rest = integers.sub(p, integers.mul(const(terms[(pivot,)]), pivot))
            if terms[(pivot,)] < 0:
                return self._bounded(pivot, "<", rest, -1, span)
            return self._bounded(pivot, ">", integers.neg(rest), 1, span)
        below, above = sides(terms)
        if key_rank(above) < key_rank(below):
            return self._bounded(above, ">", below, 1, span)
        return self._bounded(below, "<", above, -1, span)

    def _bounded(self, left: Term, op: str, right: Term, slack: int, span: Span) -> Expr:
        """left <= right, as left < right + 1 where that drops a constant or is only a number; and its mirror."""
        of_index = bool(left.free) and isinstance(right, Const)
        if terms_of(right).get((), 0) == slack or (op == "<" and of_index):
            return Binary(op, self.expr(left), self.expr(integers.sub(right, const(slack))), span=span)
        return Binary(op + "=", self.expr(left), self.expr(right), span=span)

    def _is_zero(self, p: Term, op: str, span: Span) -> Expr:
        terms = terms_of(p)
        for sign in (1, -1):
            rest, found = remainders({m: sign * c for m, c in terms.items()})
            if len(found) == 1 and found[0][0] == 1:
                _, x, n = found[0]
                left = Binary("%", self.expr(x), self.expr(n), span=span)
                return Binary(op, left, self.expr(integers.neg(from_terms(rest))), span=span)
        if set(terms) == {(size("G"),), ()}:
            times = chain("*", [IntLit(-terms[()] // terms[(size("G"),)]), Name("Hk")], span)
            return Binary(op, Name("Hq"), Name("Hk") if terms[()] == -terms[(size("G"),)] else times, span=span)
        below, above = sides(terms)
        left, right = (above, below) if key_rank(above) < key_rank(below) else (below, above)
        return Binary(op, self.expr(left), self.expr(right), span=span)

    def _not(self, a: Term, span: Span) -> Expr:
        match a:
            case Apply(op="==0"):
                return self._is_zero(a.args[0], "!=", span)
            case Apply(op="==" | "<" | "<=" as op):
                return self._relation(_OPPOSITE[op], a.args[0], a.args[1], span)
            case _:
                return Unary("~", self.expr(a), span=span)

    def _relation(self, op: str, a: Term, b: Term, span: Span) -> Expr:
        """Of reals; a number stands on the right."""
        if isinstance(a, Const):
            op, a, b = _MIRRORED.get(op, op), b, a
        return Binary(op, self.expr(a), self.expr(b), span=span)

    def _junction(self, term: Apply, span: Span) -> Expr:
        parts = list(term.args)
        written: list[Expr] = []
        while parts:
            first = parts.pop(0)
            partner = next((x for x in parts if symmetric(first, x, term.op) is not None), None)
            if partner is None:
                written.append(self.expr(first))
                continue
            parts.remove(partner)
            found = symmetric(first, partner, term.op)
            assert found is not None
            distance, bound = found
            left = Call("abs", (self.expr(distance),), span=span)
            written.append(self._distance(left, bound, term.op, span))
        written.sort(key=reading_order)
        return chain("&" if term.op == "and" else "|", written, span)

    def _distance(self, left: Expr, bound: Term, op: str, span: Span) -> Expr:
        strict, loose, slack = ("<", "<=", -1) if op == "and" else (">", ">=", 1)
        if terms_of(bound).get((), 0) == slack or (op == "and" and isinstance(bound, Const)):
            return Binary(strict, left, self.expr(integers.sub(bound, const(slack))), span=span)
        return Binary(loose, left, self.expr(bound), span=span)

    # ---- reals -------------------------------------------------------------------------------------------------------

    def _sum(self, term: Apply, span: Span) -> Expr:
        common = shared_factor(term)
        if common != 1 and sum(not isinstance(a, Const) for a in term.args) > 1:
            return self._multiple(term, common, span)
        parts: list[tuple[bool, Expr]] = []
        for part in sorted(term.args, key=summand_rank):
            if is_op(part, "real") and isinstance(part.children()[0], Poly):
                parts += self._monomials(terms_of(part.children()[0]), span)
            else:
                positive, magnitude = unsigned(part)
                parts.append((positive, self.expr(magnitude)))
        return signed_sum(parts, span)

    def _multiple(self, term: Apply, common: Fraction, span: Span) -> Expr:
        """A number that all parts share, before the sum of what they multiply."""
        inner = self.expr(reals.mul(number(1 / common), term))
        numerator, denominator = ratio(common)
        if denominator == 1:
            return Binary("*", literal(numerator, span), inner, span=span)
        top = inner if numerator == 1 else Binary("*", literal(numerator, span), inner, span=span)
        return Binary("/", top, literal(denominator, span), span=span)

    def _product(self, term: Apply, span: Span) -> Expr:
        """s * number * factors / divisors."""
        coefficient, factors = split_product(term)
        top: list[Expr] = []
        bottom: list[Expr] = []
        numerator, denominator = ratio(coefficient)
        for base, exponent in sorted(factors, key=lambda f: factor_rank(f[0])):
            if exponent == 1 and is_op(base, "sigmoid") and len(factors) > 1:
                bottom.append(self._logistic_denominator(base.children()[0], span))
            elif exponent < 0 and exponent.denominator == 1:
                bottom.append(self._power(base, -exponent, span))
            else:
                top.append(self._power(base, exponent, span))
        if denominator != 1:
            bottom.insert(0, literal(denominator, span))
        if abs(numerator) != 1 or not top:
            leading = bool(top) and isinstance(top[0], Name) and any(isinstance(b, Symbol) for b, _ in factors)
            top.insert(1 if leading else 0, literal(numerator, span))
        elif numerator == -1:
            top[0] = negated(top[0], span)
        result = chain("*", top, span)
        for divisor in bottom:
            result = Binary("/", result, divisor, span=span)
        return result

    def _power(self, base: Term, exponent: Fraction, span: Span) -> Expr:
        written = self.expr(base)
        if exponent == 1:
            return written
        if base.free or base.reads:
            if exponent == Fraction(1, 2):
                return Call("sqrt", (written,), span=span)
            if exponent == Fraction(-1, 2):
                return Call("rsqrt", (written,), span=span)
            if exponent.denominator == 1 and 2 <= exponent <= 4:
                return chain("*", [written] * int(exponent), span)
        return Binary(
            "**", written, literal(float(exponent) if exponent.denominator > 1 else int(exponent), span), span=span
        )


def text(term: Term) -> str:
    """A term for a message; reductions as they are."""
    if term.height:
        return repr(term)
    return print_expr(ExprWriter(lambda load: (load.tensor, load.indices)).expr(term))
