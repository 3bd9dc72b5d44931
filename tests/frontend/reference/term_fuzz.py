"""Random terms built beside Python functions of the same meaning, so that the normal forms cannot excuse themselves."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cubridge.frontend.reference.algebra import functions, integers, reals
from cubridge.frontend.reference.algebra.comparisons import compare
from cubridge.frontend.reference.algebra.numbers import to_real
from cubridge.frontend.reference.algebra.predicates import conjunction, disjunction, negation
from cubridge.frontend.reference.algebra.reduce import reduce
from cubridge.frontend.reference.algebra.selection import where
from cubridge.frontend.reference.algebra.table import integer_floordiv
from cubridge.frontend.reference.algebra.terms import (
    Apply,
    Const,
    Index,
    Load,
    Poly,
    Reduce,
    Size,
    Sort,
    Symbol,
    Term,
    const,
    index,
    load,
    size,
)

Values = dict[str, int | float]
Meaning = Callable[[Values], float]
Pair = tuple[Term, Meaning]

SMALL = ((1, 1), (1, 4), (3, 1), (2, 3), (4, 5))


def environments() -> Iterator[Values]:
    """All indices at a few sizes: i < Lq, j < Lk, h < Lq * Lk."""
    for p, q in SMALL:
        for i in range(p):
            for j in range(q):
                for h in range(p * q):
                    yield {
                        "Lq": p,
                        "Lk": q,
                        "i": i,
                        "j": j,
                        "h": h,
                        "w": (i * 7 + j * 3) % 5 - 2,
                        "z": 0.25 * (i - j) + 0.5,
                    }


@dataclass
class Maker:
    """Draws pairs of a term and its meaning."""

    random: random.Random

    def atoms(self) -> list[Pair]:
        lq, lk = size("Lq"), size("Lk")
        i, j, h = index("i", lq), index("j", lk), index("h", integers.mul(lq, lk))
        named = {"i": i, "j": j, "h": h, "Lq": lq, "Lk": lk, "w": load("w", (i, j), Sort.INT)}
        return [(term, lambda e, n=name: e[n]) for name, term in named.items()]

    def integer(self, depth: int) -> Pair:
        if depth == 0 or self.random.random() < 0.15:
            if self.random.random() < 0.2:
                number = self.random.randint(-9, 9)
                return const(number), lambda e: number
            return self.random.choice(self.atoms())
        a, fa = self.integer(depth - 1)
        match self.random.choice(
            ["add", "sub", "scale", "div", "mod", "min", "max", "abs", "div_size", "mod_size", "where"]
        ):
            case "abs":
                return integers.absolute(a), lambda e: abs(fa(e))
            case "scale":
                k = self.random.choice([-3, -1, 2, 5])
                return integers.mul(const(k), a), lambda e: k * fa(e)
            case "div":
                k = self.random.choice([2, 3, 4, 8, -2])
                return integer_floordiv(a, const(k)), lambda e: fa(e) // k
            case "mod":
                k = self.random.choice([2, 3, 4, 8])
                return integers.mod(a, const(k)), lambda e: fa(e) % k
            case "div_size" | "mod_size" as op:
                n, fn = self.random.choice(
                    [
                        (size("Lq"), lambda e: e["Lq"]),
                        (size("Lk"), lambda e: e["Lk"]),
                        (integers.mul(size("Lq"), size("Lk")), lambda e: e["Lq"] * e["Lk"]),
                    ]
                )
                if op == "div_size":
                    return integer_floordiv(a, n), lambda e: fa(e) // fn(e)
                return integers.mod(a, n), lambda e: fa(e) % fn(e)
            case "where":
                c, fc = self.predicate(1)
                b, fb = self.integer(depth - 1)
                return where(c, a, b), lambda e: fa(e) if fc(e) else fb(e)
            case op:
                b, fb = self.integer(depth - 1)
                build, run = {
                    "add": (integers.add, operator.add),
                    "sub": (integers.sub, operator.sub),
                    "min": (functions.minimum, min),
                    "max": (functions.maximum, max),
                }[op]
                return build(a, b), lambda e: run(fa(e), fb(e))

    def predicate(self, depth: int) -> Pair:
        if depth == 0 or self.random.random() < 0.3:
            make = self.integer if self.random.random() < 0.7 else self.real
            a, fa = make(2)
            b, fb = make(1)
            op = self.random.choice(["<", "<=", "==", "!=", ">=", ">"])
            run = {
                "<": operator.lt,
                "<=": operator.le,
                "==": operator.eq,
                "!=": operator.ne,
                ">=": operator.ge,
                ">": operator.gt,
            }
            return compare(op, a, b), lambda e: run[op](fa(e), fb(e))
        a, fa = self.predicate(depth - 1)
        op = self.random.choice(["and", "or", "not", "where"])
        if op == "not":
            return negation(a), lambda e: not fa(e)
        b, fb = self.predicate(depth - 1)
        match op:
            case "where":
                c, fc = self.predicate(depth - 1)
                return where(c, a, b), lambda e: fa(e) if fc(e) else fb(e)
            case "and":
                return conjunction(a, b), lambda e: fa(e) and fb(e)
            case _:
                return disjunction(a, b), lambda e: fa(e) or fb(e)

    def real(self, depth: int) -> Pair:
        if depth == 0 or self.random.random() < 0.15:
            match self.random.randrange(3):
                case 0:
                    number = self.random.choice([-2.0, -0.5, 0.0, 0.25, 1.0, 3.0])
                    return const(number), lambda e: number
                case 1:
                    return load("z", (index("i", size("Lq")), index("j", size("Lk"))), Sort.REAL), lambda e: e["z"]
                case _:
                    a, fa = self.integer(1)
                    return to_real(a), lambda e: float(fa(e))
        a, fa = self.real(depth - 1)
        match self.random.choice(
            ["add", "sub", "mul", "max", "min", "abs", "where", "half", "square", "exp", "floor", "neg"]
        ):
            case "abs":
                return functions.unary("abs", a), lambda e: abs(fa(e))
            case "neg":
                return reals.neg(a), lambda e: -fa(e)
            case "half":
                k = self.random.choice([2.0, 4.0, 3.0, 8.0])
                return reals.mul(a, reals.reciprocal(const(k))), lambda e: fa(e) / k
            case "square":
                return reals.mul(a, a), lambda e: fa(e) * fa(e)
            case "exp":
                quiet = reals.mul(const(0.125), a)
                return reals.exp(quiet), lambda e: math.exp(min(0.125 * fa(e), 300.0))
            case "floor":
                i, fi = self.integer(1)
                k = self.random.choice([2.0, 4.0, 3.0])
                op = self.random.choice(["floor", "ceil", "truncate"])
                run = {"floor": math.floor, "ceil": math.ceil, "truncate": math.trunc}[op]
                term = functions.unary(op, reals.mul(to_real(i), reals.reciprocal(const(k))))
                return term, lambda e: float(run(fi(e) / k))
            case "where":
                c, fc = self.predicate(1)
                b, fb = self.real(depth - 1)
                return where(c, a, b), lambda e: fa(e) if fc(e) else fb(e)
            case op:
                b, fb = self.real(depth - 1)
                build, run = {
                    "add": (reals.add, operator.add),
                    "sub": (reals.sub, operator.sub),
                    "mul": (reals.mul, operator.mul),
                    "min": (functions.minimum, min),
                    "max": (functions.maximum, max),
                }[op]
                return build(a, b), lambda e: run(fa(e), fb(e))

    def reduction(self) -> Pair:
        kind = self.random.choice(["sum", "max", "any"])
        if kind == "any":
            body, f = self.predicate(1)
        else:
            body, f = self.real(2)
        over = index("j", size("Lk"))
        run = {"sum": sum, "max": max, "any": any}[kind]
        return reduce(kind, over, body), lambda e: run(f(_with_j(e, j)) for j in range(int(e["Lk"])))


def _with_j(values: Values, j: int) -> Values:
    i = int(values["i"])
    return {**values, "j": j, "w": (i * 7 + j * 3) % 5 - 2, "z": 0.25 * (i - j) + 0.5}


UNARY = {
    "exp": lambda x: math.exp(min(x, 300.0)),
    "log": math.log,
    "tanh": math.tanh,
    "abs": abs,
    "floor": math.floor,
    "ceil": math.ceil,
    "truncate": math.trunc,
    "real": float,
    "trunc": int,
    "iabs": abs,
    "not": operator.not_,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    ">=0": lambda x: x >= 0,
    "==0": lambda x: x == 0,
}
MANY = {
    "add": sum,
    "mul": math.prod,
    "max": max,
    "min": min,
    "imax": max,
    "imin": min,
    "and": all,
    "or": any,
    "<": lambda x: x[0] < x[1],
    "<=": lambda x: x[0] <= x[1],
    "==": lambda x: x[0] == x[1],
    "//": lambda x: x[0] // x[1],
    "pow": lambda x: x[0] ** x[1],
}


def evaluate(term: Term, values: Values) -> float:
    match term:
        case Const():
            return term.value
        case Size() | Index():
            return values[term.name]
        case Load():
            i, j = (int(evaluate(x, values)) for x in term.indices)
            return (i * 7 + j * 3) % 5 - 2 if term.tensor == "w" else 0.25 * (i - j) + 0.5
        case Poly():
            return sum(c * math.prod(evaluate(a, values) for a in m) for m, c in term.monomials)
        case Apply(op="where"):
            return evaluate(term.args[1] if evaluate(term.args[0], values) else term.args[2], values)
        case Apply():
            args = [evaluate(a, values) for a in term.args]
            return UNARY[term.op](args[0]) if term.op in UNARY else MANY[term.op](args)
        case Reduce():
            run = {"sum": sum, "max": max, "any": any}[term.kind]
            extent = int(evaluate(term.index.extent, values))
            return run(evaluate(term.body, {**values, term.index.name: n}) for n in range(extent))
        case Symbol():
            raise AssertionError("the maker draws no symbols")
        case _:
            raise AssertionError(type(term))
