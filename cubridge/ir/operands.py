"""Operands of orchestration: what `smem.NAME` and `smem.NAME[slot]` name."""

from __future__ import annotations

from cubridge.ir.nodes import Attr, Expr, Index, IntLit, Name


def shared_name(expr: Expr) -> str:
    """The shared object that an operand names; "" for anything else."""
    base = expr.base if isinstance(expr, Index) else expr
    return base.name if isinstance(base, Attr) and base.base == Name("smem") else ""


def slot_index(expr: Expr) -> Expr:
    """The slot of a shared operand; 0 where it has none."""
    return expr.indices[0] if isinstance(expr, Index) else IntLit(0)
