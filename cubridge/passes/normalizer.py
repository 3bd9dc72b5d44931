"""A normalizer in the names of region code, and what it is made of: exponentials relative to m, degrees, denominators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from cubridge.ir.algebra.exprs import is_number, product
from cubridge.ir.nodes import Binary, Call, Expr, IntLit, Kernel, Name, Node, Unary
from cubridge.ir.walk import free_names, map_children, walk
from cubridge.passes.base import refusal
from cubridge.passes.options import RowTerm
from cubridge.passes.scale import MINUS_ONE, ONE
from cubridge.passes.terms import Algebra, Term, Terms, rebuilt

SHIFT: Final = Name("m")
SCORE: Final = Name("x")
ACC: Final = Name("acc")
EXP: Final = Name("w")
UNIT: Final = Name("u")
"""Stand for exp(x - m) and exp(-m), once `relative` has found them."""


@dataclass(frozen=True, slots=True)
class Normalizer:
    """See `RewriteNormalize`; all expressions resolved and typed."""

    weight: Expr
    rows: tuple[RowTerm, ...]
    finalize: Expr
    lse: Expr | None

    @property
    def is_shifted(self) -> bool:
        return any("m" in free_names(e) for e in (self.weight, *(r.body for r in self.rows)))

    def is_beside_constants(self, algebra: Algebra) -> bool:
        """Is a weight or a row sum relative to 0 too, so that m must not be less."""
        sums = (r.body for r in self.rows if r.kind == "sum")
        return self.is_shifted and any(UNIT.id in free_names(relative(e, algebra)) for e in (self.weight, *sums))

    def row(self, name: str) -> RowTerm | None:
        return next((r for r in self.rows if r.name == name), None)


def relative(expr: Expr, algebra: Algebra) -> Expr:
    """The expression with `w` for exp(x - m) and `u` for exp(-m). Errors: CU514 if m occurs otherwise."""

    def change(node: Node) -> Node:
        match node:
            case Call("exp", (argument,)) if "m" in free_names(argument):
                rest = algebra.terms(argument)
                if rest == (Term(MINUS_ONE, (SHIFT,)),):
                    return UNIT
                for term in (Term(ONE, (SCORE,)), Term(MINUS_ONE, (SHIFT,))):
                    rest = _without(rest, term, expr)
                return EXP if not rest else Binary("*", EXP, Call("exp", (rebuilt(rest),)))
            case _:
                return map_children(node, change)

    result = change(expr)
    assert isinstance(result, Expr)
    if "m" in free_names(result):
        raise refusal("CU514", "`m` may stand in `exp(x - m)` and `exp(-m)` alone", expr.span)
    return result


def _without(terms: Terms, term: Term, whole: Expr) -> Terms:
    if term not in terms:
        raise refusal("CU514", "an exponential with m is `exp(x - m)`, times what depends on neither", whole.span)
    at = terms.index(term)
    return terms[:at] + terms[at + 1 :]


def degree(expr: Expr) -> int | None:
    """How often `w` or `u` is a factor of `expr`: 0 if it reads neither, None if its terms differ."""
    if not free_names(expr) & {EXP.id, UNIT.id}:
        return 0
    match expr:
        case Name():
            return 1
        case Unary("-", operand) | Call("abs", (operand,)):
            return degree(operand)
        case Binary("*", left, right):
            return _sum(degree(left), degree(right), 1)
        case Binary("/", left, right):
            return _sum(degree(left), degree(right), -1)
        case Binary("**", base, IntLit(power)):
            inner = degree(base)
            return None if inner is None else inner * power
        case Binary("+" | "-", left, right) | Call("maximum" | "minimum" | "where", (*_, left, right)):
            return _common(left, right)
        case _:
            return None


def _sum(a: int | None, b: int | None, sign: int) -> int | None:
    return None if a is None or b is None else a + sign * b


def _common(left: Expr, right: Expr) -> int | None:
    if is_number(left, 0):
        return degree(right)
    if is_number(right, 0):
        return degree(left)
    a, b = degree(left), degree(right)
    return a if a == b else None


@dataclass(frozen=True, slots=True)
class Division:
    """out = acc * factor / denominator; None for a denominator of 1."""

    factor: Term
    denominator: Expr | None


def division(finalize: Expr, algebra: Algebra) -> Division | None:
    """The form of a finalize that is linear in acc; None for another one."""
    terms = algebra.terms(finalize)
    if len(terms) != 1 or terms[0].over.count(ACC) != 1:
        return None
    (term,) = terms
    over = tuple(x for x in term.over if x != ACC)
    if any("acc" in free_names(x) for x in (*over, *term.under)):
        return None
    return Division(Term(term.scale, over), product(term.under))


def default_lse(normalizer: Normalizer, kernel: Kernel) -> Normalizer:
    """With an LSE where the normalizer has one: out = acc / denominator, weights exp(x - m), and a denominator that is
    their sum and what else is relative to m, such as a sink."""
    algebra = Algebra(kernel)
    found = division(normalizer.finalize, algebra)
    if found is None or found.denominator is None or found.factor != Term(ONE) or not normalizer.is_shifted:
        return normalizer
    sums = {Name(r.name) for r in normalizer.rows if r.kind == "sum" and relative(r.body, algebra) == EXP}
    parts = [t.over[0] for t in algebra.terms(found.denominator) if t == Term(ONE, t.over) and len(t.over) == 1]
    total = [p for p in parts if p in sums or (isinstance(p, Call) and p.fn == "exp")]
    if len(total) != len(algebra.terms(found.denominator)) or relative(normalizer.weight, algebra) != EXP:
        return normalizer
    return replace(normalizer, lse=Binary("+", SHIFT, Call("log", (found.denominator,))))


def is_source_softmax(normalizer: Normalizer, kernel: Kernel) -> bool:
    """Is this the softmax that the source kernel computes, its LSE included."""
    if len(normalizer.rows) != 1 or not normalizer.is_shifted:
        return False
    algebra = Algebra(kernel)
    (row,) = normalizer.rows
    total = Name(row.name)
    weights = all(relative(e, algebra) == EXP for e in (normalizer.weight, row.body))
    plain = (
        row.kind == "sum" and row.over is None and division(normalizer.finalize, algebra) == Division(Term(ONE), total)
    )
    lse = normalizer.lse
    return weights and plain and lse is not None and set(algebra.terms(lse)) == {
        Term(ONE, (SHIFT,)), Term(ONE, (Call("log", (total,)),)),
    }  # fmt: skip


def exponentials(exprs: tuple[Expr, ...]) -> list[Expr]:
    """The arguments of exponentials that read m, in the order of their first appearance."""
    found = (n for e in exprs for n in walk(e) if isinstance(n, Call) and n.fn == "exp" and "m" in free_names(n))
    return list(dict.fromkeys(n.args[0] for n in found))
