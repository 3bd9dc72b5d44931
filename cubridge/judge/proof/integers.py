"""Integers and predicates of CuIR as questions to an SMT solver: sizes, indices and captured integers are unknowns within the
limits that the verifier holds a kernel to, captured tensors are functions that nothing is known of.

`//` and `%` floor, as in CuIR. Float comparisons of a kernel are taken only where fp32 decides them as the reals do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import prod
from typing import Final, cast

from cubridge.ir.nodes import (
    SIZES,
    Binary,
    BoolLit,
    Call,
    Expr,
    FloatLit,
    Index,
    IntLit,
    Name,
    Unary,
)
from cubridge.ir.printer import print_expr
from cubridge.judge.proof import smt
from cubridge.judge.proof.smt import Claim, Number
from cubridge.judge.proof.unproved import Unproved
from cubridge.verify.ranges import LARGEST, LIMITS

EXACT_IN_FP32: Final = 2**24
_EFFORT: Final = 6_000_000
"""Of one question, in steps of the solver: the same on every machine. About two seconds."""
BEYOND: Final = 1024
"""Keys past the end that a tile may hold."""

INDICES: Final = {"i": "Lq", "h": "Hq", "b": "B"}
COMPARISONS: Final = ("<", "<=", ">", ">=", "==", "!=")
_INT_CALLS: Final = ("ceil_div", "floor_div", "floor_mod")


@dataclass(frozen=True, slots=True)
class Point:
    """Values of unknowns at which a claim does not hold."""

    values: Mapping[str, int]

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.values.items())


@dataclass
class Integers:
    """The unknowns of one proof. `captures`: the element type of each captured value: "i32", "bool" or "f32".
    `facts`: what is known of the unknowns that occur. `divisors`: that what was divided by is not 0."""

    captures: Mapping[str, str]
    head_dim: int
    largest: int = LARGEST
    facts: list[Claim] = field(default_factory=list[Claim])
    names: dict[str, Number] = field(default_factory=dict[str, Number])
    divisors: list[Claim] = field(default_factory=list[Claim])

    def __post_init__(self) -> None:
        for size in SIZES:
            self.bound(self.unknown(size), 1, LIMITS[size])
        self.bound(self.unknown("D"), self.head_dim, self.head_dim)
        zero = smt.whole(0)
        for index, size in INDICES.items():
            self.facts.append(smt.between(zero, self.unknown(index), self.unknown(size)))
        self.facts.append(smt.between(zero, self.unknown("j"), self.unknown("Lk") + BEYOND))

    def unknown(self, name: str) -> Number:
        """An integer of this name."""
        return self.names.setdefault(name, smt.integer(name))

    def bound(self, value: Number, low: int, high: int) -> None:
        """Notes that an integer is within bounds."""
        fact = self.within(value, low, high)
        if not any(fact.eq(known) for known in self.facts):
            self.facts.append(fact)

    def within(self, value: Number, low: int, high: int) -> Claim:
        return smt.between(smt.whole(low), value, smt.whole(high + 1))

    # ---- answers ----

    def refuted(self, claim: Claim, *given: Claim) -> Point | None:
        """Where the claim does not hold; None where it always does. Errors: Unproved if the solver finds neither."""
        shown = {n: self.names[n] for n in (*INDICES, "j", *SIZES) if n in self.names}
        answer, values = smt.ask(claim, [*self.facts, *given], _EFFORT, shown)
        if answer is smt.Answer.UNKNOWN:
            raise Unproved("the solver finds neither a proof nor a counterexample")
        return None if answer is smt.Answer.ALWAYS else Point(values)

    def holds(self, claim: Claim, *given: Claim) -> bool:
        """Is a claim proved."""
        return smt.ask(claim, [*self.facts, *given], _EFFORT, {})[0] is smt.Answer.ALWAYS

    # ---- types ----

    def is_integer(self, expr: Expr) -> bool:
        """Is an expression of integers alone."""
        match expr:
            case IntLit():
                return True
            case Name(name):
                return self.captures.get(name) == "i32" or (name in self.names and name not in self.captures)
            case Index(Name(name), _):
                return self.captures.get(name) == "i32"
            case Unary("-", operand):
                return self.is_integer(operand)
            case Binary("+" | "-" | "*" | "//" | "%", left, right):
                return self.is_integer(left) and self.is_integer(right)
            case Binary("**", base, IntLit(power)):
                return power >= 0 and self.is_integer(base)
            case Call("minimum" | "maximum" | "abs", args):
                return all(self.is_integer(a) for a in args)
            case Call("where", (_, then, otherwise)):
                return self.is_integer(then) and self.is_integer(otherwise)
            case Call("i32" | "i64", (operand,)):
                return self.is_integer(operand)
            case Call(fn, _):
                return fn in _INT_CALLS
            case _:
                return False

    # ---- expressions ----

    def integer(self, expr: Expr) -> Number:
        """Errors: Unproved for what is no integer of this language."""
        match expr:
            case IntLit(value):
                return smt.whole(value)
            case Name(name):
                return self._name(name)
            case Index(Name(name), indices) if self.captures.get(name) == "i32":
                return self._load(name, indices)
            case Unary("-", operand):
                return -self.integer(operand)
            case Binary("//" | "%" as op, left, right) | Call("floor_div" | "floor_mod" as op, (left, right)):
                return self._divided(op, self.integer(left), self.integer(right))
            case Binary("+" | "-" | "*" as op, left, right):
                return _ARITHMETIC[op](self.integer(left), self.integer(right))
            case Binary("**", base, IntLit(power)) if 0 <= power <= 4:
                return prod([self.integer(base)] * power, start=smt.whole(1))
            case Call("ceil_div", (left, right)):
                return -self._divided("//", -self.integer(left), self.integer(right))
            case Call("minimum" | "maximum" | "abs" | "where", _):
                return self._chosen(expr)
            case Call("i32" | "i64", (operand,)) if self.is_integer(operand):
                return self.integer(operand)
            case _:
                raise Unproved(f"`{print_expr(expr)}` is no integer that the solver knows")

    def _divided(self, op: str, value: Number, by: Number) -> Number:
        """The quotient rounded down, or the remainder with the sign of the divisor."""
        if (smt.as_int(by) or 0) <= 0:
            self.divisors.append(smt.compared("!=", by, smt.whole(0)))
        quotient = smt.floor_div(value, by)
        return quotient if op in ("//", "floor_div") else value - by * quotient

    def _chosen(self, expr: Call) -> Number:
        if expr.fn == "where":
            return smt.choose(self.boolean(expr.args[0]), self.integer(expr.args[1]), self.integer(expr.args[2]))
        left = self.integer(expr.args[0])
        right = -left if expr.fn == "abs" else self.integer(expr.args[1])
        return smt.choose(smt.compared("<=" if expr.fn == "minimum" else ">=", left, right), left, right)

    def _name(self, name: str) -> Number:
        if not self.is_integer(Name(name)):
            raise Unproved(f"`{name}` is no integer that the solver knows")
        if name in self.captures and name not in self.names:
            self.bound(self.unknown(name), -self.largest, self.largest)
        return self.unknown(name)

    def _element(self, name: str, indices: tuple[Expr, ...]) -> Number | Claim:
        return smt.load(name, [self.integer(x) for x in indices], self.captures[name])

    def _load(self, name: str, indices: tuple[Expr, ...]) -> Number:
        value = cast(Number, self._element(name, indices))
        if self.captures[name] == "i32":
            self.bound(value, -self.largest, self.largest)
        return value

    def boolean(self, expr: Expr) -> Claim:
        """Errors: Unproved for what is no predicate of this language."""
        match expr:
            case BoolLit(value):
                return smt.constant(value)
            case Unary("~", operand):
                return smt.negation(self.boolean(operand))
            case Binary("&", left, right):
                return smt.all_of(self.boolean(left), self.boolean(right))
            case Binary("|", left, right):
                return smt.any_of(self.boolean(left), self.boolean(right))
            case Binary("^", left, right):
                return smt.differs(self.boolean(left), self.boolean(right))
            case Call("where", (condition, then, otherwise)):
                chosen = self.boolean(condition)
                taken = smt.implies(chosen, self.boolean(then))
                return smt.all_of(taken, smt.any_of(chosen, self.boolean(otherwise)))
            case Binary(op, left, right) if op in COMPARISONS:
                return self._compared(expr, op, left, right)
            case Name(name) if self.captures.get(name) == "bool":
                return smt.truth(name)
            case Index(Name(name), indices) if self.captures.get(name) == "bool":
                return cast(Claim, self._element(name, indices))
            case _:
                raise Unproved(f"`{print_expr(expr)}` is no predicate that the solver knows")

    def _compared(self, expr: Expr, op: str, left: Expr, right: Expr) -> Claim:
        if self.is_integer(left) and self.is_integer(right):
            return smt.compared(op, self.integer(left), self.integer(right))
        if self._is_boolean(left) and self._is_boolean(right) and op in ("==", "!="):
            return smt.compared(op, self.boolean(left), self.boolean(right))
        if self._is_countable(left) and self._is_countable(right):
            return smt.compared(op, self._counted(left), self._counted(right))
        return smt.compared(op, self._exact(left, expr), self._exact(right, expr))

    def _is_countable(self, expr: Expr) -> bool:
        return self.is_integer(expr) or self._is_boolean(expr)

    def _counted(self, expr: Expr) -> Number:
        """An integer, or 0 or 1 for a truth."""
        return (
            self.integer(expr) if self.is_integer(expr) else smt.choose(self.boolean(expr), smt.whole(1), smt.whole(0))
        )

    def _is_boolean(self, expr: Expr) -> bool:
        match expr:
            case BoolLit() | Unary("~", _):
                return True
            case Name(name) | Index(Name(name), _):
                return self.captures.get(name) == "bool"
            case Binary(op, _, _):
                return op in COMPARISONS or op in ("&", "|", "^")
            case _:
                return False

    def _exact(self, expr: Expr, condition: Expr) -> Number:
        """A float that fp32 holds exactly. Errors: Unproved for others."""
        match expr:
            case FloatLit(value) | IntLit(value):
                return smt.fraction(Fraction(value))
            case Unary("-", operand):
                return -self._exact(operand, condition)
            case Name(name) if self.captures.get(name) == "f32":
                return smt.real(name)
            case Index(Name(name), indices) if self.captures.get(name) == "f32":
                return self._load(name, indices)
            case Call("f32", (operand,)) if self.is_integer(operand):
                value = self.integer(operand)
                if self.holds(self.within(value, -EXACT_IN_FP32, EXACT_IN_FP32)):
                    return smt.as_real(value)
                raise Unproved(f"`{print_expr(operand)}` may pass 2^24, where floats of 32 bits skip integers")
            case _:
                raise Unproved(f"`{print_expr(condition)}` compares floats that may be rounded")


_ARITHMETIC: Final[Mapping[str, Callable[[Number, Number], Number]]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
