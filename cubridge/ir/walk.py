"""Walking and changing trees: children, map, paths to nodes, substitution, free names. Works on every node class alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import cache

from cubridge.ir.nodes import Node


@cache
def field_names(cls: type[Node]) -> tuple[str, ...]:
    """The fields of a node class, without its place."""
    return tuple(f.name for f in fields(cls) if f.name != "span")


def children(node: Node) -> Iterator[Node]:
    """The nodes directly below, in the order of the text."""
    for name in field_names(type(node)):
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (item for item in value if isinstance(item, Node))


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it, parents first."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(list(children(node))))


