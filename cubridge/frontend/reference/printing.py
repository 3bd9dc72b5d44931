"""Terms as expressions of the spec, in the one readable form that a user, a test and a pass see.

j <= i + Lk - Lq        j // 8 == i // 8        abs(i - j) < W        s * D ** -0.5 + slope[h] * (j - i)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from cubridge.frontend.reference.algebra import integers, reals
from cubridge.frontend.reference.algebra.numbers import split_product
from cubridge.frontend.reference.algebra.polynomials import Terms, divide, from_terms, terms_of
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Index,
    Load,
    Poly,
    Size,
    Sort,
    Symbol,
    Term,
    apply,
    arena,
    const,
    is_const,
    is_op,
    size,
)
from cubridge.ir.diagnostics import InternalError
from cubridge.ir.nodes import Binary, BoolLit, Call, Expr, FloatLit, IntLit, Name, Unary
from cubridge.ir.nodes import Index as IndexExpr
from cubridge.ir.printer import print_expr
from cubridge.ir.source import NOWHERE, Span

_OPPOSITE: Final = {"==": "!=", "<": ">=", "<=": ">"}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_LN2: Final = math.log(2.0)
_PIVOTS: Final = ("j", "i", "h", "b")
"""The index that a relation is solved for, first choice first."""


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
                return _number(term.value, span)
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
                return Call("abs", (self.expr(_upright(args[0])),), span=span)
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
                power_of_two = _in_units_of_ln2(x)
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
        return _signed_sum(self._monomials(terms, span), span)

    def _monomials(self, terms: Terms, span: Span) -> list[tuple[bool, Expr]]:
        """Positive monomials first; x - n * (x // n) as x % n."""
        terms, remainders = _remainders(_without_constant(terms))
        parts = [
            (c > 0, self._scaled(abs(c), Binary("%", self.expr(x), self.expr(n), span=span), span))
            for c, x, n in remainders
        ]
        ordered = sorted(
            terms.items(), key=lambda entry: (_monomial_rank(entry[0])[0], entry[1] < 0, _monomial_rank(entry[0]))
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
        names += [self.expr(f) for f in sorted(factors, key=lambda f: _monomial_rank((f,)))]
        if not names:
            return IntLit(scale, span=span)
        return self._scaled(scale, _chain("*", names, span), span)

    def _scaled(self, scale: int, expr: Expr, span: Span) -> Expr:
        return expr if scale == 1 else Binary("*", IntLit(scale), expr, span=span)

    # ---- predicates --------------------------------------------------------------------------------------------------

    def _at_least_zero(self, p: Term, span: Span) -> Expr:
        """Solved for a plain index; else the negative monomials below the positive ones, keys on the left."""
        terms = terms_of(p)
        for name in _PIVOTS:
            pivot = next((m[0] for m in terms if len(m) == 1 and isinstance(m[0], Index) and m[0].name == name), None)
            if pivot is None or abs(terms[(pivot,)]) != 1:
                continue
            rest = integers.sub(p, integers.mul(const(terms[(pivot,)]), pivot))
            if terms[(pivot,)] < 0:
                return self._bounded(pivot, "<", rest, -1, span)
            return self._bounded(pivot, ">", integers.neg(rest), 1, span)
        below, above = _sides(terms)
        if _key_rank(above) < _key_rank(below):
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
            rest, remainders = _remainders({m: sign * c for m, c in terms.items()})
            if len(remainders) == 1 and remainders[0][0] == 1:
                _, x, n = remainders[0]
                left = Binary("%", self.expr(x), self.expr(n), span=span)
                return Binary(op, left, self.expr(integers.neg(from_terms(rest))), span=span)
        if set(terms) == {(size("G"),), ()}:
            times = _chain("*", [IntLit(-terms[()] // terms[(size("G"),)]), Name("Hk")], span)
            return Binary(op, Name("Hq"), Name("Hk") if terms[()] == -terms[(size("G"),)] else times, span=span)
        below, above = _sides(terms)
        left, right = (above, below) if _key_rank(above) < _key_rank(below) else (below, above)
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
            partner = next((x for x in parts if _symmetric(first, x, term.op) is not None), None)
            if partner is None:
                written.append(self.expr(first))
                continue
            parts.remove(partner)
            found = _symmetric(first, partner, term.op)
            assert found is not None
            distance, bound = found
            left = Call("abs", (self.expr(distance),), span=span)
            written.append(self._distance(left, bound, term.op, span))
        written.sort(key=_reading_order)
        return _chain("&" if term.op == "and" else "|", written, span)

    def _distance(self, left: Expr, bound: Term, op: str, span: Span) -> Expr:
        strict, loose, slack = ("<", "<=", -1) if op == "and" else (">", ">=", 1)
        if terms_of(bound).get((), 0) == slack or (op == "and" and isinstance(bound, Const)):
            return Binary(strict, left, self.expr(integers.sub(bound, const(slack))), span=span)
        return Binary(loose, left, self.expr(bound), span=span)

    # ---- reals -------------------------------------------------------------------------------------------------------

    def _sum(self, term: Apply, span: Span) -> Expr:
        parts: list[tuple[bool, Expr]] = []
        for part in sorted(term.args, key=_summand_rank):
            if is_op(part, "real") and isinstance(part.children()[0], Poly):
                parts += self._monomials(terms_of(part.children()[0]), span)
            else:
                positive, unsigned = _unsigned(part)
                parts.append((positive, self.expr(unsigned)))
        return _signed_sum(parts, span)

    def _product(self, term: Apply, span: Span) -> Expr:
        """s * number * factors / divisors."""
        number, factors = split_product(term)
        top: list[Expr] = []
        bottom: list[Expr] = []
        numerator, denominator = _ratio(number)
        for base, exponent in sorted(factors, key=lambda f: _factor_rank(f[0])):
            if exponent == 1 and is_op(base, "sigmoid") and len(factors) > 1:
                bottom.append(self._logistic_denominator(base.children()[0], span))
            elif exponent < 0 and exponent.denominator == 1:
                bottom.append(self._power(base, -exponent, span))
            else:
                top.append(self._power(base, exponent, span))
        if denominator != 1:
            bottom.insert(0, _number(denominator, span))
        if abs(numerator) != 1 or not top:
            leading = bool(top) and isinstance(top[0], Name) and any(isinstance(b, Symbol) for b, _ in factors)
            top.insert(1 if leading else 0, _number(numerator, span))
        elif numerator == -1:
            top[0] = _negated(top[0], span)
        result = _chain("*", top, span)
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
                return _chain("*", [written] * int(exponent), span)
        return Binary(
            "**", written, _number(float(exponent) if exponent.denominator > 1 else int(exponent), span), span=span
        )


def text(term: Term) -> str:
    """A term for a message; reductions as they are."""
    if term.height:
        return repr(term)
    return print_expr(ExprWriter(lambda load: (load.tensor, load.indices)).expr(term))


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _number(value: bool | int | float | Fraction, span: Span) -> Expr:
    """Reals that are whole numbers as integers; others to 15 digits where that is the same float or nearly."""
    if isinstance(value, bool):
        return BoolLit(value, span=span)
    if isinstance(value, int):
        return IntLit(value, span=span)
    if isinstance(value, Fraction):
        return _number(float(value), span)
    if math.isnan(value):
        return Name("nan", span=span)
    if math.isinf(value):
        return Name("inf", span=span) if value > 0 else Unary("-", Name("inf", span=span), span=span)
    if value == int(value) and abs(value) < 1e9:
        return IntLit(int(value), span=span)
    return FloatLit(float(f"{value:.15g}"), span=span)


def _ratio(number: Fraction) -> tuple[float | int, int]:
    """(numerator, denominator) as written: 1 / 3 stays a ratio, 1 / 8 becomes 0.125."""
    if (
        number.denominator & (number.denominator - 1) == 0
        or number.denominator > 10**6
        or abs(number.numerator) > 10**6
    ):
        return float(number), 1
    return number.numerator, number.denominator


def _in_units_of_ln2(x: Term) -> Term | None:
    """y with x = y * ln 2, where the number is one that `2 ** y` would have left."""
    number, factors = split_product(x)
    ratio = float(number) / _LN2
    exact = Fraction(ratio).limit_denominator(1024)
    if not exact or abs(float(exact) - ratio) > 1e-14 * abs(ratio) or not factors:
        return None
    return reals.join_product(exact, dict(factors))


# ---- forms -----------------------------------------------------------------------------------------------------------


def _chain(op: str, parts: list[Expr], span: Span) -> Expr:
    result = parts[0]
    for part in parts[1:]:
        result = Binary(op, result, part, span=span)
    return result


def _negated(expr: Expr, span: Span) -> Expr:
    match expr:
        case IntLit():
            return IntLit(-expr.value, span=span)
        case FloatLit():
            return FloatLit(-expr.value, span=span)
        case _:
            return Unary("-", expr, span=span)


def _signed_sum(parts: list[tuple[bool, Expr]], span: Span) -> Expr:
    if not parts:
        return IntLit(0, span=span)
    at = next((n for n, (positive, _) in enumerate(parts) if positive), 0)
    parts = [parts[at], *parts[:at], *parts[at + 1 :]]
    positive, result = parts[0]
    if not positive:
        result = _negated(result, span)
    for positive, part in parts[1:]:
        result = Binary("+" if positive else "-", result, part, span=span)
    return result


def _unsigned(part: Term) -> tuple[bool, Term]:
    """(is it added?, its magnitude)."""
    if isinstance(part, Const):
        return part.value >= 0, const(abs(part.value))
    if is_op(part, "real"):
        inner = part.children()[0]
        return (False, reals.neg(part)) if _negative(inner) else (True, part)
    number, _ = split_product(part)
    return (True, part) if number > 0 else (False, reals.neg(part))


def _negative(p: Term) -> bool:
    return all(c < 0 for c in terms_of(p).values())


def _remainders(terms: Terms) -> tuple[Terms, list[tuple[int, Term, Term]]]:
    """Takes c * (x % n) out of a polynomial, n * (x // n) being among its monomials: (rest, [(c, x, n)])."""
    rest = dict(terms)
    found: list[tuple[int, Term, Term]] = []
    for monomial, c in terms.items():
        for quotient in monomial:
            if not (isinstance(quotient, Apply) and quotient.op == "//" and monomial in rest):
                continue
            x, n = quotient.args
            others = list(monomial)
            others.remove(quotient)
            times, left = divide(from_terms({tuple(others): -c}), n)
            if not (isinstance(times, Const) and is_const(left, 0) and times.value):
                continue
            whole = {m: k * int(times.value) for m, k in terms_of(x).items()}
            if all(rest.get(m, 0) == k for m, k in whole.items()):
                rest = {m: k for m, k in rest.items() if m not in whole and m != monomial}
                found.append((int(times.value), x, n))
    return rest, found


def _without_constant(terms: Terms) -> Terms:
    """c * ((x + n - 1) // n) - c as c * ((x - 1) // n)."""
    constant = terms.get((), 0)
    if not constant:
        return terms
    for monomial, c in terms.items():
        if len(monomial) == 1 and is_op(monomial[0], "//") and constant % c == 0:
            x, n = monomial[0].children()
            moved = apply("//", (integers.add(x, integers.mul(const(constant // c), n)), n), Sort.INT)
            return {m: k for m, k in terms.items() if m not in (monomial, ())} | {(moved,): c}
    return terms


def _sides(terms: Terms) -> tuple[Term, Term]:
    """(magnitude of the negative monomials, the positive ones)."""
    below = from_terms({m: -c for m, c in terms.items() if c < 0})
    above = from_terms({m: c for m, c in terms.items() if c > 0})
    return below, above


def _upright(p: Term) -> Term:
    """Of p and -p, which have one absolute value, the one that starts with i."""
    terms = terms_of(p)
    row = next((c for m, c in terms.items() if len(m) == 1 and isinstance(m[0], Index) and m[0].name == "i"), 0)
    return integers.neg(p) if row < 0 or (row == 0 and all(c < 0 for c in terms.values())) else p


def _symmetric(a: Term, b: Term, op: str) -> tuple[Term, Term] | None:
    """(t, c) where a, b are c + t >= 0 and c - t >= 0 (and), or t - c >= 0 and -t - c >= 0 (or)."""
    if not (is_op(a, ">=0") and is_op(b, ">=0")):
        return None
    p, q = a.children()[0], b.children()[0]
    twice_bound, twice_distance = integers.add(p, q), integers.sub(p, q)
    if op == "or":
        twice_bound = integers.neg(twice_bound)
    if twice_distance.reads or not {"i", "j"} <= twice_distance.free or twice_bound.free & {"i", "j"}:
        return None
    bound, left = divide(twice_bound, const(2))
    distance, odd = divide(twice_distance, const(2))
    if not (is_const(left, 0) and is_const(odd, 0)) or terms_of(distance).get((), 0):
        return None
    return _upright(distance), bound


# ---- orders ----------------------------------------------------------------------------------------------------------

_INDEX_RANK: Final[Mapping[str, int]] = {"j": 0, "i": 1, "h": 2, "b": 3}
_SIZE_RANK: Final[Mapping[str, int]] = {"Lk": 0, "Lq": 1, "D": 2, "Hk": 3, "G": 4, "B": 5}


def _monomial_rank(monomial: tuple[Term, ...]) -> tuple[int, ...]:
    """Indices, then computed atoms, then sizes, then the constant."""
    if not monomial:
        return (9,)
    return min(_atom_rank(a) for a in monomial)


def _atom_rank(atom: Term) -> tuple[int, ...]:
    match atom:
        case Index():
            return 0, _INDEX_RANK.get(atom.name, 9)
        case Load():
            return (1, *_free_rank(atom), atom.digest)
        case Size():
            return 3, _SIZE_RANK.get(atom.name, 9)
        case _:
            return (2, *_free_rank(atom), atom.digest)


def _free_rank(term: Term) -> tuple[int, ...]:
    return tuple(name not in term.free for name in _PIVOTS)


def _key_rank(term: Term) -> tuple[int, ...]:
    """What stands on the left of a relation: the side with the key, then the side with the row."""
    return (*_free_rank(term), is_const(term))


def _summand_rank(term: Term) -> tuple[int, ...]:
    return (
        isinstance(term, Const),
        not isinstance(term, Symbol),
        not any(name.startswith("$") for name in term.reads),
        not term.reads,
        term.sort is not Sort.REAL,
        *_free_rank(term),
        term.digest,
    )


def _factor_rank(base: Term) -> tuple[int, ...]:
    computed = any(name.startswith("$") for name in base.reads)
    return not isinstance(base, Symbol), computed, bool(base.free), is_op(base, "real"), base.digest


def _reading_order(expr: Expr) -> tuple[int, str]:
    text = print_expr(expr)
    return len(text), text
