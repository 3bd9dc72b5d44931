"""Local rewrites as data: patterns over a, b, c in CuIR, applied bottom-up to a fixed point, with a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Final

from cubridge.ir.nodes import Expr, FloatLit, IntLit, Name, Node
from cubridge.ir.parser import parse_expr
from cubridge.ir.walk import map_children, substitute

RULES: Final[tuple[tuple[str, str], ...]] = (
    # neutral and absorbing elements
    ("a + 0", "a"),
    ("0 + a", "a"),
    ("a - 0", "a"),
    ("a * 1", "a"),
    ("1 * a", "a"),
    ("a / 1", "a"),
    ("a & True", "a"),
    ("True & a", "a"),
    ("a & False", "False"),
    ("False & a", "False"),
    ("a | False", "a"),
    ("False | a", "a"),
    ("a | True", "True"),
    ("True | a", "True"),
    ("~True", "False"),
    ("~False", "True"),
    # repetition
    ("a & a", "a"),
    ("a | a", "a"),
    ("a & (a & b)", "a & b"),
    ("a | (a | b)", "a | b"),
    ("a & (a | b)", "a"),
    ("a | a & b", "a"),
    ("minimum(a, a)", "a"),
    ("maximum(a, a)", "a"),
    ("minimum(a, minimum(a, b))", "minimum(a, b)"),
    ("minimum(minimum(a, b), b)", "minimum(a, b)"),
    ("maximum(a, maximum(a, b))", "maximum(a, b)"),
    ("maximum(maximum(a, b), b)", "maximum(a, b)"),
    ("minimum(a, maximum(a, b))", "a"),
    ("maximum(a, minimum(a, b))", "a"),
    # negation and choice
    ("~(~a)", "a"),
    ("-(-a)", "a"),
    ("a + -b", "a - b"),
    ("a - -b", "a + b"),
    ("abs(-a)", "abs(a)"),
    ("abs(abs(a))", "abs(a)"),
    ("where(True, a, b)", "a"),
    ("where(False, a, b)", "b"),
    ("where(a, b, b)", "b"),
    ("where(~a, b, c)", "where(a, c, b)"),
    ("where(a, where(a, b, c), d)", "where(a, b, d)"),
    ("where(a, b, where(a, c, d))", "where(a, b, d)"),
    ("where(a, True, False)", "a"),
    ("f32(f32(a))", "f32(a)"),
)  # fmt: skip
"""What may be read for what, for all values of a, b, c, d, infinities and NaN among them (up to the sign of zero)."""

_VARIABLES: Final = frozenset("abcd")
_MAX_STEPS: Final = 1000


@dataclass(frozen=True, slots=True)
class Step:
    """`rule` turned `before` into `after`."""

    rule: str
    before: Expr
    after: Expr


def simplified(expr: Expr, trace: Callable[[Step], None] = lambda step: None) -> Expr:
    """The expression, no rule applying to any part of it; the same object if none applied."""

    def change(node: Node) -> Node:
        node = map_children(node, change)
        return _at(node, trace) if isinstance(node, Expr) else node

    before = None
    for _ in range(_MAX_STEPS):
        before, expr = expr, change(expr)  # pyright: ignore[reportAssignmentType]
        if expr is before:
            break
    return expr


def _at(expr: Expr, trace: Callable[[Step], None]) -> Expr:
    for rule, pattern, replacement in _parsed():
        values = _match(pattern, expr, {})
        if values is not None:
            after = substitute(replacement, values)
            trace(Step(rule, expr, after))
            return after
    return expr


@cache
def _parsed() -> tuple[tuple[str, Expr, Expr], ...]:
    return tuple((f"{p} -> {r}", parse_expr(p), parse_expr(r)) for p, r in RULES)


def _match(pattern: Node, node: Node, values: dict[str, Expr]) -> dict[str, Expr] | None:
    """The parts of `node` that the variables of `pattern` stand for; None if they differ."""
    if isinstance(pattern, Name) and pattern.id in _VARIABLES:
        known = values.get(pattern.id, node)
        return {**values, pattern.id: node} if known == node and isinstance(node, Expr) else None
    if isinstance(pattern, IntLit):
        same = isinstance(node, IntLit | FloatLit) and node.value == pattern.value
        return values if same else None
    if type(pattern) is not type(node):
        return None
    found: dict[str, Expr] | None = values
    for field in fields(pattern):
        if field.name == "span" or found is None:
            continue
        found = _match_value(getattr(pattern, field.name), getattr(node, field.name), found)
    return found


def _match_value(pattern: object, value: object, values: dict[str, Expr]) -> dict[str, Expr] | None:
    if isinstance(pattern, Node) and isinstance(value, Node):
        return _match(pattern, value, values)
    if isinstance(pattern, tuple) and isinstance(value, tuple) and len(pattern) == len(value):
        found: dict[str, Expr] | None = values
        for p, v in zip(pattern, value, strict=True):
            found = None if found is None else _match_value(p, v, found)
        return found
    return values if pattern == value else None
