"""A kernel body as linear code with jumps, so that agents can step it one statement at a time and wait in the middle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from cubridge.engine.core.expressions import Closure, Lanes, compile_expr, compile_operand, fault
from cubridge.ir.nodes import Assign, Break, For, Gemm, If, Kernel, Loop, Op, RegionCall, RegisterTile, Stmt
from cubridge.ir.walk import field_names

if TYPE_CHECKING:
    from cubridge.engine.core.machine import Agent, Machine


@dataclass(slots=True)
class Instruction:
    """One step. `run(machine, agent, instruction)` moves the agent on and returns True, or returns False: it must wait."""

    run: Callable[[Any, Any, Instruction], bool]
    stmt: Stmt
    operands: tuple[Closure, ...] = ()
    target: int = 0
    depth: int = 0


Handlers: TypeAlias = "Mapping[type[Stmt], Callable[[Any, Any, Instruction], bool]]"


def compile_body(kernel: Kernel, handlers: Handlers) -> tuple[Instruction, ...]:
    """The kernel body as linear code; `handlers` gives the meaning of every statement that is not control flow."""
    builder = _Builder(handlers)
    builder.block(kernel.body)
    return tuple(builder.code)


class _Builder:
    def __init__(self, handlers: Handlers) -> None:
        self.handlers = handlers
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
            case Assign(_, value):
                self.emit(Instruction(self.handlers[Assign], stmt, (compile_expr(value),)))
            case RegionCall():
                parts = tuple(compile_operand(a) for a in stmt.args)
                self.emit(Instruction(self.handlers[RegionCall], stmt, parts))
            case RegisterTile(_, _, rows, cols):
                parts = tuple(compile_expr(x) for x in (rows, cols) if x is not None)
                self.emit(Instruction(self.handlers[RegisterTile], stmt, parts))
            case Gemm(dst, a, b):
                self.emit(
                    Instruction(
                        self.handlers[Gemm], stmt, (compile_operand(dst), compile_operand(a), compile_operand(b))
                    )
                )
            case Op():
                self.emit(Instruction(self.handlers[type(stmt)], stmt, tuple(_op_operands(stmt))))
            case _:
                raise fault("CU301", "a statement that no engine steps", stmt)

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


def _op_operands(stmt: Op) -> Iterable[Closure]:
    for name in field_names(type(stmt)):
        value = getattr(stmt, name)
        yield (lambda agent: None) if value is None else compile_operand(value)


def _branch(machine: Machine[Any], agent: Agent, at: Instruction) -> bool:
    condition = at.operands[0](agent)
    if type(condition) is Lanes:
        then, other = agent.mask & condition.mask, agent.mask & ~condition.mask
        if then and other:
            agent.masks.append((agent.mask, other))
            agent.mask = then
            agent.pc += 1
            return True
        truth = bool(then)
    else:
        truth = condition if type(condition) is bool else machine.decide(condition, at.stmt)
    agent.masks.append((agent.mask, 0))
    agent.pc = agent.pc + 1 if truth else at.target
    return True


def _otherwise(machine: Machine[Any], agent: Agent, at: Instruction) -> bool:
    saved, other = agent.masks[-1]
    if other:
        agent.masks[-1] = (saved, 0)
        agent.mask = other
        agent.pc += 1
    else:
        agent.pc = at.target
    return True


def _end_if(machine: Machine[Any], agent: Agent, at: Instruction) -> bool:
    agent.mask = agent.masks.pop()[0]
    agent.pc += 1
    return True


def _for_start(machine: Machine[Any], agent: Agent, at: Instruction) -> bool:
    start, stop = (machine.decide_int(x(agent), at.stmt) for x in at.operands)
    agent.loops.append([start, stop])
    agent.pc += 1
    return True


def _for_test(machine: Machine[Any], agent: Agent, at: Instruction) -> bool:
    assert isinstance(at.stmt, For)
    step, stop = agent.loops[-1]
    if step < stop:
        agent.names[at.stmt.var] = step
        agent.pc += 1
    else:
        agent.loops.pop()
        agent.pc = at.target
    return True


def _for_next(machine: Machine[Any], agent: Agent, at: Instruction) -> bool:
    agent.loops[-1][0] += 1
    agent.pc = at.target
    return True


def _loop_start(machine: Machine[Any], agent: Agent, at: Instruction) -> bool:
    agent.loops.append([0, 0])
    agent.pc += 1
    return True


def _jump(machine: Machine[Any], agent: Agent, at: Instruction) -> bool:
    agent.pc = at.target
    return True


def _break(machine: Machine[Any], agent: Agent, at: Instruction) -> bool:
    for _ in range(at.depth):
        saved, other = agent.masks.pop()
        if saved != agent.mask or other:
            raise fault("CU256", "threads of one warp leave this loop at different times", at.stmt)
    agent.loops.pop()
    agent.pc = at.target
    return True
