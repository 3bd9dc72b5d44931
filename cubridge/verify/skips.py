"""Rule: what `if any_lane(c):` skips changes nothing in rows where c is false, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from cubridge.ir.diagnostics import Diagnostic
from cubridge.ir.nodes import (
    TILE_ARGUMENTS,
    Assign,
    Attr,
    Binary,
    Call,
    Expr,
    FloatLit,
    Function,
    If,
    IntLit,
    Kernel,
    Name,
    Stmt,
)
from cubridge.ir.walk import substitute, walk

_LONGEST: Final = 2000
"""Nodes of a meaning; longer ones are not known."""


def check_skips(kernel: Kernel) -> Iterator[Diagnostic]:
    """CU225 for a statement under `any_lane(c)` that is none of: `x = x * f` where c holds if `f != 1`, `x = where(c, y, x)`."""
    for region in kernel.regions:
        yield from _check(region)


def _check(region: Function) -> Iterator[Diagnostic]:
    known: dict[str, Expr] = {}
    after = _reads_after(region)
    for at, stmt in enumerate(region.body):
        match stmt:
            case Assign(target, value):
                _define(known, target, value)
            case If(Call("any_lane", (condition,)), then, ()):
                yield from _check_branch(substitute(condition, known), then, dict(known), after[at])
                for inner in then:
                    if isinstance(inner, Assign):
                        _forget(known, inner.target)
            case _:
                pass


def _check_branch(
    condition: Expr, then: tuple[Stmt, ...], known: dict[str, Expr], read_later: frozenset[str]
) -> Iterator[Diagnostic]:
    reasons = _alternatives(condition)
    for stmt in then:
        match stmt:
            case Assign(Name(name) as target, value) if name not in read_later:
                _define(known, target, value)
            case Assign(target, value) if _keeps(target, substitute(value, known), reasons):
                _forget(known, target)
            case _:
                help = "`x = x * f` under `any_lane(f != 1.0)`, or `x = where(c, y, x)` under `any_lane(c)`"
                message = "rows for which the condition is false may need this too: skipping it is not exact"
                yield Diagnostic("CU225", message, stmt.span, help=help)


def _keeps(target: Expr, value: Expr, reasons: frozenset[Expr]) -> bool:
    """Is `target` as it was wherever all of `reasons` are false."""
    match value:
        case Binary("*", left, right) if left == target:
            return not reasons.isdisjoint(_not_one(right))
        case Binary("*", left, right) if right == target:
            return not reasons.isdisjoint(_not_one(left))
        case Call("where", (condition, _, other)):
            return other == target and condition in reasons
        case _:
            return value == target


def _not_one(factor: Expr) -> frozenset[Expr]:
    ones = (FloatLit(1.0), IntLit(1))
    return frozenset({Binary("!=", factor, one) for one in ones} | {Binary("!=", one, factor) for one in ones})


def _alternatives(condition: Expr) -> frozenset[Expr]:
    """`a`, `b` of `a | b`; all are false where the whole is."""
    match condition:
        case Binary("|", left, right):
            return _alternatives(left) | _alternatives(right) | {condition}
        case _:
            return frozenset({condition})


def _define(known: dict[str, Expr], target: Expr, value: Expr) -> None:
    """After `target = value`: locals that were defined by what `target` was are not known any more, nor is one whose meaning is
    too long to write out."""
    if sum(_size(known[n.id]) if isinstance(n, Name) and n.id in known else 1 for n in walk(value)) > _LONGEST:
        _forget(known, target)
        return
    meaning = substitute(value, known)
    _forget(known, target)
    if isinstance(target, Name) and not _mentions(meaning, target):
        known[target.id] = meaning


def _size(expr: Expr) -> int:
    return sum(1 for _ in walk(expr))


def _forget(known: dict[str, Expr], target: Expr) -> None:
    for name in [n for n, meaning in known.items() if Name(n) == target or _mentions(meaning, target)]:
        del known[name]


def _mentions(expr: Expr, place: Expr) -> bool:
    return any(node == place for node in walk(expr) if isinstance(node, Name | Attr))


def _reads_after(region: Function) -> Mapping[int, frozenset[str]]:
    """For each statement, the names that later ones or the caller read; tiles are the caller's."""
    reads = frozenset(TILE_ARGUMENTS)
    if region.result is not None:
        reads |= {n.id for n in walk(region.result) if isinstance(n, Name)}
    after: dict[int, frozenset[str]] = {}
    for at in reversed(range(len(region.body))):
        after[at] = reads
        reads |= {n.id for n in walk(region.body[at]) if isinstance(n, Name)}
    return after
