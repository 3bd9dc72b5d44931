"""What the lanes of a trace compute: integers are polynomials over parameters and block coordinates, all else is made of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cubridge.ir.algebra.poly import Poly
from cubridge.ir.source import NOWHERE, Span


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """`op` of `args`; equal only to itself: what is computed twice is two nodes.

    Leaves: "number" (`data` a float), "param" (its name), "element" (an Element), "state" (the step, result and lane that made what
    a loop carries), "opaque" (the instruction that has no meaning here). "compare" has its operator as data; "cast" its element
    type."""

    op: str
    args: tuple[Value, ...] = ()
    data: object = None
    span: Span = field(kw_only=True, repr=False)


Value: TypeAlias = Node | Poly
"""Of one lane."""


@dataclass(frozen=True, slots=True)
class Element:
    """Two bytes of a tensor, `offset` bytes from its start."""

    tensor: str
    offset: int


ZERO: Final = Poly(())


def is_zero(value: Value) -> bool:
    """Zero, of whichever type."""
    if isinstance(value, Poly):
        return value.as_int() == 0
    if value.op == "cast":
        return is_zero(value.args[0])
    return value.op == "number" and value.data == 0


def element_of(value: Value) -> Element | None:
    """The element that a value is, where it is no more than that."""
    if isinstance(value, Node) and value.op == "element":
        assert isinstance(value.data, Element)
        return value.data
    return None


def span_of(value: Value) -> Span:
    return value.span if isinstance(value, Node) else NOWHERE


def nodes_of(value: Value) -> Iterator[Node]:
    """A value with all that it is made of, each once."""
    waiting, seen = [value], set[int]()
    while waiting:
        at = waiting.pop()
        if isinstance(at, Node) and id(at) not in seen:
            seen.add(id(at))
            yield at
            waiting += at.args


def contains(value: Value, op: str) -> bool:
    return any(node.op == op for node in nodes_of(value))


def states_of(value: Value) -> list[tuple[int, int, int]]:
    """What made all that a loop carries into a value, each once."""
    return list(dict.fromkeys(node.data for node in nodes_of(value) if node.op == "state"))  # pyright: ignore[reportReturnType]
