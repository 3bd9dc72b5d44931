"""Regions by what they compute: kernels are equal here if the same operations give the same values, whatever locals are called,
however statements are split, and in which order those that do not depend on each other stand. There are two such forms:
`canonical`, and the looser `value_form`, in which casts and negations of literals are literals too.

A region's straight-line body is run on symbols. Every operation on values seen before is one numbered value (hash-consing, so that
a value used twice is not written twice), and what is left is the values of the places that the region writes. Operands are never
reordered: floating-point code that adds differently is different code."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from cubridge.ir.alpha import numbered_body, numbered_locals
from cubridge.ir.nodes import (
    NAMED_CONSTANTS,
    Argument,
    Assign,
    Attr,
    Binary,
    BoolLit,
    Call,
    Expr,
    FloatLit,
    Function,
    If,
    Index,
    IntLit,
    Kernel,
    Name,
    Node,
    Record,
    Stmt,
    Unary,
)
from cubridge.ir.walk import children, map_children

_KEPT: Final = "kept_unless_any_lane"
"""What `if any_lane(c):` makes of a place: (c, new value, old value)."""

_OPERATORS: Final = {"floor_div": "//", "floor_mod": "%"}
_EXACT: Final = 2**24
"""Integers up to here are floats of single precision."""


def canonical(kernel: Kernel) -> Kernel:
    """The kernel with every region in its normal form and the locals of all else numbered, for comparing and not for reading."""
    return _in_form(kernel, folds=False)


def value_form(kernel: Kernel) -> Kernel:
    """As `canonical`, with `f32(3)` the same as `3.0`: a text that was written for a CuIR need not repeat its casts."""
    return _in_form(kernel, folds=True)


def _in_form(kernel: Kernel, folds: bool) -> Kernel:
    constants = {c.name: _literal(FloatLit(c.value)) for c in kernel.constants if isinstance(c.value, float)}
    regions = tuple(_Values(constants, folds).function(r) for r in kernel.regions)
    return replace(kernel, regions=regions, schedule=numbered_locals(kernel.schedule), body=numbered_body(kernel.body))


@dataclass
class _Values:
    """`places`: the value that each local, tile and state field has now, where it has been written. `folds`: see `value_form`."""

    constants: Mapping[str, Expr]
    folds: bool
    places: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])
    numbered: dict[str, Name] = field(default_factory=dict[str, Name])
    operations: dict[Node, Expr] = field(default_factory=dict[Node, Expr])

    def function(self, region: Function) -> Function:
        """The normal form; a body that no region may have stays as it is."""
        if not self._run(region.body):
            return region
        result = region.result if region.result is None else self._result(region.result)
        writer = _Writer(self.operations)
        given = {Name(n) for n in region.params}
        outputs = [(p, v) for p, v in self.places.items() if p != v and (isinstance(p, Attr) or p in given)]
        stores = [Assign(p, writer.atom(v)) for p, v in sorted(outputs, key=repr)]
        final = writer.result(result)
        return replace(region, body=(*writer.body, *stores), result=final)

    # ---- statements --------------------------------------------------------------------------------------------------

    def _run(self, body: tuple[Stmt, ...]) -> bool:
        return all(self._statement(s) for s in body)

    def _statement(self, statement: Stmt) -> bool:
        match statement:
            case Assign(Name() | Attr() as place, value):
                self.places[place] = self._value(value)
                return True
            case If(Call("any_lane", (condition,)), then, ()):
                return self._branch(self._value(condition), then)
            case _:
                return False

    def _branch(self, condition: Expr, then: tuple[Stmt, ...]) -> bool:
        before = dict(self.places)
        if not self._run(then):
            return False
        for place, new in self.places.items():
            old = before.get(place, place)
            if new != old:
                before[place] = self._number(Call(_KEPT, (condition, new, old)))
        self.places = before
        return True

    def _result(self, result: Expr) -> Expr:
        if not isinstance(result, Record):
            return self._value(result)
        return replace(result, fields=tuple(Argument(f.name, self._value(f.value)) for f in result.fields))

    # ---- values ------------------------------------------------------------------------------------------------------

    def _value(self, expr: Expr) -> Expr:
        """A leaf, or the name of a numbered operation."""
        match expr:
            case IntLit() | FloatLit() | BoolLit():
                return _literal(expr)
            case Name(name):
                return self.places.get(expr, self.constants.get(name, expr))
            case Attr():
                return self.places.get(expr, expr)
            case Index(base, indices):
                return self._number(Index(base, tuple(self._value(x) for x in indices)))
            case Unary("-", operand):
                value = self._value(operand)
                return _float(-value.value) if isinstance(value, FloatLit) else self._number(Unary("-", value))
            case Call(fn, (left, right)) if fn in _OPERATORS:
                return self._value(Binary(_OPERATORS[fn], left, right))
            case _:
                operation = map_children(expr, lambda x: self._value(x) if isinstance(x, Expr) else x)
                return (_folded(operation) if self.folds else None) or self._number(operation)

    def _number(self, operation: Expr) -> Name:
        key = repr(operation)  # tells -0.0 from 0.0
        if key not in self.numbered:
            self.numbered[key] = Name(f"#{len(self.numbered)}")
            self.operations[self.numbered[key]] = operation
        return self.numbered[key]


def _folded(operation: Expr) -> Expr | None:
    """The literal that an operation on a literal is."""
    match operation:
        case Call("f32", (FloatLit(value) as literal,)) if abs(value) <= _EXACT:
            return literal
        case Unary("~", BoolLit(value)):
            return BoolLit(not value)
        case _:
            return None


def _literal(literal: IntLit | FloatLit | BoolLit) -> Expr:
    """Numbers by value: where types hold, an integer that stands for a float cannot be mistaken. Known constants by name."""
    if isinstance(literal, BoolLit):
        return literal
    value = float(literal.value)
    if isinstance(literal, IntLit):
        return FloatLit(value) if value == literal.value else literal
    return next((Name(n) for n, x in _NAMED.items() if _as_fp32(value) == _as_fp32(x)), _float(value))


def _float(value: float) -> Expr:
    """-0.0 equals 0.0, so it is written in another way."""
    return FloatLit(value) if math.copysign(1.0, value) > 0 or value else Unary("-", FloatLit(0.0))


_NAMED: Final = {name: value for name, value in NAMED_CONSTANTS.items() if math.isfinite(value)}


def _as_fp32(value: float) -> bytes | None:
    return struct.pack("f", value) if abs(value) < 2.0**127 else None


@dataclass
class _Writer:
    """Writes the operations that outputs need, each before its use, with names in the order of writing."""

    operations: Mapping[Node, Expr]
    body: list[Assign] = field(default_factory=list[Assign])
    names: dict[Node, Expr] = field(default_factory=dict[Node, Expr])

    def atom(self, value: Expr) -> Expr:
        stack: list[Node] = [value]
        while stack:
            top = stack[-1]
            waiting = [n for n in children(self.operations[top]) if self._is_new(n)] if self._is_new(top) else []
            stack += reversed(waiting)
            if not waiting:
                self._write(stack.pop())
        return self.names.get(value, value)

    def result(self, result: Expr | None) -> Expr | None:
        if not isinstance(result, Record):
            return None if result is None else self.atom(result)
        return replace(result, fields=tuple(replace(f, value=self.atom(f.value)) for f in result.fields))

    def _is_new(self, node: Node) -> bool:
        return node in self.operations and node not in self.names

    def _write(self, node: Node) -> None:
        if self._is_new(node):
            operation = map_children(self.operations[node], lambda n: self.names.get(n, n))
            self.names[node] = Name(f"#{len(self.names)}")
            self.body.append(Assign(self.names[node], operation))
