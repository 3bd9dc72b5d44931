"""Shared stepping of the engines: a kernel body as linear code with jumps, and expressions as closures over an agent.

An agent is a group of threads that step together: a warp in the order engine, a team in the value engine. Conditions that differ
between its threads give a mask of active threads, so that `if thread == 0:` and leader arrivals mean what they mean on a device.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TypeAlias, assert_never

from cubridge.engine.core.operands import GlobalRef, Lanes, Ring, SharedRef, Value, fault, lanes_or_one
from cubridge.engine.core.sync import Agent
from cubridge.ir.evaluate import BINARY, CONSTANTS, SCALAR_CALLS
from cubridge.ir.nodes import (
    Attr,
    Binary,
    BoolLit,
    Call,
    Expr,
    FloatLit,
    Index,
    IntLit,
    Name,
    Node,
    Record,
    Unary,
)  # fmt: skip

Closure: TypeAlias = "Callable[[Agent], Value]"


def scalar_call(fn: str, args: Iterable[Value], node: Node) -> Value:
    """A function of numbers. Errors: CU301 for one that there is not, or where it has no value."""
    if fn not in SCALAR_CALLS:
        raise fault("CU301", f"`{fn}` cannot be called here", node)
    try:
        return SCALAR_CALLS[fn](*args)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise fault("CU301", f"this expression has no value: {error}", node) from None


# ---- expressions -----------------------------------------------------------------------------------------------------


def compile_expr(expr: Expr) -> Closure:
    """`expr` as a function of an agent. Errors when called: CU301 where it has no value."""
    match expr:
        case BoolLit(value) | IntLit(value) | FloatLit(value):
            return lambda agent: value
        case Name(name):
            return _name(expr, name)
        case Attr(Name("p"), name):
            return lambda agent: agent.machine.param(name, expr)
        case Attr(Name("smem"), name):
            return lambda agent: agent.machine.load_shared(agent, name, expr)
        case Attr(base, name):
            return _attribute(expr, compile_expr(base), name)
        case Index(Attr(Name("p"), name), indices):
            parts = tuple(compile_expr(x) for x in indices)
            return lambda agent: agent.machine.element(name, tuple(part(agent) for part in parts), expr)
        case Index():
            raise fault("CU301", "only parameters have elements", expr)
        case Unary(op, operand):
            return _unary(op, compile_expr(operand))
        case Binary(op, left, right):
            return _binary(expr, BINARY[op], compile_expr(left), compile_expr(right))
        case Call():
            return _call(expr)
        case Record(_, parts):
            raise fault("CU301", f"`{expr.name}` is not a single value", parts[0] if parts else expr)
        case _:
            assert_never(expr)  # pyright: ignore[reportArgumentType]


def compile_operand(expr: Expr) -> Closure:
    """`expr` as an operand of a statement: a SharedRef, a GlobalRef, or what the name of a local stands for."""
    base, indices = (expr.base, expr.indices) if isinstance(expr, Index) else (expr, ())
    match base:
        case Attr(Name("smem"), name):
            return _shared(expr, name, tuple(compile_expr(x) for x in indices))
        case Attr(Name("p"), name):
            parts = tuple(compile_expr(x) for x in indices)
            return lambda agent: GlobalRef(name, tuple(part(agent) for part in parts), expr)
        case _:
            return compile_expr(expr)


def _name(expr: Expr, name: str) -> Closure:
    if name in CONSTANTS:
        value = CONSTANTS[name]
        return lambda agent: value

    def lookup(agent: Agent) -> Value:
        try:
            return agent.names[name]
        except KeyError:
            raise fault("CU301", f"`{name}` has no value here", expr) from None

    return lookup


def _attribute(expr: Expr, base: Closure, name: str) -> Closure:
    def read(agent: Agent) -> Value:
        try:
            return getattr(base(agent), name)
        except AttributeError:
            raise fault("CU301", f"nothing here is called `{name}`", expr) from None

    return read


def _shared(expr: Expr, name: str, indices: tuple[Closure, ...]) -> Closure:
    refs: dict[int, SharedRef] = {}

    def make(agent: Agent) -> Value:
        slot = agent.machine.decide_int(indices[0](agent), expr) if indices else 0
        ref = refs.get(slot)
        if ref is None:
            ref = refs[slot] = SharedRef(name, slot, expr)
        return ref

    return make


def _unary(op: str, operand: Closure) -> Closure:
    one = operator.neg if op == "-" else _invert

    def apply(agent: Agent) -> Value:
        value = operand(agent)
        return lanes_or_one(map(one, value.values)) if type(value) is Lanes else one(value)

    return apply


def _invert(value: Value) -> Value:
    return (not value) if isinstance(value, bool) else operator.invert(value)  # pyright: ignore[reportArgumentType]


def _binary(expr: Expr, fn: Callable[[Value, Value], Value], left: Closure, right: Closure) -> Closure:
    def apply(agent: Agent) -> Value:
        a, b = left(agent), right(agent)
        try:
            if type(a) is Lanes or type(b) is Lanes:
                return lanes_or_one(map(fn, _spread(a, agent.threads), _spread(b, agent.threads)))
            return fn(a, b)
        except (ArithmeticError, ValueError, TypeError) as error:
            raise fault("CU301", f"this expression has no value: {error}", expr) from None

    return apply


def _spread(value: Value, threads: int) -> tuple[Value, ...]:
    return value.values if type(value) is Lanes else (value,) * threads


def _call(expr: Call) -> Closure:
    match expr.fn, expr.args:
        case "present", (Attr(Name("p"), name),):
            return lambda agent: agent.machine.present(name, expr)
        case "bytes", (Attr(Name("smem"), name),):
            return lambda agent: agent.machine.slot_bytes(name, expr)
        case "atomic_add", (Attr(Name("p"), name), index, amount):
            at, by = compile_expr(index), compile_expr(amount)
            return lambda agent: agent.machine.atomic_add(agent, name, at(agent), by(agent), expr)
        case "Ring", (size,):
            slots = compile_expr(size)
            return lambda agent: Ring(agent.machine.decide_int(slots(agent), expr))
        case "row_state", ():
            return lambda agent: agent.machine.row_state(agent, expr)
        case fn, args:
            parts = tuple(compile_expr(a) for a in args)
            return lambda agent: agent.machine.call(agent, fn, tuple(part(agent) for part in parts), expr)
