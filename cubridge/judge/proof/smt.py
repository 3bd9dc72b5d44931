"""The solver: everything that this package asks of z3, with types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from typing import Final, Protocol, cast

import z3


class Number(Protocol):
    """An integer or a real of the solver."""

    def __add__(self, other: Number | int, /) -> Number: ...
    def __sub__(self, other: Number | int, /) -> Number: ...
    def __mul__(self, other: Number | int, /) -> Number: ...
    def __neg__(self) -> Number: ...


Claim = z3.BoolRef


class Answer(Enum):
    ALWAYS = auto()
    NOT_ALWAYS = auto()
    UNKNOWN = auto()


def integer(name: str) -> Number:
    return cast(Number, z3.Int(name))


def real(name: str) -> Number:
    return cast(Number, z3.Real(name))


def truth(name: str) -> Claim:
    return z3.Bool(name)


def whole(value: int) -> Number:
    return cast(Number, z3.IntVal(value))


def fraction(value: Fraction | int) -> Number:
    return cast(Number, z3.RealVal(value))


def constant(value: bool) -> Claim:
    return z3.BoolVal(value)


def as_real(value: Number) -> Number:
    return cast(Number, z3.ToReal(_expr(value)))


def load(name: str, indices: list[Number], sort: str) -> Number | Claim:
    """An element of a table that nothing is known of: "i32", "bool" or "f32"."""
    result = {"i32": z3.IntSort(), "bool": z3.BoolSort(), "f32": z3.RealSort()}[sort]
    table = z3.Function(name, *[z3.IntSort()] * len(indices), result)
    return cast(Number | Claim, table(*(_expr(x) for x in indices)))


def all_of(*claims: Claim) -> Claim:
    return cast(Claim, z3.And(*claims))


def any_of(*claims: Claim) -> Claim:
    return cast(Claim, z3.Or(*claims))


def negation(claim: Claim) -> Claim:
    return cast(Claim, z3.Not(claim))


def implies(condition: Claim, claim: Claim) -> Claim:
    return z3.Implies(condition, claim)


def differs(left: Claim, right: Claim) -> Claim:
    return z3.Xor(left, right)


def choose(condition: Claim, then: Number, otherwise: Number) -> Number:
    return cast(Number, z3.If(condition, _expr(then), _expr(otherwise)))


def compared(op: str, left: Number | Claim, right: Number | Claim) -> Claim:
    """`op`: one of < <= > >= == !=."""
    a, b = cast(z3.ArithRef, left), cast(z3.ArithRef, right)
    match op:
        case "==":
            return cast(Claim, a == b)
        case "!=":
            return cast(Claim, a != b)
        case _:
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[op]


def between(low: Number, value: Number, end: Number) -> Claim:
    """low <= value < end"""
    return all_of(compared("<=", low, value), compared("<", value, end))


def floor_div(value: Number, by: Number) -> Number:
    """The quotient rounded down; the solver's own is so for a positive divisor."""
    a, b = _expr(value), _expr(by)
    if (as_int(by) or 0) > 0:
        return cast(Number, a / b)
    return choose(compared(">", by, whole(0)), cast(Number, a / b), cast(Number, _expr(-value) / _expr(-by)))


def simplified(value: Number) -> Number:
    return cast(Number, z3.simplify(_expr(value)))


def put(claim: Claim, old: Number, new: Number) -> Claim:
    """The claim with another number for an unknown."""
    return cast(Claim, z3.substitute(claim, (_expr(old), _expr(new))))


def as_int(value: Number) -> int | None:
    """The value of an integer literal."""
    return value.as_long() if isinstance(value, z3.IntNumRef) else None


def _expr(value: Number) -> z3.ArithRef:
    return cast(z3.ArithRef, value)


def unknowns(value: Number | Claim) -> Iterator[str]:
    """The names of the unknowns in an expression."""
    stack = [cast(z3.ExprRef, value)]
    while stack:
        node = stack.pop()
        if node.num_args() == 0:
            yield str(node)
        stack += node.children()


def ask(claim: Claim, facts: list[Claim], effort: int, shown: dict[str, Number]) -> tuple[Answer, dict[str, int]]:
    """Whether a claim follows from facts; if not, integers of a case in which it does not hold. `effort`: steps of the solver,
    the same on every machine. The same question is asked once."""
    if z3.is_true(z3.simplify(claim)):
        return Answer.ALWAYS, {}
    question = (claim.get_id(), tuple(f.get_id() for f in facts), effort, tuple(shown))
    if question not in _ASKED:
        if len(_ASKED) >= _MOST_KNOWN:
            _ASKED.clear()
        _ASKED[question] = _Asked((claim, *facts), *_answer(claim, facts, effort, shown))
    return _ASKED[question].answer, _ASKED[question].values


@dataclass(frozen=True, slots=True)
class _Asked:
    """`parts`: kept, since an expression has its number for as long as it is there."""

    parts: tuple[Claim, ...]
    answer: Answer
    values: dict[str, int]


_ASKED: Final[dict[tuple[object, ...], _Asked]] = {}
_MOST_KNOWN: Final = 2000


def _answer(claim: Claim, facts: list[Claim], effort: int, shown: dict[str, Number]) -> tuple[Answer, dict[str, int]]:
    """In a context of its own: what was asked before changes no answer."""
    context = z3.Context()
    solver = z3.Solver(ctx=context)
    solver.set("rlimit", effort)
    solver.add(*(cast(Claim, c.translate(context)) for c in (*facts, negation(claim))))
    result = solver.check()
    if result == z3.unsat:
        return Answer.ALWAYS, {}
    if result != z3.sat:
        return Answer.UNKNOWN, {}
    model = solver.model()
    values = {n: as_int(cast(Number, model.eval(_expr(x).translate(context), True))) for n, x in shown.items()}
    return Answer.NOT_ALWAYS, {name: value for name, value in values.items() if value is not None}


def contradict(facts: list[Claim], effort: int) -> bool:
    """Can the facts not hold together."""
    return ask(constant(False), facts, effort, {})[0] is Answer.ALWAYS
