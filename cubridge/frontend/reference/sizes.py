"""Symbolic sizes of torch (sympy expressions) as terms."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import reduce
from typing import Any

import sympy
import torch

from cubridge.frontend.reference.algebra import functions, integers, predicates, reals
from cubridge.frontend.reference.algebra.comparisons import compare
from cubridge.frontend.reference.algebra.numbers import number, to_int, to_real
from cubridge.frontend.reference.algebra.polynomials import from_terms, terms_of
from cubridge.frontend.reference.algebra.terms import Size, Sort, Term, arena, const, is_op, load, size, walk
from cubridge.frontend.reference.record import Recording
from cubridge.frontend.reference.refusal import refuse
from cubridge.ir.nodes import SIZES

NO_LIMIT = 1 << 62
"""Slices without an end stop here."""

_RELATIONS: dict[str, str] = {
    "Equality": "==",
    "Unequality": "!=",
    "StrictLessThan": "<",
    "LessThan": "<=",
    "StrictGreaterThan": ">",
    "GreaterThan": ">=",
}


def follows_sizes(extent: Term) -> bool:
    """Is it a formula of the sizes of q, k, v?"""
    return all(x.name in (*SIZES, "G") for x in walk(extent) if isinstance(x, Size))


class SizeReader:
    """Turns symbolic numbers of one recording into terms."""

    def __init__(self, recording: Recording) -> None:
        self.env = recording.env
        self.symbols = recording.symbols
        self.scalars = recording.scalars
        self.memo: dict[sympy.Basic, Term] = {}
        self.whole: dict[Term, Term] = {}

    def term(self, value: Any) -> Term:
        if isinstance(value, Term):
            return value
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            found = self.expression(self.env.replace(value.node.expr))
            return self.whole.get(found, found)
        return const(value)

    def learn(self, conditions: Iterable[Term]) -> None:
        """Where `64 * (Lk // 64) == Lk` is required, an extent of 64 * (Lk // 64) is Lk."""
        for condition in conditions:
            terms = terms_of(condition.children()[0]) if is_op(condition, "==0") else {}
            for (atom, *more), sign in ((m, c) for m, c in terms.items() if m and abs(c) == 1):
                rest = from_terms({m: -sign * c for m, c in terms.items() if m != (atom,)})
                if isinstance(atom, Size) and not more and any(is_op(x, "//") for x in walk(rest)):
                    self.whole[rest] = atom

    def in_parts(self, shape: tuple[Term, ...]) -> tuple[Term, ...]:
        """Extents as they were before `learn`: 64 * (Lk // 64) for Lk."""
        parts = {size: product for product, size in self.whole.items()}
        return tuple(parts.get(extent, extent) for extent in shape)

    def expression(self, e: sympy.Basic) -> Term:
        """Of a sympy expression as it stands; `term` first puts in what torch has found sizes to be."""
        found = self.memo.get(e)
        if found is None:
            found = self.memo[e] = self._expression(e)
        return found

    def _expression(self, e: Any) -> Term:
        if e.is_Symbol:
            if e not in self.symbols:
                return refuse("CU477", "a shape depends on the data", arena().here, "use a mask over all keys instead")
            return self._symbol(self.symbols[e])
        if e.is_Integer:
            return const(int(e))
        if e is sympy.true or e is sympy.false:
            return const(bool(e))
        if e.is_Rational:
            return number(Fraction(int(e.p), int(e.q)))
        if e.is_number and not e.args:
            return const(float(e))
        name = type(e).__name__
        args = [self.expression(x) for x in e.args]
        if name in _RELATIONS:
            return compare(_RELATIONS[name], args[0], args[1])
        if name.startswith("OpaqueUnaryFn_"):
            return _function(name.removeprefix("OpaqueUnaryFn_"), args[0])
        return self._operation(name, args, e)

    def _symbol(self, name: str) -> Term:
        """A size, or a scalar argument: an element of a tensor without axes."""
        if name not in self.scalars:
            return size(name)
        return load(name, (), Sort.REAL if isinstance(self.scalars[name], float) else Sort.INT)

    def _operation(self, name: str, args: list[Term], e: Any) -> Term:
        whole = all(a.sort is Sort.INT for a in args)
        match name:
            case "Add":
                return integers.add(*args) if whole else reals.add(*args)
            case "Mul":
                return _product(args) if whole else reals.mul(*args)
            case "Pow" if e.args[1].is_Integer and e.args[1] > 0 and whole:
                return _product([args[0]] * int(e.args[1]))
            case "Pow" | "FloatPow" | "PowByNatural":
                return reals.general_power(args[0], args[1])
            case "FloorDiv" | "CleanDiv":
                return integers.floordiv(args[0], args[1])
            case "Mod" | "PythonMod":
                return integers.mod(args[0], args[1])
            case "IntTrueDiv" | "FloatTrueDiv":
                return reals.mul(args[0], reals.reciprocal(args[1]))
            case "ToFloat" | "Identity":
                return to_real(args[0]) if name == "ToFloat" else args[0]
            case "TruncToInt":
                return to_int(args[0])
            case "FloorToInt" | "CeilToInt" | "RoundToInt":
                rounding = {"FloorToInt": "floor", "CeilToInt": "ceil", "RoundToInt": "round"}[name]
                return to_int(functions.unary(rounding, args[0]))
            case "Max":
                return reduce(functions.maximum, args)
            case "Min":
                return reduce(functions.minimum, args)
            case "Abs":
                return integers.absolute(args[0]) if whole else functions.unary("abs", args[0])
            case "And":
                return predicates.conjunction(*args)
            case "Or":
                return predicates.disjunction(*args)
            case "Not":
                return predicates.negation(args[0])
            case _:
                return refuse("CU476", f"a size computed as {e}")


def _product(args: list[Term]) -> Term:
    return reduce(integers.mul, args)


def _function(name: str, x: Term) -> Term:
    x = to_real(x)
    match name:
        case "sqrt":
            return reals.power(x, Fraction(1, 2))
        case "exp":
            return reals.exp(x)
        case "log":
            return reals.log(x)
        case "log2":
            return reals.mul(reals.log(x), number(1 / math.log(2)))
        case _:
            return functions.unary(name, x)
