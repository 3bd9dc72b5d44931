"""The names that a pass option may use, and what they are in the kernel: `h` is `tile.h`, a captured value is `p.NAME`."""

from __future__ import annotations

import keyword
from collections.abc import Collection, Iterable
from typing import Final

from cubridge.ir.capture_names import capture_of
from cubridge.ir.nodes import (
    NAMED_CONSTANTS,
    SIZES,
    Attr,
    Binary,
    Captured,
    Expr,
    Field,
    Index,
    IntLit,
    Kernel,
    Name,
    Node,
    Scalar,
)  # fmt: skip
from cubridge.ir.types import DType
from cubridge.ir.walk import map_children
from cubridge.passes.base import fault
from cubridge.passes.regions import param

_TILE_NAMES: Final = {"h": "h", "b": "b"}
_LOCALS: Final = ("s", "x", "m", "acc", "i", "j")
"""Names that `resolve` is given as they are; those of row reductions come on top."""


def resolve(expr: Expr, kernel: Kernel, locals: Collection[str]) -> Expr:
    """The expression in the names of region code. `locals`: names that it may use as they are, such as `s`, `i`, `j`.
    Errors: CU505 for a name that the kernel does not have, CU506 for a captured tensor with the wrong number of indices."""
    captured = {name: f for f in kernel.params if (name := capture_of(f)) is not None}

    def change(node: Node) -> Node:
        match node:
            case Index(Name(name), indices) if name in captured:
                return _element(node, captured[name], tuple(change(x) for x in indices))
            case Name(name):
                return _name(node, name, captured, locals)
            case _:
                return map_children(node, change)

    result = change(expr)
    assert isinstance(result, Expr)
    return result


def is_readable(name: str) -> bool:
    """Can an option read a captured value of this name."""
    meant = name in (*SIZES, *NAMED_CONSTANTS, *_TILE_NAMES, *_LOCALS)
    return not meant and name.isascii() and name.isidentifier() and not keyword.iskeyword(name)


def _name(node: Name, name: str, captured: dict[str, Field], locals: Collection[str]) -> Expr:
    if name in locals or name in SIZES or name in NAMED_CONSTANTS:
        return node
    if name in _TILE_NAMES:
        return Attr(Name("tile"), _TILE_NAMES[name], span=node.span)
    match captured.get(name):
        case Field(field, Scalar(dtype)):
            return _truth(Attr(Name("p"), field, span=node.span), dtype)
        case Field():
            raise fault("CU506", f"`{name}` is a tensor: give its indices", node.span)
        case _:
            raise fault("CU505", f"`{name}` means nothing here", node.span, help=_help(captured, locals))


def _element(node: Index, field: Field, indices: tuple[Node, ...]) -> Expr:
    rank = len(field.type.extents) if isinstance(field.type, Captured) else 0
    if len(indices) != rank:
        raise fault("CU506", f"a tensor with {rank} axes is read with {len(indices)} indices", node.span)
    return Index(param(field.name), tuple(x for x in indices if isinstance(x, Expr)), span=node.span)


def _truth(value: Expr, dtype: DType) -> Expr:
    return Binary("!=", value, IntLit(0), span=value.span) if dtype is DType.BOOL else value


def _help(captured: Iterable[str], locals: Iterable[str]) -> str:
    known = [*sorted(locals), "b", "h", *SIZES, *captured]
    return f"known here: {', '.join(known)}"
