"""Region bodies in the value engine: elementwise code over tiles, row state and accessors, as closures over an environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from cubridge.engine.core.operands import fault
from cubridge.engine.values.tiles import LANES, add_lanes, any_of_warp, partial_rowsum, rowmax, same_bits, spread_lanes
from cubridge.ir.evaluate import Meaning, apply
from cubridge.ir.nodes import Assign, Attr, Call, Expr, Function, If, Index, Name, Node, Stmt
from cubridge.ir.printer import print_expr

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
    """What a region body sees. `row`: the state of its rows, or what is kept of its scores. `rows`: the fragment rows it acts on.
    `guards`: the conditions under which an element is read."""

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
            return _assign_name(name, compile_value(value))
        case Assign(Attr(Name("row" | "kept"), name), value):
            return _assign_row(name, compile_value(value))
        case Assign(Attr(Name("tile"), name), value):
            return _assign_tile(name, compile_value(value))
        case If(Call("any_lane", (condition,)), then, ()):
            return _skip(stmt, compile_value(condition), [_statement(s) for s in then])
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


class _OfRegion(Meaning[Env]):
    """Names, row state and tile fields are the environment's; an element that a `where` drops need not exist."""

    def place(self, expr: Name | Attr | Index) -> Read:
        match expr:
            case Name(name):
                return _field(expr, lambda env: env.names[name])
            case Attr(Name("row" | "kept"), name):
                return _field(expr, lambda env: env.row[name])
            case Attr(Name("p"), name):
                return lambda env: env.machine.param(name, expr)
            case Attr(Name("tile"), name):
                return _field(expr, lambda env: _of_rows(env, getattr(env.tile, name)))
            case Index(Attr(Name("p"), name), indices):
                parts = [self.compile(x) for x in indices]
                return lambda env: env.machine.gather(name, [part(env) for part in parts], env.guards, expr)
            case _:
                raise fault("CU301", "region code has no such value", expr)

    def binary(self, expr: Expr, fn: Callable[[Item, Item], Item], left: Read, right: Read) -> Read:
        return super().binary(expr, lambda a, b: fn(*aligned(a, b)), left, right)

    def call(self, expr: Call) -> Read:
        parts = [self.compile(a) for a in expr.args]
        match expr.fn, parts:
            case "where", [condition, yes, no]:
                return _where(expr, condition, yes, no)
            case fn, [operand] if fn in REDUCTIONS:
                return lambda env: _reduced(expr, REDUCTIONS[fn], operand(env))
            case fn, _:
                return lambda env: apply(fn, aligned(*(part(env) for part in parts)), expr)


_OF_REGION: Final = _OfRegion()


def compile_value(expr: Expr) -> Read:
    """One expression of region code, as a function of its environment."""
    return _OF_REGION.compile(expr)


def _field(expr: Expr, read: Read) -> Read:
    def checked(env: Env) -> Item:
        try:
            return read(env)
        except (KeyError, AttributeError):
            raise fault("CU301", f"`{print_expr(expr)}` has no value here", expr) from None

    return checked


def _of_rows(env: Env, value: Item) -> Item:
    """A field of the tile, of the rows that the region acts on."""
    by_row = isinstance(value, Tensor) and value.ndim == 5 and value.shape[2] == env.machine.fragment_rows
    return value[:, :, env.rows] if by_row else as_item(value)


def _where(expr: Expr, condition: Read, yes: Read, no: Read) -> Read:
    def run(env: Env) -> Item:
        test = condition(env)
        env.guards.append(test)
        a = yes(env)
        env.guards[-1] = (not test) if isinstance(test, bool) else ~test
        b = no(env)
        env.guards.pop()
        return apply("where", aligned(test, a, b), expr)

    return run


def _reduced(expr: Expr, fn: Callable[[Tensor], Tensor], value: Item) -> Item:
    if not isinstance(value, Tensor):
        raise fault("CU301", "a reduction of a value that is the same everywhere", expr)
    return fn(value)


def aligned(*values: Item) -> tuple[Item, ...]:
    """The values with partial sums spread to the columns of the others, so that each column meets its own lane's sum."""
    widths = {v.shape[-1] for v in values if isinstance(v, Tensor)}
    if LANES not in widths or len(widths - {1, LANES}) == 0:
        return values
    columns = max(widths)
    return tuple(spread_lanes(v, columns) if isinstance(v, Tensor) and v.shape[-1] == LANES else v for v in values)
