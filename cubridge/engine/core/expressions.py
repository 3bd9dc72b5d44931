"""Expressions of a kernel body as closures over an agent, and the operands of its statements.

An agent is a group of threads that step together: a warp in the order engine, a team in the value engine. Conditions that differ
between its threads give a mask of active threads, so that `if thread == 0:` and leader arrivals mean what they mean on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

from cubridge.engine.core.operands import GlobalRef, Lanes, Ring, SharedRef, Value, fault, lanes_or_one
from cubridge.ir.evaluate import Meaning
from cubridge.ir.nodes import Attr, Call, Expr, Index, Name
from cubridge.ir.operands import WINDOWS


class Names(Protocol):
    """Whose locals an expression reads: an agent, or one call of a function. `machine`: the machine of an engine."""

    @property
    def machine(self) -> Any: ...

    @property
    def names(self) -> dict[str, Value]: ...


Closure: TypeAlias = Callable[[Names], Value]


class _OfAgent(Meaning[Names]):
    """Names are the agent's locals; parameters, shared scalars and calls are its machine's. Numbers may differ between threads."""

    def place(self, expr: Name | Attr | Index) -> Closure:
        match expr:
            case Name(name):
                return _local(expr, name)
            case Attr(Name("p"), name):
                return lambda agent: agent.machine.param(name, expr)
            case Attr(Name("smem"), name):
                return lambda agent: agent.machine.load_shared(agent, name, expr)
            case Attr(base, name):
                return _attribute(expr, self.compile(base), name)
            case Index(Attr(Name("p"), name), indices):
                parts = [self.compile(x) for x in indices]
                return lambda agent: agent.machine.element(name, tuple(part(agent) for part in parts), expr)
            case Index():
                raise fault("CU301", "only parameters have elements", expr)

    def unary(self, expr: Expr, fn: Callable[[Value], Value], operand: Closure) -> Closure:
        def by_thread(a: Value) -> Value:
            return lanes_or_one(map(fn, a.values)) if type(a) is Lanes else fn(a)

        return super().unary(expr, by_thread, operand)

    def binary(self, expr: Expr, fn: Callable[[Value, Value], Value], left: Closure, right: Closure) -> Closure:
        def by_thread(a: Value, b: Value) -> Value:
            if type(a) is Lanes:
                return lanes_or_one(map(fn, a.values, b.values if type(b) is Lanes else (b,) * len(a.values)))
            return lanes_or_one(fn(a, x) for x in b.values) if type(b) is Lanes else fn(a, b)

        return super().binary(expr, by_thread, left, right)

    def call(self, expr: Call) -> Closure:
        match expr.fn, expr.args:
            case "present", (Attr(Name("p"), name),):
                return lambda agent: agent.machine.present(name, expr)
            case "bytes", (Attr(Name("smem"), name),):
                return lambda agent: agent.machine.slot_bytes(name, expr)
            case "atomic_add", (Attr(Name("p"), name), index, amount):
                at, by = self.compile(index), self.compile(amount)
                return lambda agent: agent.machine.atomic_add(agent, name, at(agent), by(agent), expr)
            case "Ring", (size,):
                slots = self.compile(size)
                return lambda agent: Ring(agent.machine.decide_int(slots(agent), expr))
            case "row_state", ():
                return lambda agent: agent.machine.row_state(agent, expr)
            case "score_state", ():
                return lambda agent: agent.machine.score_state(agent, expr)
            case fn, args:
                parts = [self.compile(a) for a in args]
                return lambda agent: agent.machine.call(agent, fn, tuple(part(agent) for part in parts), expr)


_OF_AGENT: Final = _OfAgent()


def compile_expr(expr: Expr) -> Closure:
    """`expr` as a function of an agent. Errors when called: CU301 where it has no value."""
    return _OF_AGENT.compile(expr)


def compile_operand(expr: Expr) -> Closure:
    """`expr` as an operand of a statement: a SharedRef, a GlobalRef, or what the name of a local stands for."""
    if isinstance(expr, Call) and expr.fn in WINDOWS:
        return _window(expr)
    base, indices = (expr.base, expr.indices) if isinstance(expr, Index) else (expr, ())
    match base:
        case Attr(Name("smem"), name):
            return _shared(expr, name, tuple(compile_expr(x) for x in indices))
        case Attr(Name("p"), name):
            parts = tuple(compile_expr(x) for x in indices)
            return lambda agent: GlobalRef(name, tuple(part(agent) for part in parts), expr)
        case _:
            return compile_expr(expr)


def _window(expr: Call) -> Closure:
    """Rows or columns of a shared tile."""
    tile, first, count = compile_operand(expr.args[0]), compile_expr(expr.args[1]), compile_expr(expr.args[2])

    def make(agent: Names) -> Value:
        begins, size = (agent.machine.decide_int(x(agent), expr) for x in (first, count))
        return replace(tile(agent), window=(expr.fn, begins, size))

    return make


def _local(expr: Expr, name: str) -> Closure:
    def lookup(agent: Names) -> Value:
        try:
            return agent.names[name]
        except KeyError:
            raise fault("CU301", f"`{name}` has no value here", expr) from None

    return lookup


def _attribute(expr: Expr, base: Closure, name: str) -> Closure:
    def read(agent: Names) -> Value:
        try:
            return getattr(base(agent), name)
        except AttributeError:
            raise fault("CU301", f"nothing here is called `{name}`", expr) from None

    return read


def _shared(expr: Expr, name: str, indices: tuple[Closure, ...]) -> Closure:
    refs: dict[int, SharedRef] = {}

    def make(agent: Names) -> Value:
        slot = agent.machine.decide_int(indices[0](agent), expr) if indices else 0
        ref = refs.get(slot)
        if ref is None:
            ref = refs[slot] = SharedRef(name, slot, expr)
        return ref

    return make
