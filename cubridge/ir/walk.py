"""Walking and changing trees: children, map, substitution, free names. Works on every node class alike; see paths.py for places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from functools import cache
from typing import Final, TypeVar

from cubridge.ir.nodes import NAMED_CONSTANTS, Attr, Expr, For, If, Index, Loop, Name, Node, Stmt

N = TypeVar("N", bound=Node)

SCOPES: Final = frozenset({"p", "smem", "tile", "row", "keys", "kept", "queries"})
"""Names that stand for a scope, as in `p.exponent_scale`."""


@cache
def field_names(cls: type[Node]) -> tuple[str, ...]:
    """The fields of a node class, without its place."""
    return tuple(f.name for f in fields(cls) if f.name != "span")


PLAIN: Final = frozenset({"str", "int", "float", "bool", "DType"})
"""Types of fields, as they are written, that hold no node."""


@cache
def node_fields(cls: type[Node]) -> tuple[str, ...]:
    """The fields of a node class that may hold nodes."""
    return tuple(f.name for f in fields(cls) if f.name != "span" and f.type not in PLAIN)


def children(node: Node) -> list[Node]:
    """The nodes directly below, in the order of the text."""
    found: list[Node] = []
    for name in node_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, tuple):
            found += [item for item in value if isinstance(item, Node)]
    return found


def blocks(stmt: Stmt) -> tuple[tuple[str, tuple[Stmt, ...]], ...]:
    """The blocks that a statement opens, with the fields that hold them."""
    match stmt:
        case If(_, then, orelse):
            return ("then", then), ("orelse", orelse)
        case For(body=body) | Loop(body):
            return (("body", body),)
        case _:
            return ()


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, parents first."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(children(node))


def map_children(node: N, change: Callable[[Node], Node]) -> N:
    """The node with `change` applied to each child; the same object if no child changed."""
    changes: dict[str, object] = {}
    for name in node_fields(type(node)):
        old = getattr(node, name)
        new = _map_value(old, change)
        if new is not old:
            changes[name] = new
    return replace(node, **changes) if changes else node  # pyright: ignore[reportArgumentType]


def rewrite(node: N, change: Callable[[Node], Node]) -> N:
    """`change` applied to every node, children first; the same object if nothing changed.
    `change` gives a node that may stand where the old one stood; a new node should carry the old one's span."""
    return change(map_children(node, lambda child: rewrite(child, change)))  # pyright: ignore[reportReturnType]


def substitute(node: N, values: Mapping[str, Node]) -> N:
    """The node with every `Name` in `values` replaced; what is put in is not looked at again."""

    def change(child: Node) -> Node:
        return values.get(child.id, child) if isinstance(child, Name) else child

    return rewrite(node, change)


def free_names(node: Node) -> frozenset[str]:
    """The names that a node reads or writes, without named constants and scopes."""
    names = {child.id for child in walk(node) if isinstance(child, Name)}
    return frozenset(names - SCOPES - set(NAMED_CONSTANTS))


def _map_value(value: object, change: Callable[[Node], Node]) -> object:
    if isinstance(value, Node):
        return change(value)
    if not isinstance(value, tuple):
        return value
    items: tuple[object, ...] = value
    new = tuple(change(item) if isinstance(item, Node) else item for item in items)
    return items if all(a is b for a, b in zip(items, new, strict=True)) else new


def field_of(place: Expr) -> str:
    """The field that a place is of, as `k` of `p.k[tile.b]`; "" for a place that is of none."""
    match place:
        case Index(base, _):
            return field_of(base)
        case Attr(_, name):
            return name
        case _:
            return ""
