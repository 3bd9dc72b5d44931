"""A kernel body as linear code with jumps, so that agents can step it one statement at a time and wait in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from cubridge.engine.core.expressions import Closure, compile_expr, compile_operand
from cubridge.engine.core.operands import Lanes, Value, fault
from cubridge.engine.core.sync import Agent
from cubridge.ir.nodes import (
    OPS,
    Assign,
    Break,
    Expr,
    For,
    Gemm,
    If,
    Kernel,
    Loop,
    Node,
    Op,
    RegionCall,
    RegisterTile,
    Stmt,
)
from cubridge.ir.walk import field_names

WAIT: Final = True
"""What a step returns where the agent cannot go on yet: it will be taken again."""

Method: TypeAlias = Callable[..., bool | None]
"""Of an engine: `method(machine, agent, statement, *operands)`."""

METHODS: Final[Mapping[type[Stmt], str]] = {
    Assign: "assign",
    RegisterTile: "register_tile",
    Gemm: "gemm",
    RegionCall: "region_call",
    **{cls: name for name, cls in OPS.items()},
}
"""The method of an engine that steps each kind of statement."""


@dataclass(slots=True)
class Instruction:
    """One step: `run(machine, agent, instruction)`, with the agent's counter already on the next one."""

    run: Callable[[Any, Any, Instruction], bool | None]
    stmt: Stmt
    operands: tuple[Closure, ...] = ()
    target: int = 0
    depth: int = 0


class Control(Protocol):
    """What jumps ask of a machine: a truth and a number that hold for all threads and blocks that step together."""

    def decide(self, value: Value, node: Node) -> bool: ...

    def decide_int(self, value: Value, node: Node) -> int: ...


def compile_body(kernel: Kernel, engine: type) -> tuple[Instruction, ...]:
    """The kernel body as linear code; methods of `engine` give the statements their meaning that are not control flow."""
    builder = _Builder({kind: getattr(engine, method) for kind, method in METHODS.items()})
    builder.block(kernel.body)
    return tuple(builder.code)


class _Builder:
    def __init__(self, methods: Mapping[type[Stmt], Method]) -> None:
        self.methods = methods
        self.code: list[Instruction] = []
        self.loops: list[tuple[int, list[Instruction]]] = []  # depth of ifs at the loop, breaks that leave it
        self.ifs = 0

    def block(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            self.statement(stmt)

    def emit(self, instruction: Instruction) -> Instruction:
        self.code.append(instruction)
        return instruction

    def statement(self, stmt: Stmt) -> None:
        match stmt:
            case If():
                self.branch(stmt)
            case For():
                self.counted(stmt)
            case Loop():
                self.endless(stmt)
            case Break():
                self.leave(stmt)
            case _:
                self.emit(Instruction(_taking_operands(self.methods[type(stmt)]), stmt, tuple(_operands(stmt))))

    def branch(self, stmt: If) -> None:
        test = self.emit(Instruction(_branch, stmt, (compile_expr(stmt.condition),)))
        self.ifs += 1
        self.block(stmt.then)
        other = self.emit(Instruction(_otherwise, stmt))
        test.target = len(self.code)
        self.block(stmt.orelse)
        self.ifs -= 1
        other.target = len(self.code)
        self.emit(Instruction(_end_if, stmt))

    def counted(self, stmt: For) -> None:
        self.emit(Instruction(_for_start, stmt, (compile_expr(stmt.start), compile_expr(stmt.stop))))
        test_at = len(self.code)
        test = self.emit(Instruction(_for_test, stmt))
        self.loop_body(stmt.body, Instruction(_for_next, stmt, target=test_at))
        test.target = len(self.code)

    def endless(self, stmt: Loop) -> None:
        self.emit(Instruction(_loop_start, stmt))
        self.loop_body(stmt.body, Instruction(_jump, stmt, target=len(self.code)))

    def loop_body(self, body: tuple[Stmt, ...], again: Instruction) -> None:
        self.loops.append((self.ifs, []))
        self.block(body)
        self.emit(again)
        for leaving in self.loops.pop()[1]:
            leaving.target = len(self.code)

    def leave(self, stmt: Break) -> None:
        if not self.loops:
            raise fault("CU301", "`break` outside a loop", stmt)
        ifs, leaving = self.loops[-1]
        leaving.append(self.emit(Instruction(_break, stmt, depth=self.ifs - ifs)))


def _taking_operands(method: Method) -> Callable[[Any, Any, Instruction], bool | None]:
    return lambda machine, agent, at: method(machine, agent, at.stmt, *[operand(agent) for operand in at.operands])


def _operands(stmt: Stmt) -> Iterator[Closure]:
    """By field, whether given or not."""
    match stmt:
        case Assign(_, value):
            yield compile_expr(value)
        case Gemm(dst, a, b):
            yield from map(compile_operand, (dst, a, b))
        case RegionCall(_, args):
            yield from map(compile_operand, args)
        case RegisterTile(_, _, rows, cols):
            yield from map(_optional, (rows, cols))
        case _:
            assert isinstance(stmt, Op)
            yield from (_optional(getattr(stmt, name)) for name in field_names(type(stmt)))


def _optional(expr: Expr | None) -> Closure:
    return (lambda agent: None) if expr is None else compile_operand(expr)


def _branch(machine: Control, agent: Agent, at: Instruction) -> None:
    condition = at.operands[0](agent)
    if type(condition) is Lanes:
        then, other = agent.mask & condition.mask, agent.mask & ~condition.mask
        if then and other:
            agent.masks.append((agent.mask, other))
            agent.mask = then
            return
        truth = bool(then)
    else:
        truth = condition if type(condition) is bool else machine.decide(condition, at.stmt)
    agent.masks.append((agent.mask, 0))
    if not truth:
        agent.pc = at.target


def _otherwise(machine: Control, agent: Agent, at: Instruction) -> None:
    saved, other = agent.masks[-1]
    if other:
        agent.masks[-1] = (saved, 0)
        agent.mask = other
    else:
        agent.pc = at.target


def _end_if(machine: Control, agent: Agent, at: Instruction) -> None:
    agent.mask = agent.masks.pop()[0]


def _for_start(machine: Control, agent: Agent, at: Instruction) -> None:
    start, stop = (machine.decide_int(x(agent), at.stmt) for x in at.operands)
    agent.loops.append([start, stop])


def _for_test(machine: Control, agent: Agent, at: Instruction) -> None:
    assert isinstance(at.stmt, For)
    step, stop = agent.loops[-1]
    if step < stop:
        agent.names[at.stmt.var] = step
    else:
        agent.loops.pop()
        agent.pc = at.target


def _for_next(machine: Control, agent: Agent, at: Instruction) -> None:
    agent.loops[-1][0] += 1
    agent.pc = at.target


def _loop_start(machine: Control, agent: Agent, at: Instruction) -> None:
    agent.loops.append([0, 0])


def _jump(machine: Control, agent: Agent, at: Instruction) -> None:
    agent.pc = at.target


def _break(machine: Control, agent: Agent, at: Instruction) -> None:
    for _ in range(at.depth):
        saved, other = agent.masks.pop()
        if saved != agent.mask or other:
            raise fault("CU256", "threads of one warp leave this loop at different times", at.stmt)
    agent.loops.pop()
    agent.pc = at.target
