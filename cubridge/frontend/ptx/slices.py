"""Slices: what a lane's register holds at a step, followed backwards through registers, shared memory and other lanes.

A window of steps is sliced at a time, such as one key tile: floats that a loop carries into it are leaves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cubridge.frontend.ptx.floats import apply_rule, as_float, is_float
from cubridge.frontend.ptx.given import Given, address_name
from cubridge.frontend.ptx.integers import integer_rule
from cubridge.frontend.ptx.reach import Reach, Written, is_shared, moves_of, offset_of
from cubridge.frontend.ptx.values import Element, Node, Value
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
class Boundary:
    """Steps between which floats were made that slices end at, by warp: from the beginning of a loop to one of its iterations."""

    since: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    def holds(self, step: int, warp: int) -> bool:
        return warp < len(self.ends) and self.since[warp] <= step < self.ends[warp]


NO_BOUNDARY: Final = Boundary()


@dataclass(slots=True)
class Slices:
    """Values of one trace. Errors: CU850 where an integer is another than the run had."""

    reach: Reach
    given: Given
    boundary: Boundary = NO_BOUNDARY
    known: dict[Key, Value] = field(default_factory=dict[Key, Value])
    states: dict[Key, Node] = field(default_factory=dict[Key, Node])
    """What slices end at, by what made it."""
    of_launch: dict[Key, bool] = field(default_factory=dict[Key, bool])
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

    def made(self, root: Key) -> Value:
        """What a result of a step is."""
        return self._state(root) if self._ends_at(root) else self._value(root)

    def root(self, step: int, register: Register, lane: int, warp: int) -> Key | None:
        """What made the value that a lane of a register holds before a step, moves aside."""
        made = self.reach.register(warp, register.key, lane, step)
        return None if made is None else self._root((made, self.reach.result_index(made, register), lane))

    def _root(self, key: Key) -> Key:
        """Through moves, to what they moved."""
        while True:
            step = self.reach.trace.steps[key[0]]
            operation = self.reach.trace.code[step.at]
            source = operation.sources[0] if operation.sources else None
            if operation.name not in _MOVES or not isinstance(source, Register):
                return key
            made = self.reach.register(step.warp, source.key, key[2], key[0])
            if made is None:
                return key
            key = (made, self.reach.result_index(made, source), key[2])

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
        if self.boundary.holds(made, warp) and self._ends_at(root := self._root(key)):
            return self._state(root)
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

    def _ends_at(self, root: Key) -> bool:
        """Is it a float that a loop carries, and no number of the launch."""
        step = self.reach.trace.steps[root[0]]
        name = self.reach.trace.code[step.at].name
        return (
            self.boundary.holds(root[0], step.warp)
            and (is_float(name) or name.startswith("shfl"))
            and not self.is_of_launch(root)
        )

    def is_of_launch(self, key: Key) -> bool:
        """Is it made of parameters and numbers alone."""
        if key not in self.of_launch:
            step = self.reach.trace.steps[key[0]]
            operation = self.reach.trace.code[step.at]
            head = operation.name.split(".")[0]
            self.of_launch[key] = ".param" in operation.name or (
                head not in ("ld", "ldmatrix", "mma", "shfl")
                and all(self.is_of_launch(k) for k in self._made_by(key, step, operation))
            )
        return self.of_launch[key]

    def _made_by(self, key: Key, step: Step, operation: Operation) -> Iterator[Key]:
        for source in operation.sources:
            if isinstance(source, Register):
                made = self.reach.register(step.warp, source.key, key[2], key[0])
                if made is not None:
                    yield made, self.reach.result_index(made, source), key[2]

    def _state(self, root: Key) -> Node:
        if root not in self.states:
            span = self.reach.trace.code[self.reach.trace.steps[root[0]].at].span
            self.states[root] = Node("state", data=root, span=span)
        return self.states[root]

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
        return sides[:1] if self._held(index, step, operation.sources[2], lane) else sides[1:]

    def _held(self, index: int, step: Step, condition: Scalar | Address, lane: int) -> bool:
        """Was a condition true in the run."""
        if isinstance(condition, Number):
            return bool(condition.bits)
        assert isinstance(condition, Register)
        made = self.reach.register(step.warp, condition.key, lane, index)
        assert made is not None
        truth = self.reach.trace.steps[made].results[self.reach.result_index(made, condition)]
        assert isinstance(truth, int)
        return bool(truth >> lane & 1) != condition.negated

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


def signed(bits: int, width: int) -> int:
    top = 1 << 8 * width - 1
    return (bits & 2 * top - 1 ^ top) - top


def _sum_of_products(args: tuple[Value, ...], span: Span) -> Node:
    start, factors = args[0], args[1:]
    pairs = zip(factors[::2], factors[1::2], strict=True)
    return Node("sum", (start, *(Node("mul", pair, span=span) for pair in pairs)), span=span)


def _packed(args: tuple[Value, ...], span: Span) -> Value:
    """Values of two bytes each, or what two or four of them were put together to."""
    if len(args) == 1:
        return args[0]
    halves = tuple(a.args[n % len(a.args)] if isinstance(a, Node) and a.op == "pack" else a for n, a in enumerate(args))
    return Node("pack", halves, span=span)
