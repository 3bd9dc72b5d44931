"""Rule: integers of 32 bits stay in range at the largest sizes; where they might not, `i64(..)` has to stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Final

from cubridge.ir.algebra.exprs import operation
from cubridge.ir.algebra.growth import dominates, growth
from cubridge.ir.algebra.interval import EVERYTHING, INTEGERS, Interval, image
from cubridge.ir.algebra.normal import poly, to_expr
from cubridge.ir.algebra.poly import Poly
from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.evaluate import evaluate_number
from cubridge.ir.families import FORWARD
from cubridge.ir.nodes import (
    SIZES,
    Assign,
    Attr,
    Binary,
    Call,
    Captured,
    Expr,
    Field,
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
    TileList,
    Unary,
)
from cubridge.ir.printer import print_expr
from cubridge.ir.types import DType
from cubridge.ir.walk import children, free_names

LIMITS: Final[Mapping[str, int]] = {"B": 512, "Hq": 256, "Hk": 256, "Lq": 2**20, "Lk": 2**20, "D": 256}
"""The largest sizes that a kernel has to be right for, unless the caller says others."""

BEYOND: Final = 1024
"""How far rows and keys of a tile may reach past the end."""
LARGEST: Final = 2**31 - 1
LARGEST_ENTRY: Final = 2**15 - 1
"""Of a list of key tiles."""
_BOUNDS: Final = (LARGEST, *(2**n for n in reversed(range(31))))
_PAST_ROWS: Final = Poly.atom(Name("Lq")) + BEYOND
_PAST_KEYS: Final = Poly.atom(Name("Lk")) + BEYOND
_GROWN: Final[Mapping[str, Poly]] = {
    **dict.fromkeys(("j", "kv_start", "t"), _PAST_KEYS),
    "i": _PAST_ROWS,
    "tile.q_start": Poly.atom(Name("Lq")),
    "tile.b": Poly.atom(Name("B")),
    "tile.h": Poly.atom(Name("Hq")),
    "tile.hk": Poly.atom(Name("Hk")),
}
"""What places never pass. A query tile starts within the rows."""


def check_region_ranges(kernel: Kernel, limits: Mapping[str, int] = LIMITS) -> Iterable[Diagnostic]:
    """CU224 in regions: each smallest expression that may leave 32 bits when sizes are at most `limits`."""
    known = Ranges.of(kernel, limits)
    for region in kernel.regions:
        yield from known.again().function(region)


def check_body_ranges(kernel: Kernel, limits: Mapping[str, int] = LIMITS) -> Iterable[Diagnostic]:
    """The same in the schedule and the kernel body."""
    known = Ranges.of(kernel, limits)
    yield from known.again().function(kernel.schedule)
    yield from known.again().body(kernel.body)


def captured_bound(kernel: Kernel, limits: Mapping[str, int] = LIMITS) -> int:
    """How large in size captured integers may be, so that every integer of the regions stays within 32 bits when sizes are
    at most `limits`: `LARGEST`, or a power of two below; 0 if none is small enough."""
    return next((bound for bound in _BOUNDS if _holds(kernel, limits, Interval(-bound, bound))), 0)


def _holds(kernel: Kernel, limits: Mapping[str, int], captured: Interval) -> bool:
    known = Ranges.of(kernel, limits, captured)
    for region in sorted(kernel.regions, key=lambda r: r.name != "tile_setup"):
        ranges = known.again()
        if any(ranges.function(region)):
            return False
        known.names |= {name: value for name, value in ranges.names.items() if name.startswith(("tile.", "row."))}
    return True


@dataclass(slots=True)
class Ranges:
    """Ranges of the integers of one body. Where nothing is known it is EVERYTHING, and never a fault. `captured`: the range of
    every captured integer. `grown`: polynomials of sizes that names never pass; `held`: some that stay within 32 bits at every
    launch. With `asks`, what `held` would have to say besides is added to it, with some room, where small sizes meet it.
    `of_launch`: names; what is made of them alone a launch computes, in integers of any width."""

    limits: Mapping[str, int]
    captured: Interval = EVERYTHING
    params: tuple[Field, ...] = ()
    names: dict[str, Interval] = field(default_factory=dict[str, Interval])
    grown: dict[str, Poly] = field(default_factory=dict[str, Poly])
    held: list[Poly] = field(default_factory=list[Poly])
    asks: bool = False
    of_launch: frozenset[str] = frozenset()
    faults: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def __post_init__(self) -> None:
        sizes = self.limits
        rows, keys = sizes["Lq"] + BEYOND, sizes["Lk"] + BEYOND
        most = {"i": rows, "j": keys, "kv_start": keys, "e": 1024, "r": 16, "t": max(rows, keys), "tile.q_start": rows}
        most |= {"q_start": rows, "tile.kv_start": keys}
        most |= {"tile.b": sizes["B"] - 1, "tile.h": sizes["Hq"] - 1, "tile.hk": sizes["Hk"] - 1}
        self.names |= {name: Interval(1, value) for name, value in sizes.items()}
        self.names |= {name: Interval(0, value) for name, value in most.items()}
        self.grown |= {name: Poly.atom(Name(name)) for name in sizes} | _GROWN

    @staticmethod
    def of(kernel: Kernel, limits: Mapping[str, int] = LIMITS, captured: Interval = EVERYTHING) -> Ranges:
        """With what is known of a kernel's constants and parameters."""
        ranges = Ranges(limits, captured, kernel.params)
        if kernel.family != FORWARD:
            ranges.grown.pop("t")  # of a query tile too
        ranges.names |= {c.name: Interval.exactly(c.value) for c in kernel.constants if isinstance(c.value, int)}
        for item in kernel.params:
            if isinstance(item.type, Scalar) and item.type.host is not None and item.type.dtype.is_int:
                ranges.names[f"p.{item.name}"] = ranges.of_host(item.type.host)
                ranges.held += held_by(item)
        return ranges

    def again(self) -> Ranges:
        """With what is known so far, for another body."""
        other = copy(self)
        other.names, other.grown, other.held, other.faults = {**self.names}, {**self.grown}, [*self.held], []
        return other

    def of_host(self, value: Expr) -> Interval:
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

    def quiet(self, expr: Expr) -> Interval:
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
                    self._assign(name, value)
                case Assign(Attr(Name(scope), name), value):
                    self._assign(f"{scope}.{name}", value)
                case If(_, then, orelse):
                    self._block(then)
                    self._block(orelse)
                case For(var, _, _, inner):
                    self.names[var] = EVERYTHING
                    self._block(inner)
                case Loop(inner):
                    self._block(inner)
                case _:
                    pass

    def _assign(self, name: str, value: Expr) -> None:
        """A name with several ranges has none, since loops may carry either value on."""
        new = self.quiet(value)
        grown = growth(value, self._growth) if name not in self.names else None
        self.grown.pop(name, None)
        if grown is not None:
            self.grown[name] = grown
        self.names[name] = new if self.names.get(name, new) == new else EVERYTHING

    def _growth(self, expr: Expr) -> Poly | None:
        """Of a name or field: what is known of its form, else of its range."""
        name = expr.id if isinstance(expr, Name) else _field(expr)
        known = self.names.get(name, EVERYTHING)
        if name in self.grown or not known.is_bounded:
            return self.grown.get(name)
        return Poly.constant(int(max(abs(known.low), abs(known.high))))

    def range(self, expr: Expr) -> Interval:
        match expr:
            case IntLit(value):
                return Interval.exactly(value)
            case Name(name):
                return self.names.get(name, EVERYTHING)
            case Attr(Name(scope), name):
                return self.names.get(f"{scope}.{name}", EVERYTHING)
            case Index(Attr(Name("p"), name), indices):
                for index in indices:
                    self.range(index)
                return self._of_element(name)
            case Binary():
                return self._checked(expr, self._image(expr))
            case Unary() | Call():
                return self._image(expr)
            case _:
                for child in children(expr):
                    if isinstance(child, Expr):
                        self.range(child)
                return EVERYTHING

    def _of_element(self, name: str) -> Interval:
        match next((item.type for item in self.params if item.name == name), None):
            case Captured(dtype) if dtype.is_int:
                return self.captured
            case TileList():
                return Interval(0, LARGEST_ENTRY)
            case _:
                return EVERYTHING

    def _image(self, expr: Expr) -> Interval:
        """EVERYTHING unless both ends are known. A remainder is below its divisor, whatever is divided."""
        fn, parts = operation(expr) or ("", ())
        arguments = [self.range(x) for x in parts]
        unknown = EVERYTHING in arguments[-2:] and fn not in ("%", "floor_mod")
        value = EVERYTHING if unknown else image(fn, arguments, INTEGERS)
        return value if value.is_bounded else EVERYTHING

    def _checked(self, expr: Binary, value: Interval) -> Interval:
        largest = value.high if value.high > -value.low else value.low
        if abs(largest) <= LARGEST or value == EVERYTHING or _is_wide(expr) or self._is_of_launch(expr):
            return value
        if self._is_held(growth(expr, self._growth)):
            return Interval(max(value.low, -LARGEST), min(value.high, LARGEST))
        sizes = ", ".join(f"{n}={v}" for n, v in self.limits.items() if n != "D")
        message = f"`{print_expr(expr)}` reaches {largest} at {sizes}, which 32 bits do not hold"
        self.faults.append(Diagnostic("CU224", message, expr.span, help="put `i64(..)` around its first operand"))
        return EVERYTHING

    def _is_of_launch(self, expr: Expr) -> bool:
        return bool(self.of_launch) and free_names(expr) <= self.of_launch

    def _is_held(self, size: Poly | None) -> bool:
        """Do launches, or the limits, keep a value that never passes `size` within 32 bits."""
        if size is None:
            return False
        if _is_within(size, self.limits) or any(dominates(most, size) for most in self.held):
            return True
        if not self.asks or not _is_within(size + BEYOND, {**dict.fromkeys(SIZES, 1), "D": LIMITS["D"]}):
            return False
        terms = sorted((size + BEYOND).terms, key=lambda t: (-len(t[0]), repr(t[0])))
        self.held = [most for most in self.held if not dominates(size, most)] + [Poly(tuple(terms))]
        return True


def held_by(item: Field) -> tuple[Poly, ...]:
    """The polynomial of sizes that an integer parameter is: a launch is refused where 32 bits do not hold it."""
    match item.type:
        case Scalar(DType.I32, host) if host is not None:
            value = poly(host)
            of_sizes = all(isinstance(a, Name) and a.id in SIZES for a in value.atoms())
            return (value,) if of_sizes else ()
        case _:
            return ()


def _is_within(size: Poly, sizes: Mapping[str, int]) -> bool:
    return bool(evaluate_number(to_expr(size), dict[str, int | float](sizes)) <= LARGEST)


def _field(expr: Expr) -> str:
    """`p.x` of a field, "" of anything else."""
    return f"{expr.base.id}.{expr.name}" if isinstance(expr, Attr) and isinstance(expr.base, Name) else ""


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
