"""Region bodies in the value engine: elementwise code over tiles, row state and accessors, as closures over an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cubridge.engine.core.expressions import scalar_call
from cubridge.engine.core.operands import fault
from cubridge.engine.values.tiles import LANES, add_lanes, any_of_warp, partial_rowsum, rowmax, same_bits, spread_lanes
from cubridge.ir.evaluate import BINARY, CONSTANTS, tensor_call
from cubridge.ir.nodes import (
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
    Name,
    Node,
    Stmt,
    Unary,
)  # fmt: skip

Item: TypeAlias = Any
"""A number, or a tensor that broadcasts to [blocks, warps, fragment rows, 8, columns]."""
Read: TypeAlias = "Callable[[Env], Item]"
Run: TypeAlias = "Callable[[Env], None]"


class Data(Protocol):
    """Where region code finds parameters. `fragment_rows`: how many a thread holds."""

    fragment_rows: int

    def param(self, name: str, node: Node) -> Item: ...

    def gather(self, name: str, indices: list[Item], guards: list[Item], node: Expr) -> Item:
        """Elements of a captured tensor, each of which is read where all `guards` hold."""
        ...


@dataclass(slots=True)
class Env:
    """What a region body sees. `rows`: the fragment rows it acts on. `guards`: the conditions under which an element is read."""

    machine: Data
    names: dict[str, Item]
    row: dict[str, Item]
    tile: object
    rows: slice = field(default_factory=lambda: slice(None))
    guards: list[Item] = field(default_factory=list)


REDUCTIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "rowmax": rowmax,
    "partial_rowsum": partial_rowsum,
    "add_lanes": add_lanes,
    "any_lane": any_of_warp,
}


def compile_region(function: Function) -> Run:
    """The body of a region as a function that changes its environment."""
    steps = [_statement(stmt) for stmt in function.body]

    def run(env: Env) -> None:
        for step in steps:
            step(env)

    return run


def compile_value(expr: Expr) -> Read:
    """One expression of region code, as a function of its environment."""
    return _expr(expr)


def as_item(value: Item) -> Item:
    """A value of the kernel body as region code takes it: one number for each block, or one for all."""
    if not isinstance(value, np.ndarray):
        return value
    if value.size and (value == value[0]).all():
        return value[0].item()
    return torch.from_numpy(value.astype(np.int32) if value.dtype.kind == "i" else value).view(-1, 1, 1, 1, 1)


# ---- statements ------------------------------------------------------------------------------------------------------


def _statement(stmt: Stmt) -> Run:
    match stmt:
        case Assign(Name(name), value):
            return _assign_name(name, _expr(value))
        case Assign(Attr(Name("row"), name), value):
            return _assign_row(name, _expr(value))
        case Assign(Attr(Name("tile"), name), value):
            return _assign_tile(name, _expr(value))
        case If(Call("any_lane", (condition,)), then, ()):
            return _skip(stmt, _expr(condition), [_statement(s) for s in then])
        case _:
            raise fault("CU301", "a region does not have this statement", stmt)


def _assign_name(name: str, value: Read) -> Run:
    def run(env: Env) -> None:
        env.names[name] = value(env)

    return run


def _assign_row(name: str, value: Read) -> Run:
    def run(env: Env) -> None:
        env.row[name] = value(env)

    return run


def _assign_tile(name: str, value: Read) -> Run:
    def run(env: Env) -> None:
        setattr(env.tile, name, value(env))

    return run


def _skip(stmt: If, condition: Read, body: list[Run]) -> Run:
    """Warps in which no lane asks for it skip the body, which must change nothing there."""

    def run(env: Env) -> None:
        ask = condition(env)
        asked = any_of_warp(ask) if isinstance(ask, Tensor) else torch.tensor(bool(ask))
        names, row = dict(env.names), dict(env.row)
        for step in body:
            step(env)
        if bool(asked.all()):
            return
        for before, after in ((names, env.names), (row, env.row)):
            for name, new in after.items():
                if new is not before.get(name):
                    _check_no_op(stmt, name, before.get(name), new, asked)

    return run


def _check_no_op(stmt: If, name: str, old: Item, new: Item, asked: Tensor) -> None:
    if not (isinstance(old, Tensor) and isinstance(new, Tensor)):
        raise fault("CU311", f"`{name}` has another value where this is skipped", stmt)
    if bool(((new == old) | asked).all()):
        return
    changed = ~(same_bits(new, old) | asked)
    if bool(changed.any()):
        where = changed.nonzero()[0].tolist()
        raise fault(
            "CU311", f"skipping is not an exact no-op: `{name}` would change in warp {where[1]} of its team", stmt
        )


# ---- expressions -----------------------------------------------------------------------------------------------------


def _expr(expr: Expr) -> Read:
    match expr:
        case BoolLit(value) | IntLit(value) | FloatLit(value):
            return lambda env: value
        case Name(name):
            return _name(expr, name)
        case Attr(Name("row"), name):
            return _row_field(expr, name)
        case Attr(Name("p"), name):
            return lambda env: env.machine.param(name, expr)
        case Attr(Name("tile"), name):
            return _tile_field(expr, name)
        case Index(Attr(Name("p"), name), indices):
            parts = [_expr(x) for x in indices]
            return lambda env: env.machine.gather(name, [part(env) for part in parts], env.guards, expr)
        case Unary(op, operand):
            return _unary(op, _expr(operand))
        case Binary(op, left, right):
            return _binary(expr, op, _expr(left), _expr(right))
        case Call("where", (condition, yes, no)):
            return _where(expr, _expr(condition), _expr(yes), _expr(no))
        case Call(fn, (operand,)) if fn in REDUCTIONS:
            return _reduction(expr, REDUCTIONS[fn], _expr(operand))
        case Call(fn, args):
            return _call(expr, fn, [_expr(a) for a in args])
        case _:
            raise fault("CU301", "region code has no such value", expr)


def _name(expr: Expr, name: str) -> Read:
    if name in CONSTANTS:
        value = CONSTANTS[name]
        return lambda env: value

    def read(env: Env) -> Item:
        try:
            return env.names[name]
        except KeyError:
            raise fault("CU301", f"`{name}` has no value here", expr) from None

    return read


def _row_field(expr: Expr, name: str) -> Read:
    def read(env: Env) -> Item:
        try:
            return env.row[name]
        except KeyError:
            raise fault("CU301", f"the row state has no `{name}`", expr) from None

    return read


def _tile_field(expr: Expr, name: str) -> Read:
    def read(env: Env) -> Item:
        try:
            value = getattr(env.tile, name)
        except AttributeError:
            raise fault("CU301", f"`tile.{name}` has no value here", expr) from None
        by_row = isinstance(value, Tensor) and value.ndim == 5 and value.shape[2] == env.machine.fragment_rows
        return value[:, :, env.rows] if by_row else as_item(value)

    return read


def _unary(op: str, operand: Read) -> Read:
    def apply(env: Env) -> Item:
        value = operand(env)
        if op == "-":
            return -value
        return (not value) if isinstance(value, bool) else ~value

    return apply


def _binary(expr: Expr, op: str, left: Read, right: Read) -> Read:
    fn = BINARY[op]

    def apply(env: Env) -> Item:
        a, b = aligned(left(env), right(env))
        try:
            return fn(a, b)
        except (RuntimeError, ZeroDivisionError, OverflowError, TypeError) as error:
            raise fault("CU301", f"this expression has no value: {error}", expr) from None

    return apply


def _where(expr: Expr, condition: Read, yes: Read, no: Read) -> Read:
    def apply(env: Env) -> Item:
        test = condition(env)
        env.guards.append(test)
        a = yes(env)
        env.guards[-1] = (not test) if isinstance(test, bool) else ~test
        b = no(env)
        env.guards.pop()
        if isinstance(test, bool):
            return a if test else b
        test, a, b = aligned(test, a, b)
        try:
            return torch.where(test, a, b)
        except (RuntimeError, TypeError) as error:
            raise fault("CU301", f"this expression has no value: {error}", expr) from None

    return apply


def _reduction(expr: Expr, fn: Callable[[Tensor], Tensor], operand: Read) -> Read:
    def apply(env: Env) -> Item:
        value = operand(env)
        if not isinstance(value, Tensor):
            raise fault("CU301", "a reduction of a value that is the same everywhere", expr)
        return fn(value)

    return apply


def _call(expr: Expr, fn: str, args: list[Read]) -> Read:
    def apply(env: Env) -> Item:
        values = aligned(*(a(env) for a in args))
        if not any(isinstance(v, Tensor) for v in values):
            return scalar_call(fn, values, expr)
        return tensor_call(expr, fn, list(values))

    return apply


def aligned(*values: Item) -> tuple[Item, ...]:
    """The values with partial sums spread to the columns of the others, so that each column meets its own lane's sum."""
    widths = {v.shape[-1] for v in values if isinstance(v, Tensor)}
    if LANES not in widths or len(widths - {1, LANES}) == 0:
        return values
    columns = max(widths)
    return tuple(spread_lanes(v, columns) if isinstance(v, Tensor) and v.shape[-1] == LANES else v for v in values)
