"""How a term answers to a change of one row constant t: by a factor exp(c t), by an addend c t, or otherwise.

This is the proof that softmax may be computed with any row shift. Source: softmax(x + t) = softmax(x), term by term.
"""

from __future__ import annotations

import math
from fractions import Fraction

from cubridge.frontend.reference.algebra.numbers import split_product
from cubridge.frontend.reference.algebra.terms import Apply, Const, Reduce, Symbol, Term

ZERO = Fraction(0)


class Scaling:
    """Answers about one symbol; memoised."""

    def __init__(self, symbol: Symbol) -> None:
        self.symbol = symbol
        self.name = "$" + symbol.name
        self.factors: dict[Term, Fraction | None] = {}
        self.addends: dict[Term, Fraction | None] = {}

    def factor(self, term: Term) -> Fraction | None:
        """c with term(t) = exp(c t) term(0); None where there is none that can be shown."""
        if self.name not in term.reads:
            return ZERO
        if term not in self.factors:
            self.factors[term] = self._factor(term)
        return self.factors[term]

    def addend(self, term: Term) -> Fraction | None:
        """c with term(t) = c t + term(0)."""
        if self.name not in term.reads:
            return ZERO
        if term not in self.addends:
            self.addends[term] = self._addend(term)
        return self.addends[term]

    def invariant(self, term: Term) -> bool:
        return self.factor(term) == 0 or self.addend(term) == 0

    def _factor(self, term: Term) -> Fraction | None:
        match term:
            case Apply(op="exp"):
                return self.addend(term.args[0])
            case Apply(op="mul"):
                parts = [self.factor(a) for a in term.args]
                return None if None in parts else sum((p for p in parts if p is not None), ZERO)
            case Apply(op="pow"):
                exponent, base = term.args[1], self.factor(term.args[0])
                assert isinstance(exponent, Const)
                return None if base is None else base * Fraction(exponent.value)
            case Apply(op="add"):
                return self._common([self.factor(a) for a in term.args])
            case Apply(op="where") if self.invariant(term.args[0]):
                return self._common([self.factor(a) for a in term.args[1:] if not _is_zero(a)])
            case Apply(op="max" | "min"):
                return self._common([self.factor(a) for a in term.args if not _is_zero(a)])
            case Reduce():
                return self.factor(term.body)
            case Apply(op="abs"):
                return self.factor(term.args[0])
            case Apply():
                return ZERO if all(self.invariant(a) for a in term.args) else None
            case _:
                return None

    def _addend(self, term: Term) -> Fraction | None:
        match term:
            case Symbol() if term is self.symbol:
                return Fraction(1)
            case Apply(op="log"):
                return self.factor(term.args[0])
            case Apply(op="add"):
                parts = [self.addend(a) for a in term.args]
                return None if None in parts else sum((p for p in parts if p is not None), ZERO)
            case Apply(op="mul"):
                number, factors = split_product(term)
                if len(factors) == 1 and factors[0][1] == 1:
                    inner = self.addend(factors[0][0])
                    return None if inner is None else number * inner
            case Apply(op="max" | "min"):
                return self._common([self.addend(a) for a in term.args])
            case Apply(op="where") if self.invariant(term.args[0]):
                return self._common([self.addend(a) for a in term.args[1:] if not _is_infinite(a)])
            case Reduce(kind="max" | "min"):
                return self.addend(term.body)
            case _:
                pass
        if isinstance(term, Apply) and all(self.invariant(a) for a in term.args):
            return ZERO
        return None

    @staticmethod
    def _common(parts: list[Fraction | None]) -> Fraction | None:
        return parts[0] if parts and all(p is not None and p == parts[0] for p in parts) else None


def _is_infinite(term: Term) -> bool:
    """It stays what it is, whatever is added."""
    return isinstance(term, Const) and math.isinf(term.value)


def _is_zero(term: Term) -> bool:
    return isinstance(term, Const) and term.value == 0
