"""Rule: integers of 32 bits stay in range at the largest sizes; where they might not, `i64(..)` has to stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Binary,
    Call,
    Captured,
    Expr,
    For,
    Function,
    If,
    Index,
    IntLit,
    Kernel,
    Loop,
    Name,
    Scalar,
    Stmt,
    Unary,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.types import DType
from cubridge.ir.walk import children, free_names

Range = tuple[int, int]

LIMITS: Final[Mapping[str, int]] = {"B": 512, "Hq": 256, "Hk": 256, "Lq": 2**20, "Lk": 2**20, "D": 256}
"""The largest sizes that a kernel has to be right for, unless the caller says others."""

LARGEST: Final = 2**31 - 1
_BOUNDS: Final = (LARGEST, *(2**n for n in reversed(range(31))))


def check_region_ranges(kernel: Kernel, limits: Mapping[str, int] = LIMITS) -> Iterable[Diagnostic]:
    """CU224 in regions: each smallest expression that may leave 32 bits when sizes are at most `limits`."""
    for region in kernel.regions:
        yield from _Ranges(kernel, limits).function(region)


def check_body_ranges(kernel: Kernel, limits: Mapping[str, int] = LIMITS) -> Iterable[Diagnostic]:
    """The same in the schedule and the kernel body."""
    yield from _Ranges(kernel, limits).function(kernel.schedule)
    yield from _Ranges(kernel, limits).body(kernel.body)


def captured_bound(kernel: Kernel, limits: Mapping[str, int] = LIMITS) -> int:
    """How large in size captured integers may be, so that every integer of the regions stays within 32 bits when sizes are
    at most `limits`: `LARGEST`, or a power of two below; 0 if none is small enough."""
    return next((bound for bound in _BOUNDS if _holds(kernel, limits, (-bound, bound))), 0)


def _holds(kernel: Kernel, limits: Mapping[str, int], captured: Range) -> bool:
    known: dict[str, Range | None] = {}
    for region in sorted(kernel.regions, key=lambda r: r.name != "tile_setup"):
        ranges = _Ranges(kernel, limits, captured)
        ranges.names |= known
        if any(ranges.function(region)):
            return False
        known |= {name: value for name, value in ranges.names.items() if name.startswith(("tile.", "row."))}
    return True


@dataclass(slots=True)
class _Ranges:
    """Ranges of the integers of one body. A range that nothing is known about is None, and never a fault. `captured`: that
    of every captured integer."""

    kernel: Kernel
    limits: Mapping[str, int]
    captured: Range | None = None
    names: dict[str, Range | None] = field(default_factory=dict)
    faults: list[Diagnostic] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = self.limits
        self.names |= {name: (1, value) for name, value in sizes.items()}
        self.names |= {c.name: (c.value, c.value) for c in self.kernel.constants if isinstance(c.value, int)}
        rows, keys = sizes["Lq"] + 1024, sizes["Lk"] + 1024  # tiles reach past the end
        self.names |= {
            "i": (0, rows),
            "j": (0, keys),
            "kv_start": (0, keys),
            "e": (0, 1024),
            "r": (0, 16),
            "t": (0, keys),
        }
        self.names |= {"tile.b": (0, sizes["B"] - 1), "tile.h": (0, sizes["Hq"] - 1)}
        self.names |= {"tile.hk": (0, sizes["Hk"] - 1), "tile.q_start": (0, rows)}
        for item in self.kernel.params:
            if isinstance(item.type, Scalar) and item.type.host is not None:
                self.names[f"p.{item.name}"] = self._of_host(item.type.host, item.type.dtype)

    def _of_host(self, value: Expr, dtype: DType) -> Range | None:
        if not dtype.is_int:
            return None
        captured = free_names(value) - self.names.keys()
        self.names |= dict.fromkeys(captured, self.captured)
        found = self.quiet(value)
        for name in captured:
            del self.names[name]
        return found

    def function(self, function: Function) -> Iterator[Diagnostic]:
        yield from self.body(function.body)
        if function.result is not None:
            self.range(function.result)
        yield from self.faults

    def body(self, body: tuple[Stmt, ...]) -> Iterator[Diagnostic]:
        self._block(body)
        yield from self.faults

    def quiet(self, expr: Expr) -> Range | None:
        """The range of a host expression, which Python's integers hold."""
        faults = list(self.faults)
        value = self.range(expr)
        self.faults = faults
        return value

    def _block(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            for child in children(stmt):
                if isinstance(child, Expr):
                    self.range(child)
            match stmt:
                case Assign(Name(name), value):
                    self.names[name] = self._joined(name, self.quiet(value))
                case Assign(Attr(Name(scope), name), value):
                    field = f"{scope}.{name}"
                    self.names[field] = self._joined(field, self.quiet(value))
                case If(_, then, orelse):
                    self._block(then)
                    self._block(orelse)
                case For(var, _, _, inner):
                    self.names[var] = None
                    self._block(inner)
                case Loop(inner):
                    self._block(inner)
                case _:
                    pass

    def _joined(self, name: str, new: Range | None) -> Range | None:
        """The range after an assignment; a name with several has no range, since loops may carry either value on."""
        return new if name not in self.names or self.names[name] == new else None

    def range(self, expr: Expr) -> Range | None:
        match expr:
            case IntLit(value):
                return value, value
            case Name(name):
                return self.names.get(name)
            case Attr(Name(scope), name):
                return self.names.get(f"{scope}.{name}")
            case Index(Attr(Name("p"), name), indices):
                for index in indices:
                    self.range(index)
                return self.captured if self._is_captured_int(name) else None
            case Unary("-", operand):
                inner = self.range(operand)
                return None if inner is None else (-inner[1], -inner[0])
            case Binary(op, left, right):
                return self._checked(expr, _combine(op, self.range(left), self.range(right)), (left, right))
            case Call(fn, args):
                return self._call(fn, [self.range(a) for a in args])
            case _:
                for child in children(expr):
                    if isinstance(child, Expr):
                        self.range(child)
                return None

    def _is_captured_int(self, name: str) -> bool:
        types = (item.type for item in self.kernel.params if item.name == name)
        return any(isinstance(t, Captured) and t.dtype.is_int for t in types)

    def _checked(self, expr: Binary, value: Range | None, operands: tuple[Expr, ...]) -> Range | None:
        if value is None or max(abs(value[0]), abs(value[1])) <= LARGEST or any(map(_is_wide, operands)):
            return value
        largest = value[1] if value[1] > -value[0] else value[0]
        sizes = ", ".join(f"{n}={v}" for n, v in self.limits.items() if n != "D")
        message = f"`{print_expr(expr)}` reaches {largest} at {sizes}, which 32 bits do not hold"
        self.faults.append(Diagnostic("CU224", message, expr.span, help="put `i64(..)` around its first operand"))
        return None

    def _call(self, fn: str, args: list[Range | None]) -> Range | None:
        match fn, args:
            case "i32" | "i64" | "f32", [one]:
                return one if fn != "f32" else None
            case "minimum", [(a, b), (c, d)]:
                return min(a, c), min(b, d)
            case "maximum", [(a, b), (c, d)]:
                return max(a, c), max(b, d)
            case "where", [_, (a, b), (c, d)]:
                return min(a, c), max(b, d)
            case "ceil_div", [(a, b), (c, _)] if c > 0 and a >= 0:
                return 0, -(-b // c)
            case "floor_div", [left, right]:
                return _combine("//", left, right)
            case "floor_mod", [left, right]:
                return _combine("%", left, right)
            case "abs", [(a, b)]:
                return 0, max(abs(a), abs(b))
            case _:
                return None


def _combine(op: str, left: Range | None, right: Range | None) -> Range | None:
    if op == "%" and right is not None:
        return (0, right[1] - 1) if right[0] > 0 else (min(right[0], 0), max(right[1], 0))
    if left is None or right is None:
        return None
    (a, b), (c, d) = left, right
    match op:
        case "+":
            return a + c, b + d
        case "-":
            return a - d, b - c
        case "*":
            corners = (a * c, a * d, b * c, b * d)
            return min(corners), max(corners)
        case "//" if c > 0:
            return min(a // c, a // d), max(b // c, b // d)
        case _:
            return None


def _is_wide(expr: Expr) -> bool:
    """Is an operand of 64 bits, so that its operator is too."""
    match expr:
        case Call("i64"):
            return True
        case Binary(_, left, right):
            return _is_wide(left) or _is_wide(right)
        case Unary(_, operand):
            return _is_wide(operand)
        case _:
            return False
