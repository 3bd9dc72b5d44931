"""Operands of orchestration: what `smem.NAME` and `smem.NAME[slot]` name."""

from __future__ import annotations

from cubridge.ir.nodes import Attr, Expr, Index, IntLit, Name, Op


def shared_name(expr: Expr) -> str:
    """The shared object that an operand names; "" for anything else."""
    base = expr.base if isinstance(expr, Index) else expr
    return base.name if isinstance(base, Attr) and base.base == Name("smem") else ""


def slot_index(expr: Expr) -> Expr:
    """The slot of a shared operand; 0 where it has none."""
    return expr.indices[0] if isinstance(expr, Index) else IntLit(0)


def written_operands(op: Op) -> tuple[Expr, ...]:
    """The operands whose objects an operation writes."""
    return tuple(x for x in (getattr(op, field) for field in op.effect.writes) if x is not None)
