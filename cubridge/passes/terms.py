"""Float expressions as sums of terms: a host factor times device factors. Host factors spread over sums, so that each term
is left with one number that the host computes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from cubridge.ir.algebra.exprs import is_number, product
from cubridge.ir.algebra.normal import normal
from cubridge.ir.nodes import COMPARISONS, Binary, Call, Expr, FloatLit, IntLit, Kernel, Node, Unary
from cubridge.ir.walk import free_names, map_children
from cubridge.passes.scale import MINUS_ONE, ONE, Scale, host_value, scale_of


@dataclass(frozen=True, slots=True)
class Term:
    """`scale` times the product of `over`, divided by each of `under`."""

    scale: Scale
    over: tuple[Expr, ...] = ()
    under: tuple[Expr, ...] = ()

    def times(self, other: Term) -> Term:
        return Term(self.scale * other.scale, self.over + other.over, self.under + other.under)

    def inverse(self) -> Term:
        return Term(self.scale**-1, self.under, self.over)

    @property
    def is_negative(self) -> bool:
        return self.scale.coefficient < 0


Terms = tuple[Term, ...]
_MAX_POWER = 8
"""The largest power that is written as a product."""


def scaled(terms: Iterable[Term], by: Scale) -> Terms:
    return tuple(replace(t, scale=t.scale * by) for t in terms)


@dataclass(frozen=True, slots=True)
class Algebra:
    """Sums of terms over the values that the launch of one kernel knows."""

    kernel: Kernel

    def terms(self, expr: Expr) -> Terms:
        """The terms of a float expression, its inner expressions in normal form too."""
        host = host_value(expr, self.kernel)
        if host is not None:
            return (Term(scale_of(host)),)
        match expr:
            case Unary("-", operand):
                return scaled(self.terms(operand), MINUS_ONE)
            case Binary("+", left, right):
                return self.terms(left) + self.terms(right)
            case Binary("-", left, right):
                return self.terms(left) + scaled(self.terms(right), MINUS_ONE)
            case Binary("*", left, right):
                return self._product(self.terms(left), self.terms(right))
            case Binary("/", left, right):
                return self._product(self.terms(left), (self._one(self.terms(right)).inverse(),))
            case Binary("**", base, IntLit(power)) if 1 <= power <= _MAX_POWER:
                factor = self._one(self.terms(base))
                return (Term(factor.scale**power, factor.over * power, factor.under * power),)
            case Call("f32", (operand,)):
                return (Term(ONE, (Call("f32", (normal(operand),)),)),)
            case Call("maximum" | "minimum", (operand, zero)) if is_number(zero, 0):
                return self._homogeneous(expr, self.terms(operand), zero)
            case Call("abs", (operand,)):
                return self._homogeneous(expr, self.terms(operand))
            case _:
                return (Term(ONE, (self._inside(expr),)),)

    def _homogeneous(self, call: Call, operand: Terms, *others: Expr) -> Terms:
        """maximum(c * a, 0) as c * maximum(a, 0), for a factor c that is surely positive."""
        factor = operand[0].scale.positive_part if len(operand) == 1 else ONE
        return (Term(factor, (replace(call, args=(rebuilt(scaled(operand, factor**-1)), *others)),)),)

    def _product(self, left: Terms, right: Terms) -> Terms:
        if len(right) == 1 and not (right[0].over or right[0].under):
            return scaled(left, right[0].scale)
        if len(left) == 1 and not (left[0].over or left[0].under):
            return scaled(right, left[0].scale)
        return (self._one(left).times(self._one(right)),)

    def _one(self, terms: Terms) -> Term:
        """A sum as one term: itself a factor, its common host factor taken out."""
        if len(terms) == 1:
            return terms[0]
        common = terms[0].scale if all(t.scale == terms[0].scale for t in terms) else ONE
        return Term(common, (rebuilt(scaled(terms, common**-1)),))

    def _inside(self, expr: Expr) -> Expr:
        """The expression with the float arguments of its operation in normal form."""
        if isinstance(expr, Binary) and expr.op in (*COMPARISONS, "&", "|", "^", "//", "%"):
            return expr

        def change(node: Node) -> Node:
            return self.normal(node) if isinstance(node, Expr) else node

        return map_children(expr, change) if isinstance(expr, Call) else expr

    def normal(self, expr: Expr) -> Expr:
        """The expression rebuilt from its terms."""
        if isinstance(expr, Binary) and expr.op in (*COMPARISONS, "&", "|", "^", "//", "%"):
            return expr
        return rebuilt(self.terms(expr))


def rebuilt(terms: Terms) -> Expr:
    """The expression of a sum, a term that is not negative first."""
    if not terms:
        return FloatLit(0.0)
    ordered = sorted(terms, key=lambda t: t.is_negative) if terms[0].is_negative else list(terms)
    first, *rest = ordered
    result = _signed(first) if first.is_negative else _unsigned(first)
    for term in rest:
        result = Binary("-" if term.is_negative else "+", result, _unsigned(term))
    return result


def _signed(term: Term) -> Expr:
    """The term with its minus before it; the minus of a host value inside of it."""
    return Unary("-", _unsigned(term)) if term.over or term.under else term.scale.to_expr()


def _unsigned(term: Term) -> Expr:
    scale = Scale(abs(term.scale.coefficient), term.scale.powers)
    return _device(term, None if scale == ONE and (term.over or term.under) else scale.to_expr())


def _device(term: Term, host: Expr | None) -> Expr:
    """`over * host / under`; the host factor beside the first device factor, where the loop-invariant ones are."""
    factors = sorted(term.over, key=_varies)
    over = [*factors[:1], *([host] if host is not None else []), *factors[1:]]
    result = product(over) or FloatLit(1.0)
    for divisor in term.under:
        result = Binary("/", result, divisor)
    return result


def _varies(factor: Expr) -> int:
    """0 for a value of the query tile, 1 for one of the row, 2 for one of the score."""
    names = free_names(factor)
    return 2 if names & {"s", "x", "j", "w"} else 1 if names & {"i", "o"} else 0
