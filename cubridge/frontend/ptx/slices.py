"""Slices: what a lane's register holds at a step, followed backwards through registers, shared memory and other lanes.

A window of steps is sliced at a time, such as one key tile: floats that a loop carries into it are leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cubridge.frontend.ptx.floats import apply_rule, as_float, is_float
from cubridge.frontend.ptx.integers import integer_rule
from cubridge.frontend.ptx.reach import Reach, RegisterKey, Written, is_shared, moves_of, offset_of
from cubridge.frontend.ptx.values import ZERO, Element, Node, Value
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import CuError, Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.nodes import Expr, Name
from cubridge.ir.source import NOWHERE, Span
from cubridge.ir.trace import LANES, Address, Number, Operation, Register, Scalar, Special, Step

Key: TypeAlias = tuple[int, int, int]
"""Step, number of the result, lane."""
Dependency: TypeAlias = "Key | Value"

_MOVES: Final = ("mov.f32", "mov.b32", "mov.u32")


@dataclass(frozen=True, slots=True)
class Param:
    """What lies among the parameters, in so many bytes."""

    value: Value
    bytes: int


@dataclass(frozen=True, slots=True)
class Given:
    """What a launch gives: `params` by their offsets, between which all `bytes` are zero; `sizes` in numbers. An address is the
    atom of its tensor."""

    params: Mapping[int, Param]
    sizes: Mapping[str, int]
    bytes: int

    def read(self, offset: int, size: int) -> Value | None:
        """What lies there; None for a part of a parameter, or of two."""
        found = self.params.get(offset)
        if found is not None and found.bytes == size:
            return found.value
        is_apart = all(at + p.bytes <= offset or offset + size <= at for at, p in self.params.items())
        return ZERO if is_apart and offset >= 0 and offset + size <= self.bytes else None


@dataclass(frozen=True, slots=True)
class Boundary:
    """What a loop carries past a step: values that were made in `steps` and are of these registers, by the step, result and lane
    that made them."""

    steps: range
    carried: Mapping[Key, RegisterKey]


NO_BOUNDARY: Final = Boundary(range(0), {})


@dataclass(slots=True)
class Slices:
    """Values of one trace. Errors: CU850 where an integer is another than the run had."""

    reach: Reach
    given: Given
    boundary: Boundary = NO_BOUNDARY
    known: dict[Key, Value] = field(default_factory=dict[Key, Value])
    states: dict[tuple[int, int, RegisterKey], Node] = field(default_factory=dict[tuple[int, int, RegisterKey], Node])
    joins: dict[Key, Node | None] = field(default_factory=dict[Key, "Node | None"])
    numbers: dict[Expr, int] = field(default_factory=dict[Expr, int])

    # ---- asking ----

    def register(self, step: int, register: Register, lane: int, warp: int) -> Value:
        """What a lane of a register holds before a step."""
        return self._value(self._source_at(step, register, lane, warp, NOWHERE))

    def source(self, step: int, number: int, lane: int) -> Value:
        """What a source of a step is."""
        at = self.reach.trace.steps[step]
        operation = self.reach.trace.code[at.at]
        return self._value(self._operand(step, at, operation, operation.sources[number], lane))

    def root(self, step: int, register: Register, lane: int, warp: int) -> Key | None:
        """What made the value that a lane of a register holds before a step, moves aside."""
        found = self._source_at(step, register, lane, warp, NOWHERE)
        while isinstance(found, tuple):
            at = self.reach.trace.steps[found[0]]
            operation = self.reach.trace.code[at.at]
            if operation.name not in _MOVES or not isinstance(operation.sources[0], Register):
                return found
            inner = self._source_at(found[0], operation.sources[0], lane, warp, operation.span)
            if not isinstance(inner, tuple):
                return found
            found = inner
        return None

    def granule(self, written: Written | None, span: Span) -> Value:
        """What two bytes of shared memory hold."""
        return self._value(self._granule(written, span))

    def numeric(self, value: Poly) -> int:
        """The number that a polynomial is in this launch and block."""
        total = 0
        for monomial, coefficient in value.terms:
            for atom in monomial:
                coefficient *= self._number(atom)
            total += coefficient
        return total

    def _number(self, atom: Expr) -> int:
        if atom not in self.numbers:
            trace = self.reach.trace
            names = {f"block_{x}": n for x, n in zip("xyz", trace.block, strict=True)}
            names |= {f"grid_{x}": n for x, n in zip("xyz", trace.grid, strict=True)}
            names |= {address_name(w.name): w.base for w in trace.windows}
            self.numbers[atom] = int(evaluate_number(atom, {**self.given.sizes, **names}))  # pyright: ignore[reportArgumentType]
        return self.numbers[atom]

    # ---- following ----

    def _value(self, wanted: Dependency) -> Value:
        if not isinstance(wanted, tuple):
            return wanted
        waiting = [wanted]
        while waiting:
            key = waiting[-1]
            if key in self.known:
                waiting.pop()
                continue
            needs = self._dependencies(key)
            missing = [n for n in needs if isinstance(n, tuple) and n not in self.known]
            if missing:
                waiting += missing
                continue
            args = tuple(self.known[n] if isinstance(n, tuple) else n for n in needs)
            self.known[key] = self._made(key, args)
            waiting.pop()
        return self.known[wanted]

    def _dependencies(self, key: Key) -> Sequence[Dependency]:
        index, number, lane = key
        step = self.reach.trace.steps[index]
        operation = self.reach.trace.code[step.at]
        head = operation.name.split(".")[0]
        if head == "ld":
            return self._loaded(index, step, operation, number, lane)
        if head == "ldmatrix":
            return self._matrix(index, step, number, lane, ".trans" in operation.name)
        if head == "mma":
            return self._product(index, step, operation, number, lane)
        if head == "shfl":
            return self._shuffled(index, step, operation, lane)
        if head == "selp" and not operation.name.endswith("f32"):
            return self._integer_choice(index, step, operation, lane)
        return [self._operand(index, step, operation, source, lane) for source in operation.sources]

    def _operand(self, index: int, step: Step, operation: Operation, source: Scalar | Address, lane: int) -> Dependency:
        match source:
            case Address(base, offset):
                inner = self._operand(index, step, operation, base, lane)
                return inner if offset == 0 else self._moved(inner, offset)
            case Number(bits, 0):
                return Node("truth", data=bool(bits), span=operation.span)
            case Number(bits, width):
                return Poly.constant(signed(bits, width))
            case Special(name):
                return self._special(name, step.warp * LANES + lane)
            case Register():
                return self._source_at(index, source, lane, step.warp, operation.span)

    def _moved(self, inner: Dependency, offset: int) -> Value:
        return _integer(self._value(inner), NOWHERE) + offset

    def _source_at(self, index: int, register: Register, lane: int, warp: int, span: Span) -> Dependency:
        made = self.reach.register(warp, register.key, lane, index)
        if made is None:
            return Node("opaque", data="a register that nothing has written", span=span)
        key = (made, self.reach.result_index(made, register), lane)
        if made in self.boundary.steps and key in self.boundary.carried:
            return self._state(warp, lane, self.boundary.carried[key], span)
        left_out = self.reach.was_left_out(warp, register.key, lane, made, index)
        if left_out is not None and is_float(self.reach.trace.code[self.reach.trace.steps[made].at].name):
            return Node("left out", span=self.reach.trace.code[left_out].span)
        return self._joined(key, register, warp, index) or key

    def _joined(self, key: Key, register: Register, warp: int, index: int) -> Node | None:
        """A float that was computed because a condition let it: what the register holds either way."""
        made = self.reach.trace.steps[key[0]].at
        asked = self._asked(made, key, warp, index)
        if asked is None or not is_float(self.reach.trace.code[made].name):
            return None
        if key not in self.joins:
            self.joins[key] = self._either_way(key, register, warp, asked)
        return self.joins[key]

    def _either_way(self, key: Key, register: Register, warp: int, asked: int) -> Node | None:
        if self.reach.register(warp, register.key, key[2], asked) is None:
            return None
        at = self.reach.trace.steps[asked].at
        operation = self.reach.trace.code[at]
        assert operation.guard is not None
        condition = self._value(self._source_at(asked, operation.guard, key[2], warp, operation.span))
        before = as_float(self._value(self._source_at(asked, register, key[2], warp, operation.span)), operation.span)
        ways = (before, self._value(key))
        if operation.target >= 0:
            self.reach.joined.add(at)
        then, otherwise = ways if (operation.target >= 0) != operation.guard.negated else ways[::-1]
        return Node("where", (condition, then, otherwise), span=operation.span)

    def _asked(self, made: int, key: Key, warp: int, index: int) -> int | None:
        """The step whose condition let a value be computed that is read outside of what it let: a branch around, or itself."""
        if self.reach.trace.code[made].guard is not None:
            return key[0]
        branch = self.reach.branches_around.get(made)
        read = self.reach.trace.steps[index].at
        if branch is None or branch < read < self.reach.trace.code[branch].target:
            return None
        return self.reach.last(warp, branch, key[2], key[0])

    def _state(self, warp: int, lane: int, register: RegisterKey, span: Span) -> Node:
        key = (warp, lane, register)
        if key not in self.states:
            self.states[key] = Node("state", data=register, span=span)
        return self.states[key]

    def _special(self, name: str, thread: int) -> Poly:
        trace = self.reach.trace
        x, y, _ = trace.threads
        numbers = {
            "%tid.x": thread % x, "%tid.y": thread // x % y, "%tid.z": thread // x // y, "%laneid": thread % LANES,
            "%warpid": thread // LANES, **{f"%ntid.{a}": n for a, n in zip("xyz", trace.threads, strict=True)},
        }  # fmt: skip
        if name in numbers:
            return Poly.constant(numbers[name])
        return Poly.atom(Name({"%ctaid": "block_", "%nctaid": "grid_"}.get(name[:-2], name) + name[-1]))

    # ---- memory ----

    def _loaded(self, index: int, step: Step, operation: Operation, number: int, lane: int) -> Sequence[Dependency]:
        address = int(step.addresses[0][lane])
        moves = moves_of(operation.name)
        if ".param" in operation.name:
            found = self.given.read(address + number * moves.bytes, moves.bytes)
            made = Node("opaque", data="a part of a parameter", span=operation.span)
            return [made if found is None else found]
        first = address + number * moves.bytes
        if is_shared(operation.name, address):
            return self._halves(index, offset_of(first), moves.bytes, operation.span)
        return [self._element(first + part, operation.span) for part in range(0, moves.bytes, 2)]

    def _halves(self, index: int, offset: int, size: int, span: Span) -> Sequence[Dependency]:
        """What wrote each two bytes; one value where one store wrote them all."""
        parts = [self.reach.shared(offset + at, index) for at in range(0, size, 2)]
        found = [self._granule(part, span) for part in parts]
        whole = [x for x in found if isinstance(x, tuple)]
        return found[:1] if len(whole) == len(found) and len(set(whole)) == 1 else found

    def _granule(self, written: Written | None, span: Span) -> Dependency:
        if written is None:
            return Node("opaque", data="shared memory that nothing has written", span=span)
        step = self.reach.trace.steps[written.step]
        operation = self.reach.trace.code[step.at]
        if operation.name.startswith("cp."):
            return self._copied(written, step, operation)
        moves = moves_of(operation.name)
        which = written.part * 2 // moves.bytes
        return self._operand(written.step, step, operation, operation.sources[1 + which], written.lane)

    def _copied(self, written: Written, step: Step, operation: Operation) -> Value:
        """Of a cp.async: an element, or zero past the bytes that it reads."""
        valid = 16
        if len(operation.sources) > 3:
            size = self._value(self._operand(written.step, step, operation, operation.sources[3], written.lane))
            valid = self.numeric(_integer(size, operation.span))
        if written.part * 2 >= valid:
            return Poly(())
        return self._element(int(step.addresses[1][written.lane]) + written.part * 2, operation.span)

    def _element(self, address: int, span: Span) -> Node:
        for window in self.reach.trace.windows:
            if window.base <= address < window.base + window.bytes:
                return Node("element", data=Element(window.name, address - window.base), span=span)
        return Node("opaque", data="an address of no tensor", span=span)

    def _matrix(self, index: int, step: Step, number: int, lane: int, transposed: bool) -> Sequence[Dependency]:
        span = self.reach.trace.code[step.at].span
        found: list[Dependency] = []
        for half in range(2):
            row, column = (lane % 4 * 2 + half, lane // 4) if transposed else (lane // 4, lane % 4 * 2 + half)
            at = offset_of(int(step.addresses[0][number * 8 + row])) + column * 2
            found.append(self._granule(self.reach.shared(at, index), span))
        return found

    # ---- other lanes ----

    def _shuffled(self, index: int, step: Step, operation: Operation, lane: int) -> Sequence[Dependency]:
        """The lane that a shuffle reads, within its segment."""
        other, segment = (self._value(self._operand(index, step, operation, s, lane)) for s in operation.sources[1:3])
        by, bound = (self.numeric(_integer(x, operation.span)) for x in (other, segment))
        mask, low = bound >> 8 & 31, bound & 31
        at = {"bfly": lane ^ by, "down": lane + by, "up": lane - by, "idx": lane & mask | by & ~mask}[
            operation.name.split(".")[2]
        ]
        if at < 0 or at > (lane & mask | low & ~mask):
            at = lane
        return [self._operand(index, step, operation, operation.sources[0], at)]

    def _product(self, index: int, step: Step, operation: Operation, number: int, lane: int) -> Sequence[Dependency]:
        """Accumulator, then pairs of factors in order of k."""
        depth = 16 if "m16n8k16" in operation.name else 8
        row, column = lane // 4 + 8 * (number // 2), lane % 4 * 2 + number % 2
        a, b = depth // 4, depth // 8
        found = [self._operand(index, step, operation, operation.sources[a + b + number], lane)]
        for k in range(depth):
            left = operation.sources[row // 8 + k // 8 * 2]
            found.append(self._half(index, step, operation, left, row % 8 * 4 + k % 8 // 2, k % 2))
            right = operation.sources[a + k // 8]
            found.append(self._half(index, step, operation, right, column * 4 + k % 8 // 2, k % 2))
        return found

    def _half(
        self, index: int, step: Step, operation: Operation, source: Scalar | Address, lane: int, half: int
    ) -> Value:
        value = self._value(self._operand(index, step, operation, source, lane))
        if isinstance(value, Node) and value.op == "pack":
            return value.args[half]
        if isinstance(value, Poly) and value.as_int() == 0:
            return value
        return Node("half", (value,), half, span=operation.span)

    def _integer_choice(self, index: int, step: Step, operation: Operation, lane: int) -> Sequence[Dependency]:
        """Of integers the one that the run chose; of anything else both, and the condition."""
        sides = [self._operand(index, step, operation, s, lane) for s in operation.sources[:2]]
        values = [self._value(s) for s in sides]
        if not all(isinstance(v, Poly) for v in values):
            return [*sides, self._operand(index, step, operation, operation.sources[2], lane)]
        result = step.results[0]
        assert not isinstance(result, int)
        had = int(result[lane])
        width = (operation.results[0] or Register(0, 4)).bytes
        return [next((v for v in values if self._is(v, had, width)), values[0])]

    # ---- meaning ----

    def _made(self, key: Key, args: tuple[Value, ...]) -> Value:
        index, number, lane = key
        step = self.reach.trace.steps[index]
        operation = self.reach.trace.code[step.at]
        head = operation.name.split(".")[0]
        if head == "mma":
            return _sum_of_products(args, operation.span)
        if head in ("ld", "ldmatrix"):
            value = _packed(args, operation.span)
        elif head == "shfl" or (head == "selp" and len(args) == 1):
            value = args[0]
        else:
            value = self._computed(operation, args, number)
        result, register = step.results[number], operation.results[number]
        if isinstance(value, Node) and value.op == "opaque" and _are_numbers(args) and not isinstance(result, int):
            return Poly.constant(signed(int(result[lane]), register.bytes if register else 8))
        if isinstance(value, Poly) and not isinstance(result, int):
            return self._confirmed(value, int(result[lane]), register.bytes if register else 8, operation)
        return value

    def _computed(self, operation: Operation, args: tuple[Value, ...], number: int) -> Value:
        if operation.name.startswith("mov.b32 unpack"):
            value = args[0]
            if isinstance(value, Node) and value.op == "pack":
                return value.args[number]
        if is_float(operation.name):
            args = tuple(as_float(a, operation.span) for a in args)
        elif all(isinstance(a, Poly) for a in args) and (rule := integer_rule(operation.name)) is not None:
            found = rule(*args)
            if found is not None:
                return found
        found = apply_rule(operation.name, args, operation.span)
        return Node("opaque", args, operation.name, span=operation.span) if found is None else found

    def _confirmed(self, value: Poly, had: int, width: int, operation: Operation) -> Poly:
        if not self._is(value, had, width):
            message = f"`{operation.name}` gives {signed(had, width)}, and its formula {self.numeric(value)}"
            raise CuError(Diagnostic("CU850", message, operation.span))
        return value

    def _is(self, value: Value, had: int, width: int) -> bool:
        return isinstance(value, Poly) and (self.numeric(value) - had) % (1 << 8 * width) == 0


def _integer(value: Value, span: Span) -> Poly:
    """Errors: CU854 for an address, size or lane that is no formula of integers."""
    if isinstance(value, Poly):
        return value
    at = value.span if span is NOWHERE else span
    raise CuError(Diagnostic("CU854", "an address, size or lane is made of what is no formula of integers", at))


def _are_numbers(args: tuple[Value, ...]) -> bool:
    """Do the operands depend on the thread alone, so that the number that the run had is the value."""
    return bool(args) and all(isinstance(a, Poly) and a.as_int() is not None for a in args)


def address_name(tensor: str) -> str:
    """The atom that stands for where a tensor begins."""
    return f"@{tensor}"


def signed(bits: int, width: int) -> int:
    top = 1 << 8 * width - 1
    return (bits & 2 * top - 1 ^ top) - top


def _sum_of_products(args: tuple[Value, ...], span: Span) -> Node:
    start, factors = args[0], args[1:]
    pairs = zip(factors[::2], factors[1::2], strict=True)
    return Node("sum", (start, *(Node("mul", pair, span=span) for pair in pairs)), span=span)


def _packed(args: tuple[Value, ...], span: Span) -> Value:
    if len(args) == 1:
        return args[0]
    if len(args) == 2:
        return Node("pack", args, span=span)
    return Node("opaque", args, "a load of eight bytes", span=span)
