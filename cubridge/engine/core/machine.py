"""The machine that steps agents through a kernel body, and what operands stand for in all engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from cubridge.engine.core.code import WAIT, Instruction
from cubridge.engine.core.operands import GlobalRef, Ring, SharedRef, Value, fault
from cubridge.engine.core.sync import Agent, Policy
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Barrier,
    Expr,
    Field,
    Kernel,
    Name,
    Node,
    RingNext,
    SharedValue,
    Stmt,
    Tile,
)

A = TypeVar("A", bound=Agent)


class Machine(Generic[A]):
    """One run of a kernel body. Engines subclass it and give the operations on tiles their meaning."""

    max_steps: ClassVar[int] = 1_000_000
    """Statements after which a kernel is taken not to end."""

    def __init__(
        self, kernel: Kernel, code: Sequence[Instruction], params: Mapping[str, Value], policy: Policy
    ) -> None:
        self.kernel = kernel
        self.code = code
        self.params = params
        self.policy = policy
        self.agents: list[A] = []
        self.shared: Mapping[str, Field] = {f.name: f for f in kernel.shared}
        self.fragment_rows = next((int(c.value) for c in kernel.constants if c.name == "ROWS"), 1)
        self.steps = 0
        self._sizes: dict[Expr, int] = {}

    # ---- to be given by an engine ----

    def call(self, agent: A, fn: str, args: tuple[Value, ...], node: Expr) -> Value:
        raise NotImplementedError

    def load_shared(self, agent: A, name: str, node: Expr) -> Value:
        raise NotImplementedError

    def store_shared(self, agent: A, name: str, value: Value, stmt: Stmt) -> None:
        raise NotImplementedError

    def atomic_add(self, agent: A, name: str, index: Value, amount: Value, node: Expr) -> Value:
        raise NotImplementedError

    def row_state(self, agent: A, node: Expr) -> Value:
        raise NotImplementedError

    def score_state(self, agent: A, node: Expr) -> Value:
        raise NotImplementedError

    def element(self, name: str, indices: tuple[Value, ...], node: Expr) -> Value:
        raise fault("CU301", "an element of a captured tensor has no value in a kernel body", node)

    def decide(self, value: Value, node: Node) -> bool:
        return bool(value)

    def decide_int(self, value: Value, node: Node) -> int:
        if type(value) is not int:
            raise fault("CU301", "this is not one number for all threads", node)
        return value

    # ---- values ----

    def param(self, name: str, node: Node) -> Value:
        if name not in self.params:
            raise fault("CU301", f"the parameter `{name}` has no value here", node)
        return self.params[name]

    def present(self, name: str, node: Expr) -> bool:
        return self.param(name, node) is not None

    def size(self, expr: Expr | None) -> int:
        """A size of the kernel's declarations: an expression of its constants."""
        if expr is None:
            return 1
        if expr not in self._sizes:
            self._sizes[expr] = int(evaluate_number(expr, self.kernel.constant_values))  # pyright: ignore[reportArgumentType]
        return self._sizes[expr]

    def slot_bytes(self, name: str, node: Expr) -> int:
        declared = self.shared.get(name)
        if declared is None or not isinstance(declared.type, Tile):
            raise fault("CU301", f"`{name}` is not a shared tile", node)
        return self.size(declared.type.rows) * self.size(declared.type.cols) * declared.type.dtype.bytes

    def slot_count(self, name: str, kind: type[Tile] | type[Barrier] | type[SharedValue], node: Node) -> int:
        declared = self.shared.get(name)
        if declared is None or not isinstance(declared.type, kind):
            raise fault("CU301", f"`{name}` is not a shared {kind.__name__.lower()}", node)
        return 1 if isinstance(declared.type, SharedValue) else self.size(declared.type.slots)

    def checked(self, ref: Value, kind: type[Tile] | type[Barrier] | type[SharedValue], node: Node) -> SharedRef:
        """An operand that must be a slot of a shared object of this kind."""
        if not isinstance(ref, SharedRef):
            raise fault("CU301", f"this operand is not a shared {kind.__name__.lower()}", node)
        if not 0 <= ref.slot < self.slot_count(ref.name, kind, ref.node):
            raise fault("CU252", f"`smem.{ref.name}` has no slot {ref.slot}", ref.node)
        return ref

    def whole(self, agent: A, stmt: Stmt) -> None:
        if agent.mask != agent.full:
            what = getattr(stmt, "op", type(stmt).__name__)
            raise fault(
                "CU256", f"{what} is reached by {agent.active} of the {agent.threads} threads of {agent.label}", stmt
            )

    # ---- stepping ----

    def advance(self, agent: A) -> bool:
        """Step an agent until it must wait, ends, or has used its quantum; True if it moved."""
        code, end = self.code, len(self.code)
        steps, limit = 0, self.policy.quantum
        while steps < limit:
            if agent.pc >= end:
                agent.done = True
                self.ended(agent)
                return True
            at = code[agent.pc]
            agent.pc += 1
            if at.run(self, agent, at) is WAIT:
                agent.pc -= 1
                break
            steps += 1
            self.steps += 1
            if self.steps > self.max_steps:
                raise fault("CU267", "the kernel does not come to an end", at.stmt)
        return steps > 0

    def here(self, agent: A) -> Stmt:
        """The statement that `agent` is stepping."""
        return self.code[agent.pc - 1].stmt

    def ended(self, agent: A) -> None:
        """`agent` has left the kernel."""

    # ---- statements alike in all engines ----

    def assign(self, agent: A, stmt: Assign, value: Value) -> None:
        value = value
        match stmt.target:
            case Name(name):
                agent.names[name] = value
            case Attr(Name("smem"), name):
                self.store_shared(agent, name, value, stmt)
            case Attr(Name("tile"), name) if "tile" in agent.names:
                setattr(agent.names["tile"], name, value)
            case _:
                raise fault("CU301", "a kernel body assigns to locals, to its work tile and to shared scalars", stmt)

    def ring_next(self, agent: A, stmt: RingNext, ring: Value) -> None:
        ring = ring
        if not isinstance(ring, Ring):
            raise fault("CU301", "this is not a ring", stmt)
        ring.next()

    def global_param(self, ref: Value, node: Node) -> tuple[GlobalRef, Field]:
        """An operand that must be global memory, and its declaration."""
        if isinstance(ref, GlobalRef):
            for declared in self.kernel.params:
                if declared.name == ref.name:
                    return ref, declared
        raise fault("CU301", "this operand is not global memory", node)
