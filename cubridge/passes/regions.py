"""Reading and replacing the regions and variant fields of a kernel."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from cubridge.ir.algebra.exprs import MINUS_INF
from cubridge.ir.nodes import Assign, Attr, Call, Expr, Function, Kernel, Name, Stmt
from cubridge.ir.walk import substitute

SCORE = Name("s")


def with_region(kernel: Kernel, name: str, body: Iterable[Stmt], result: Expr | None = None) -> Kernel:
    """The kernel with another body of one region; the same object if the region has this body, or returns this value."""
    old = kernel.region(name)
    new = replace(old, body=tuple(body), result=result)
    if new == old or (result is not None and returned(new) == returned(old)):
        return kernel
    return replace(kernel, regions=tuple(new if r.name == name else r for r in kernel.regions))


def returned(function: Function) -> Expr | None:
    """What a function of plain assignments returns, without its locals; None for any other function."""
    values: dict[str, Expr] = {}
    for statement in function.body:
        if not (isinstance(statement, Assign) and isinstance(statement.target, Name)):
            return None
        values[statement.target.id] = substitute(statement.value, values)
    return None if function.result is None else substitute(function.result, values)


def assign(target: str | Expr, value: Expr) -> Assign:
    return Assign(Name(target) if isinstance(target, str) else target, value)


def mask_predicate(kernel: Kernel) -> Expr | None:
    """The predicate of a mask region of the form `s = where(predicate, s, -inf)`; None for another form."""
    match kernel.region("mask").body:
        case (Assign(Name("s"), Call("where", (predicate, Name("s"), other))),) if other == MINUS_INF:
            return predicate
        case _:
            return None


def masked(predicate: Expr) -> Assign:
    return assign("s", Call("where", (predicate, SCORE, MINUS_INF)))


def free_name(name: str, taken: Collection[str]) -> str:
    """`name`, numbered if it is taken."""
    number, result = 1, name
    while result in taken:
        number += 1
        result = f"{name}_{number}"
    return result


def param(name: str) -> Attr:
    return Attr(Name("p"), name)


def tile(name: str) -> Attr:
    return Attr(Name("tile"), name)
