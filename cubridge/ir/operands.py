"""Operands of orchestration: what `smem.NAME`, `smem.NAME[slot]` and `rows(smem.NAME, first, count)` name."""

from __future__ import annotations

from typing import Final

from cubridge.ir.nodes import Attr, Call, Expr, Index, IntLit, Name, Op

WINDOWS: Final = ("rows", "columns")
"""Parts of a shared tile: `rows(tile, first, count)`."""


def whole(expr: Expr) -> Expr:
    """The shared tile that an operand is, or is a part of."""
    return expr.args[0] if isinstance(expr, Call) and expr.fn in WINDOWS else expr


def shared_name(expr: Expr) -> str:
    """The shared object that an operand names; "" for anything else."""
    expr = whole(expr)
    base = expr.base if isinstance(expr, Index) else expr
    return base.name if isinstance(base, Attr) and base.base == Name("smem") else ""


def slot_index(expr: Expr) -> Expr:
    """The slot of a shared operand; 0 where it has none."""
    expr = whole(expr)
    return expr.indices[0] if isinstance(expr, Index) else IntLit(0)


def written_operands(op: Op) -> tuple[Expr, ...]:
    """The operands whose objects an operation writes."""
    return tuple(x for x in (getattr(op, field) for field in op.effect.writes) if x is not None)
