"""Region code as formulas: locals, state and host values put in where they are read.

In the result, indices are `i j h b`, sizes and captured values have the names that the reference gives them, and constants of
the instantiation are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cubridge.ir.capture_names import HOST_NAMES, capture_of
from cubridge.ir.nodes import (
    Assign,
    Attr,
    Binary,
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
    Scalar,
    Stmt,
)
from cubridge.ir.tile_shape import key_tile, query_tile, size_of
from cubridge.ir.walk import children, map_children, rewrite
from cubridge.judge.proof.unproved import Unproved

MAX_NODES: Final = 4000
"""Of one formula. The regions of the packaged kernels have a few dozen."""


@dataclass
class Execution:
    """`places`: the formula of each local, tile and state field, where it was written."""

    regions: Regions
    places: dict[Expr, Expr] = field(default_factory=dict[Expr, Expr])

    def run(self, body: tuple[Stmt, ...]) -> Execution:
        """Errors: Unproved for a statement that regions do not have, and for formulas that grow too large."""
        for statement in body:
            match statement:
                case Assign(target, value):
                    self.places[target] = self.formula(value)
                case If(Call("any_lane"), then, ()):
                    self.run(then)  # where it is skipped it is an exact no-op: the verifier's CU225
                case _:
                    raise Unproved("a region has a statement that is no assignment")
        return self

    def formula(self, expr: Expr) -> Expr:
        """An expression at this place of the code."""
        if self._size(expr) > MAX_NODES:
            raise Unproved("the formulas of a region grow too large")
        return self._put_in(expr)

    def _put_in(self, expr: Expr) -> Expr:
        if expr in self.places:
            return self.places[expr]
        if isinstance(expr, Name | Attr | Index):
            resolved = self.regions.resolved(expr)
            if resolved is not None:
                return resolved
        if isinstance(expr, Index):
            return Index(self.regions.capture(expr.base), tuple(self._put_in(x) for x in expr.indices))
        if isinstance(expr, Call) and expr.fn == "add_lanes":
            return self._put_in(expr.args[0])
        return map_children(expr, lambda x: self._put_in(x) if isinstance(x, Expr) else x)

    def _size(self, expr: Expr) -> int:
        """Nodes of the formula, without making it."""
        if expr in self.places:
            return _nodes(self.places[expr])
        return 1 + sum(self._size(x) for x in children(expr) if isinstance(x, Expr))


def _nodes(node: Node) -> int:
    return 1 + sum(_nodes(x) for x in children(node))


@dataclass
class Regions:
    """The regions of one kernel. `tile`: the formulas of the fields of a tile."""

    kernel: Kernel
    hosts: Mapping[str, Expr] = field(init=False)
    captures: Mapping[str, str] = field(init=False)
    tile: dict[Expr, Expr] = field(init=False)
    keys: int = field(init=False)
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        kernel = self.kernel
        fields = [f for f in kernel.params if isinstance(f.type, Scalar)]
        hosts = {f.name: f.type.host for f in fields if isinstance(f.type, Scalar)}
        self.hosts = {name: host for name, host in hosts.items() if host is not None}
        self.captures = {f.name: name for f in kernel.params if (name := capture_of(f)) is not None}
        rows, keys = query_tile(kernel), key_tile(kernel)
        if rows is None or keys is None:
            raise Unproved("the sizes of the tiles are not known")
        self.rows, self.keys = size_of(kernel, rows), size_of(kernel, keys)
        self.tile = {_tile("b"): Name("b"), _tile("h"): Name("h"), _tile("hk"): Name("hk"), _tile("q_start"): Q_START}
        self.tile |= self.run("tile_setup").places

    def run(self, region: str, places: Mapping[Expr, Expr] | None = None) -> Execution:
        """What a region writes."""
        return Execution(self, {**self.tile, **(places or {})}).run(self.kernel.region(region).body)

    def returned(self, region: str, places: Mapping[Expr, Expr]) -> Expr:
        """What a region returns."""
        return self._returned(self.kernel.region(region), places)

    def record(self, region: str) -> dict[Expr, Expr]:
        """The fields of the record that a region returns, as places of `keys`."""
        function = self.kernel.region(region)
        done = self.run(region)
        if not isinstance(function.result, Record):
            raise Unproved(f"`{region}` returns no record")
        return {Attr(Name("keys"), f.name): done.formula(f.value) for f in function.result.fields}

    def _returned(self, function: Function, places: Mapping[Expr, Expr]) -> Expr:
        if function.result is None:
            raise Unproved(f"`{function.name}` returns nothing")
        return Execution(self, {**self.tile, **places}).run(function.body).formula(function.result)

    def resolved(self, expr: Expr) -> Expr | None:
        """The formula of a parameter or constant."""
        match expr:
            case Attr(Name("p"), name) if name in self.hosts:
                return rewrite(self.hosts[name], self._constant)
            case Name(name):
                found = self._constant(expr)
                return found if found is not expr and isinstance(found, Expr) else None
            case _:
                return None

    def capture(self, base: Expr) -> Name:
        """The captured tensor that a parameter holds. Errors: Unproved for other tensors."""
        match base:
            case Attr(Name("p"), name) if name in self.captures:
                return Name(self.captures[name])
            case _:
                raise Unproved("a region reads a tensor that is not captured")

    def _constant(self, node: Node) -> Node:
        if not isinstance(node, Name):
            return node
        if node.id in HOST_NAMES:
            raise Unproved(f"a formula reads `{node.id}`, which is another on each machine")
        value = self.kernel.constant_values.get(node.id)
        return node if value is None else FloatLit(value) if isinstance(value, float) else IntLit(value)

    def placed(self, formula: Expr) -> Expr:
        """A formula of one row and key: where its tiles begin follows from these."""

        def change(node: Node) -> Node:
            match node:
                case Name("q_start"):
                    return _floored(Name("i"), self.rows)
                case Name("kv_start"):
                    return _floored(Name("j"), self.keys)
                case _:
                    return node

        return rewrite(formula, change)


Q_START: Final = Name("q_start")


def _tile(name: str) -> Attr:
    return Attr(Name("tile"), name)


def _floored(index: Expr, size: int) -> Expr:
    return Binary("*", Binary("//", index, IntLit(size)), IntLit(size))
